//! Offload settings of the devices that packets skip: the tunnel device in modes `encap` and
//! `fast`, the pod bridge and the pods' veths in mode `fast`.
//!
//! An operator who switches an offload of such a device off, or lowers one of its limits, wants the
//! kernel to do that work in front of it (`validate_xmit_skb()` in [net/core/dev.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)): compute inner checksums for
//! a NIC that breaks them, or cut packets for a pod that reads raw frames. The programs pass by
//! that place, so the kernel carries the packets then. `judge` has the settings that count.
//! With them [`crate::underlay`] decides on packets to peers, and `flannel_fast` on packets to
//! pods.
//!
//! A changed feature is announced as a change of the link, so it is valid until then. A changed
//! limit is not announced (`do_setlink()` in [net/core/rtnetlink.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/rtnetlink.c) sets
//! `DO_SETLINK_MODIFIED` without `DO_SETLINK_NOTIFY` for it), so limits are read again with
//! whatever else is not announced.
//!
//! One feature the agent switches itself, if it is asked to or if trials show that it has to:
//! `checksum`.

mod checksum;
mod checksum_alias;
mod feature;
mod judge;
mod trials;

use std::collections::BTreeMap;

use flannel_host::error_chain::chain;
use flannel_netlink::{DeviceFeatures, EthtoolNetlink, KernelEvent, Link, Netlink, NetlinkError};
use futures::future::join_all;

pub use self::{
    checksum::{ChecksumDevice, ChecksumOffload},
    judge::OffloadSetting,
    trials::{LostOffloaded, OffloadTrials},
};
use self::{
    checksum_alias::SwitchedOff,
    feature::Feature,
    judge::{TX_CHECKSUM, on_receipt, on_transmit},
};

/// The offload settings of devices, as last read.
#[derive(Debug, Default)]
pub struct Offloads {
    ethtool: Ethtool,
    known: BTreeMap<u32, OffloadDevice>,
    /// True if the limits of known devices have to be read again.
    are_limits_stale: bool,
}

/// The kernel's answers about features.
#[derive(Debug, Default)]
enum Ethtool {
    #[default]
    Unopened,
    Open(EthtoolNetlink),
    /// This kernel does not answer.
    Absent,
}

/// A device and the features that can be switched on it.
#[derive(Debug)]
struct OffloadDevice {
    link: Link,
    features: DeviceFeatures,
}

impl Offloads {
    /// Takes in an event. Returns true if the next [`Self::refresh`] may read something else
    /// because of it.
    pub fn observe(&mut self, event: &KernelEvent) -> bool {
        match event {
            KernelEvent::Overflow => {
                self.invalidate();
                true
            }
            KernelEvent::Link(Link { index, .. }) | KernelEvent::LinkGone { index, .. } => {
                self.known.remove(index).is_some()
            }
            _ => false,
        }
    }

    /// Has every device read again.
    pub fn invalidate(&mut self) {
        self.known.clear();
    }

    /// Has the limits of all devices read again. Returns true if there are any.
    pub fn invalidate_limits(&mut self) -> bool {
        self.are_limits_stale = !self.known.is_empty();
        self.are_limits_stale
    }

    /// Reads those of these devices that are not known, all at once. One that cannot be read gates
    /// no packet, and is read again at the next call.
    pub async fn refresh(&mut self, netlink: &Netlink, devices: impl IntoIterator<Item = u32>) {
        if std::mem::take(&mut self.are_limits_stale) {
            self.refresh_limits(netlink).await;
        }
        let unknown: Vec<u32> = devices
            .into_iter()
            .filter(|index| !self.known.contains_key(index))
            .collect();
        if unknown.is_empty() {
            return;
        }
        self.ethtool.open().await;
        let ethtool = &self.ethtool;
        let read = join_all(
            unknown
                .into_iter()
                .map(async |index| (index, ethtool.read(netlink, index).await)),
        );
        for (index, device) in read.await {
            match device {
                Ok(device) => self.known.extend(device.map(|device| (index, device))),
                Err(error) => {
                    tracing::debug!(error = chain(&error), "offload settings are not known");
                }
            }
        }
    }

    async fn refresh_limits(&mut self, netlink: &Netlink) {
        match netlink.links().await {
            Ok(links) => links.into_iter().for_each(|link| self.take_limits(&link)),
            Err(error) => tracing::debug!(
                error = chain(&error),
                "offload limits are not known; tried again"
            ),
        }
    }

    fn take_limits(&mut self, link: &Link) {
        if let Some(known) = self.known.get_mut(&link.index) {
            known.link.limits = link.limits;
        }
    }

    /// The setting by which packets that skip the device on their way out have to be left to the
    /// kernel, if there is one.
    pub fn on_transmit(&self, device: u32) -> Option<OffloadSetting> {
        self.known
            .get(&device)
            .and_then(|known| on_transmit(&known.link, &known.features))
    }

    /// The same for packets that skip its receipt.
    pub fn on_receipt(&self, device: u32) -> Option<OffloadSetting> {
        self.known
            .get(&device)
            .and_then(|known| on_receipt(&known.link, &known.features))
    }

    /// The state of checksum offload of a known device.
    fn checksum_feature(&self, device: u32) -> Feature {
        let known = self.known.get(&device);
        Feature {
            is_on: known.and_then(|known| known.features.is_wanted(TX_CHECKSUM)),
            switched_off: known
                .and_then(|known| SwitchedOff::of_alias(known.link.alias.as_deref()?)),
        }
    }

    /// Sets the alias of a device, and then checksum offload if a state is given, and reads the
    /// device again.
    async fn switch_checksum(
        &mut self,
        netlink: &Netlink,
        device: u32,
        (alias, is_on): (Option<SwitchedOff>, Option<bool>),
    ) -> Result<(), NetlinkError> {
        netlink
            .set_alias(
                device,
                &alias.map(SwitchedOff::to_alias).unwrap_or_default(),
            )
            .await?;
        if let (Some(is_on), Ethtool::Open(ethtool)) = (is_on, &self.ethtool) {
            ethtool.set_feature(device, TX_CHECKSUM, is_on).await?;
        }
        self.known.remove(&device);
        self.refresh(netlink, [device]).await;
        Ok(())
    }
}

impl Ethtool {
    async fn open(&mut self) {
        if matches!(self, Self::Unopened) {
            *self = match EthtoolNetlink::connect().await {
                Ok(ethtool) => Self::Open(ethtool),
                Err(error) => {
                    tracing::debug!(
                        error = chain(&error),
                        "the kernel does not show offload features; they gate no packet"
                    );
                    Self::Absent
                }
            };
        }
    }

    /// `None` for a device that is gone.
    async fn read(
        &self,
        netlink: &Netlink,
        device: u32,
    ) -> Result<Option<OffloadDevice>, NetlinkError> {
        let Some(link) = netlink.link_by_index(device).await? else {
            return Ok(None);
        };
        let features = match self {
            Self::Open(ethtool) => match ethtool.features(device).await {
                Err(error) if error.is_gone() => return Ok(None),
                features => features?,
            },
            Self::Unopened | Self::Absent => DeviceFeatures::default(),
        };
        Ok(Some(OffloadDevice { link, features }))
    }
}

#[cfg(test)]
mod tests {
    use flannel_netlink::OffloadLimits;

    use super::*;

    fn known() -> Offloads {
        let device = |index| OffloadDevice {
            link: Link::ethernet(index, "veth1", 1450),
            features: DeviceFeatures::default(),
        };
        Offloads {
            known: [(2, device(2)), (3, device(3))].into(),
            ..Offloads::default()
        }
    }

    #[test]
    fn an_event_of_a_known_device_has_it_read_again() {
        let mut offloads = known();
        let event = |index| KernelEvent::Link(Link::ethernet(index, "veth1", 1450));
        assert!(!offloads.observe(&event(7)), "another device");
        assert!(offloads.observe(&event(2)));
        assert!(!offloads.observe(&event(2)), "it will be read anyway");
        assert_eq!(offloads.known.keys().collect::<Vec<_>>(), [&3]);
        assert!(offloads.observe(&KernelEvent::LinkGone {
            index: 3,
            name: "veth1".to_owned()
        }));
    }

    #[test]
    fn limits_are_read_again_of_known_devices_and_replace_those_before() {
        let mut offloads = known();
        assert!(offloads.invalidate_limits() && !Offloads::default().invalidate_limits());
        let limits = OffloadLimits {
            gro_max_size: Some(9_000),
            ..OffloadLimits::default()
        };
        for index in [2, 7] {
            offloads.take_limits(&Link {
                limits,
                ..Link::ethernet(index, "veth1", 1450)
            });
        }
        assert!(offloads.on_receipt(2).is_some() && offloads.on_receipt(3).is_none());
        assert_eq!(
            offloads.known.len(),
            2,
            "a device that does not matter stays unknown"
        );
    }

    #[test]
    fn after_lost_events_every_device_is_read_again() {
        let mut offloads = known();
        assert!(offloads.observe(&KernelEvent::Overflow) && offloads.known.is_empty());
    }
}
