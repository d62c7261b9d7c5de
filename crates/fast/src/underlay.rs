//! The gate of packets from other nodes: others' filters on the ingress of the external devices,
//! IPsec policies, and offload settings of the tunnel devices.
//!
//! `from_underlay` takes a packet out of the ingress of the external interface, or of another
//! device by which routes to peers lead, before filters of tc and TCX programs behind it have seen
//! the packet. So no packet is put into pods from there while others are on the ingress of any of
//! these devices: one setting holds for all devices, as a flow may arrive by each. XDP programs
//! come before TC and see everything. The egress needs no gate: what is replayed or encapsulated
//! leaves through `__dev_queue_xmit()` ([net/core/dev.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)), like the kernel's own
//! packets.
//!
//! The kernel decrypts a packet that came through IPsec and then receives it once more, by the same
//! device (`xfrm_input()` in [net/xfrm/xfrm_input.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/xfrm/xfrm_input.c)). The flow learned from
//! that packet would also match a packet that came in the clear. Therefore no packet is put into
//! pods from there while a policy may cover their packets. The egress needs no gate: an encrypted
//! packet does not leave as the packet that was recorded.
//!
//! A packet of the outside may have an address of this node before it is translated for a pod. So
//! flows with the outside are learned only while the kernel has no policy for forwarded packets.
//!
//! A tunnel device with changed receive offload settings does not receive packets as the programs
//! do, which skip it. Then no packet is put into pods from there.
//!
//! Filters and policies are announced by the kernel; TCX programs are not, and are found when
//! everything is invalidated.

use std::collections::BTreeMap;

use flannel_datapath::PinRoot;
use flannel_netlink::{KernelEvent, Netlink, NetlinkError, XfrmPolicy};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::pods::{DeviceSide, Others, PodReason, others};

/// The external devices and the filters of others on them.
#[derive(Debug, Default)]
pub(super) struct ExternalDevices {
    /// Others on the ingress of each device, as last read.
    ingress: BTreeMap<u32, Others>,
    /// Reasons that IPsec policies give, as last read.
    policies: Policies,
    reasons: Vec<PodReason>,
}

/// The known IPsec policies on packets of pods.
#[derive(Debug, Default)]
enum Policies {
    /// Not read yet, or stale.
    #[default]
    Unread,
    /// The reasons they give.
    Read(PolicyReasons),
}

/// Reasons that IPsec policies give, if they do.
#[derive(Clone, Debug, Default)]
struct PolicyReasons {
    /// For packets between pods.
    pods: Option<PodReason>,
    /// For packets of hosts outside.
    outside: Option<PodReason>,
}

impl ExternalDevices {
    /// Marks everything as stale, so that the next [`Self::refresh`] reads it again.
    pub(super) fn invalidate(&mut self) {
        self.ingress.clear();
        self.policies = Policies::Unread;
    }

    /// Takes in an event. Returns true if the next [`Self::refresh`] may find something else
    /// because of it.
    pub(super) fn observe(&mut self, event: &KernelEvent) -> bool {
        match event {
            KernelEvent::Overflow | KernelEvent::TrafficControl { device: None } => {
                self.invalidate();
                true
            }
            KernelEvent::XfrmPolicy => {
                matches!(std::mem::take(&mut self.policies), Policies::Read(_))
            }
            KernelEvent::TrafficControl {
                device: Some(ifindex),
            }
            | KernelEvent::LinkGone { index: ifindex, .. } => {
                self.ingress.remove(ifindex).is_some()
            }
            _ => false,
        }
    }

    /// Reads who is on the ingress of `devices`, and the policies on packets of pods in these
    /// networks and of the outside, where that is not known. The agent's links are pinned below
    /// `pins`; `of_tunnels` are reasons that the tunnel devices give.
    pub(super) async fn refresh(
        &mut self,
        netlink: &Netlink,
        pins: &PinRoot,
        networks: &[IpNet],
        devices: &BTreeMap<u32, String>,
        of_tunnels: impl Iterator<Item = PodReason>,
    ) {
        if matches!(self.policies, Policies::Unread) {
            self.policies = Policies::Read(PolicyReasons::read(netlink, networks).await);
        }
        self.ingress.retain(|index, _| devices.contains_key(index));
        for index in devices.keys() {
            self.ingress
                .entry(*index)
                .or_insert_with(|| others::on_ingress(pins, *index));
        }
        let on_devices = devices
            .iter()
            .flat_map(|(index, name)| reasons(self.ingress[index], name));
        let of_policies = self
            .policies
            .reasons()
            .and_then(|reasons| reasons.pods.clone());
        let reasons: Vec<PodReason> = on_devices.chain(of_policies).chain(of_tunnels).collect();
        if reasons != self.reasons {
            report(&reasons);
        }
        self.reasons = reasons;
    }

    /// Reasons for which packets from other nodes are not put straight into pods; empty if they
    /// are.
    pub(super) fn reasons(&self) -> &[PodReason] {
        &self.reasons
    }

    /// Returns the reason why only the flows with the outside are not learned, if there is one.
    pub(super) fn outside_reason(&self) -> Option<&PodReason> {
        self.policies
            .reasons()
            .and_then(|reasons| reasons.outside.as_ref())
    }
}

impl Policies {
    const fn reasons(&self) -> Option<&PolicyReasons> {
        match self {
            Self::Unread => None,
            Self::Read(reasons) => Some(reasons),
        }
    }
}

impl PolicyReasons {
    async fn read(netlink: &Netlink, networks: &[IpNet]) -> Self {
        let everywhere = [Ipv4Net::default().into(), Ipv6Net::default().into()];
        let policies = netlink.forward_policies().await;
        Self {
            pods: reason_of(&policies, networks),
            outside: reason_of(&policies, &everywhere),
        }
    }
}

/// Reasons for which packets that arrive by this device are not put straight into pods, as of now.
pub(super) fn reasons_now(pins: &PinRoot, index: u32, name: &str) -> Vec<PodReason> {
    reasons(others::on_ingress(pins, index), name).collect()
}

/// The reason for which IPsec policies leave packets of these networks to the kernel, if there is
/// one.
pub(super) async fn policies(netlink: &Netlink, networks: &[IpNet]) -> Option<PodReason> {
    reason_of(&netlink.forward_policies().await, networks)
}

fn reason_of(
    policies: &Result<Vec<XfrmPolicy>, NetlinkError>,
    networks: &[IpNet],
) -> Option<PodReason> {
    match policies {
        Ok(policies) => policies
            .iter()
            .find(|policy| networks.iter().any(|network| policy.restricts(*network)))
            .map(|policy| PodReason::Ipsec(policy.index)),
        Err(error) => Some(PodReason::PoliciesUnknown(error.to_string())),
    }
}

fn reasons(others: Others, name: &str) -> impl Iterator<Item = PodReason> {
    others.reasons(name, DeviceSide::Ingress)
}

fn report(reasons: &[PodReason]) {
    if reasons.is_empty() {
        tracing::info!("packets from other nodes are put straight into pods again");
        return;
    }
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    tracing::warn!(
        reason = reasons.join("; "),
        "packets from other nodes take the kernel's path"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> ExternalDevices {
        ExternalDevices {
            ingress: BTreeMap::from([(2, Others::default()), (3, Others::default())]),
            policies: Policies::Read(PolicyReasons::default()),
            reasons: Vec::new(),
        }
    }

    #[test]
    fn an_event_of_a_policy_has_policies_read_again() {
        let mut underlay = known();
        assert!(
            underlay.observe(&KernelEvent::XfrmPolicy)
                && matches!(underlay.policies, Policies::Unread)
        );
        assert!(
            !underlay.observe(&KernelEvent::XfrmPolicy),
            "they will be read anyway"
        );
    }

    #[test]
    fn an_event_of_an_external_device_has_it_read_again() {
        let mut underlay = known();
        assert!(
            !underlay.observe(&KernelEvent::TrafficControl { device: Some(7) }),
            "another device"
        );
        assert!(underlay.observe(&KernelEvent::TrafficControl { device: Some(2) }));
        assert!(
            !underlay.observe(&KernelEvent::TrafficControl { device: Some(2) }),
            "it will be read anyway"
        );
        assert_eq!(underlay.ingress.keys().collect::<Vec<_>>(), [&3]);
    }

    #[test]
    fn filters_of_a_shared_block_may_be_on_every_device() {
        for event in [
            KernelEvent::TrafficControl { device: None },
            KernelEvent::Overflow,
        ] {
            let mut underlay = known();
            assert!(
                underlay.observe(&event) && underlay.ingress.is_empty(),
                "{event:?}"
            );
        }
    }
}
