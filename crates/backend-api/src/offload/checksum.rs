//! `TxChecksumOffload`: if the inner checksums of packets into a vxlan device are left to the
//! network card.
//!
//! The switch is the feature `tx-checksum-ip-generic` of the tunnel device. While it is off, the
//! kernel computes the checksums in front of the device (`validate_xmit_skb()` in [net/core/dev.c,
//! Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)), and the programs leave
//! the packets to the kernel, as [`super::judge`] says. It counts for all peers, because a card
//! that breaks checksums breaks those of all.
//!
//! An agent that switches the feature off says so in the alias of the device ([`SwitchedOff`]).
//! What an operator switched off has no such alias, and stays off with the setting `auto`. The
//! alias lives as long as the device, as the feature does.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::Netlink;
use flannel_status::ChecksumOffloadStatus;
use flannel_store::config::TxChecksumOffload;

use super::{
    LostOffloaded, OffloadTrials, Offloads, checksum_alias::SwitchedOff, feature::Feature,
};

/// One of our vxlan devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumDevice {
    /// The family of its outer packets.
    pub family: Family,
    /// Its interface index.
    pub index: u32,
    /// The interface index of the external interface.
    pub uplink: u32,
}

/// A change of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    On,
    Off(SwitchedOff),
    /// Removes an alias that is no longer true.
    RemoveAlias,
}

impl Change {
    /// The alias to set, and the state to switch to if it is another.
    const fn target(self) -> Option<(Option<SwitchedOff>, Option<bool>)> {
        match self {
            Self::Nothing => None,
            Self::On => Some((None, Some(true))),
            Self::Off(by) => Some((Some(by), Some(false))),
            Self::RemoveAlias => Some((None, None)),
        }
    }
}

/// Follows the setting and the trials.
#[derive(Debug, Default)]
pub struct ChecksumOffload {
    setting: TxChecksumOffload,
    lost: BTreeSet<LostOffloaded>,
    devices: BTreeMap<Family, Followed>,
}

/// A device as it was followed last.
#[derive(Debug)]
struct Followed {
    device: ChecksumDevice,
    feature: Feature,
    /// Counts the rounds of trials.
    round: u32,
    error: Option<String>,
}

impl ChecksumOffload {
    /// With this setting.
    pub fn new(setting: TxChecksumOffload) -> Self {
        Self {
            setting,
            ..Self::default()
        }
    }

    /// Takes in the peers to which packets with offloaded checksums are lost. Returns true if the
    /// next [`Self::follow`] may do something else because of it.
    pub fn set_lost(&mut self, lost: &BTreeSet<LostOffloaded>) -> bool {
        let differs = self.lost != *lost;
        self.lost.clone_from(lost);
        differs
    }

    /// Makes the devices follow. They have to be known to `offloads`, which reads a changed one
    /// again.
    pub async fn follow(
        &mut self,
        netlink: &Netlink,
        offloads: &mut Offloads,
        devices: &[ChecksumDevice],
    ) {
        self.devices
            .retain(|family, _| devices.iter().any(|device| device.family == *family));
        for device in devices {
            let feature = offloads.checksum_feature(device.index);
            let change = self.change(*device, &feature);
            let error = match change.target() {
                Some(target) => offloads
                    .switch_checksum(netlink, device.index, target)
                    .await
                    .err(),
                None => None,
            };
            let error = error.map(|error| chain(&error));
            let feature = offloads.checksum_feature(device.index);
            self.log(*device, change, &feature, error.as_deref());
            self.remember(*device, feature, error);
        }
    }

    fn change(&self, device: ChecksumDevice, feature: &Feature) -> Change {
        let lost = self.lost_of(device.family);
        change(self.setting, feature, device.uplink, lost)
    }

    /// A peer of the present trials to which offloaded packets are lost.
    fn lost_of(&self, family: Family) -> Option<IpAddr> {
        let round = self.trial(family)?;
        self.lost
            .iter()
            .find(|lost| lost.round == round && Family::of(lost.peer) == family)
            .map(|lost| lost.peer)
    }

    fn remember(&mut self, device: ChecksumDevice, feature: Feature, error: Option<String>) {
        let known = self.devices.get(&device.family);
        let is_same = known
            .is_some_and(|known| known.device == device && known.feature.is_on == feature.is_on);
        let round = known.map_or(0, |known| known.round) + u32::from(!is_same);
        self.devices.insert(
            device.family,
            Followed {
                device,
                feature,
                round,
                error,
            },
        );
    }

    fn log(&self, device: ChecksumDevice, change: Change, feature: &Feature, error: Option<&str>) {
        let known = self
            .devices
            .get(&device.family)
            .and_then(|known| known.error.as_deref());
        if let Some(error) = error.filter(|error| known != Some(*error)) {
            tracing::warn!(family = %device.family, error, "cannot switch the checksum offload of \
                the tunnel device; tried again");
        }
        match (change, error) {
            (Change::Off(by @ SwitchedOff::ByTrial { .. }), None)
                if feature.is_on == Some(false) =>
            {
                tracing::warn!(family = %device.family, reason = %by, "inner checksums are \
                    computed in front of the tunnel device");
            }
            (Change::Off(by), None) if feature.is_on == Some(false) => {
                tracing::info!(family = %device.family, reason = %by, "inner checksums are \
                    computed in front of the tunnel device");
            }
            (Change::On, None) => {
                tracing::info!(family = %device.family, "inner checksums are left to the network \
                    card");
            }
            _ => {}
        }
    }

    /// The round of trials of a family: one is due while the feature may be switched off by it.
    fn trial(&self, family: Family) -> Option<u32> {
        let followed = self.devices.get(&family)?;
        let is_due =
            self.setting == TxChecksumOffload::Auto && followed.feature.is_on == Some(true);
        is_due.then_some(followed.round)
    }

    /// The trials that are due.
    pub fn trials(&self) -> OffloadTrials {
        OffloadTrials {
            v4: self.trial(Family::V4),
            v6: self.trial(Family::V6),
        }
    }

    /// For the status document.
    pub fn status(&self, name: impl Fn(u32) -> String) -> Vec<ChecksumOffloadStatus> {
        let status = |followed: &Followed| ChecksumOffloadStatus {
            device: name(followed.device.index),
            setting: self.setting.to_string(),
            on: followed.feature.is_on,
            reason: followed
                .error
                .clone()
                .or_else(|| followed.feature.reason(self.setting)),
        };
        self.devices.values().map(status).collect()
    }
}

/// Decides what has to be done. `lost` is a peer to which offloaded packets are lost.
fn change(
    setting: TxChecksumOffload,
    feature: &Feature,
    uplink: u32,
    lost: Option<IpAddr>,
) -> Change {
    let by = feature.switched_off;
    match (feature.is_on, setting) {
        (Some(true), TxChecksumOffload::Off) => Change::Off(SwitchedOff::BySetting),
        (Some(true), TxChecksumOffload::Auto) if let Some(peer) = lost => {
            Change::Off(SwitchedOff::ByTrial { peer, uplink })
        }
        // Another program switched it on.
        (Some(true), _) if by.is_some() => Change::RemoveAlias,
        (None | Some(true), _) | (Some(false), TxChecksumOffload::Off) => Change::Nothing,
        (Some(false), TxChecksumOffload::On) => Change::On,
        (Some(false), TxChecksumOffload::Auto) => match by {
            Some(SwitchedOff::BySetting) => Change::On,
            // Another card may compute them.
            Some(SwitchedOff::ByTrial { uplink: then, .. }) if then != uplink => Change::On,
            Some(SwitchedOff::ByTrial { .. }) | None => Change::Nothing,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 2, 13));
    const UPLINK: u32 = 2;
    const TRIAL: SwitchedOff = SwitchedOff::ByTrial {
        peer: PEER,
        uplink: UPLINK,
    };

    fn feature(is_on: bool, switched_off: Option<SwitchedOff>) -> Feature {
        Feature {
            is_on: Some(is_on),
            switched_off,
        }
    }

    #[test]
    fn each_setting_state_and_trial_has_its_change() {
        use SwitchedOff::BySetting;
        use TxChecksumOffload::{Auto, Off, On};
        for (setting, is_on, by, lost, expected) in [
            (Auto, true, None, None, Change::Nothing),
            (Auto, true, None, Some(PEER), Change::Off(TRIAL)),
            (Auto, true, Some(BySetting), None, Change::RemoveAlias),
            (Auto, false, None, None, Change::Nothing),
            (Auto, false, Some(BySetting), None, Change::On),
            (Auto, false, Some(TRIAL), None, Change::Nothing),
            (
                Auto,
                false,
                Some(SwitchedOff::ByTrial {
                    peer: PEER,
                    uplink: 7,
                }),
                None,
                Change::On,
            ),
            (On, true, None, Some(PEER), Change::Nothing),
            (On, false, None, None, Change::On),
            (On, false, Some(TRIAL), None, Change::On),
            (Off, true, None, None, Change::Off(BySetting)),
            (Off, false, None, None, Change::Nothing),
            (Off, false, Some(TRIAL), None, Change::Nothing),
        ] {
            let found = change(setting, &feature(is_on, by), UPLINK, lost);
            assert_eq!(found, expected, "{setting} {is_on} {by:?} {lost:?}");
        }
        for setting in TxChecksumOffload::ALL {
            let unknown = Feature {
                is_on: None,
                switched_off: None,
            };
            assert_eq!(
                change(setting, &unknown, UPLINK, Some(PEER)),
                Change::Nothing
            );
        }
    }

    fn device(uplink: u32) -> ChecksumDevice {
        ChecksumDevice {
            family: Family::V4,
            index: 3,
            uplink,
        }
    }

    #[test]
    fn a_round_of_trials_begins_with_each_device_uplink_and_switch() {
        let mut offload = ChecksumOffload::new(TxChecksumOffload::Auto);
        assert_eq!(offload.trials(), OffloadTrials::default());
        offload.remember(device(UPLINK), feature(true, None), None);
        let first = offload.trials().v4.expect("a round");
        offload.remember(device(UPLINK), feature(true, None), None);
        assert_eq!(offload.trials().v4, Some(first), "nothing changed");
        offload.remember(device(UPLINK), feature(false, Some(TRIAL)), None);
        assert_eq!(offload.trials().v4, None, "nothing is offloaded");
        offload.remember(device(7), feature(true, None), None);
        assert!(offload.trials().v4 > Some(first));
        assert_eq!(offload.trials().v6, None);
    }

    #[test]
    fn a_loss_of_another_round_or_family_counts_for_nothing() {
        let mut offload = ChecksumOffload::new(TxChecksumOffload::Auto);
        offload.remember(device(UPLINK), feature(true, None), None);
        let round = offload.trials().v4.expect("a round");
        let lost = |round, peer| BTreeSet::from([LostOffloaded { round, peer }]);
        assert!(offload.set_lost(&lost(round + 1, PEER)) && offload.lost_of(Family::V4).is_none());
        assert!(offload.set_lost(&lost(round, "2001:db8::1".parse().expect("IPv6"))));
        assert_eq!(offload.lost_of(Family::V4), None);
        assert!(offload.set_lost(&lost(round, PEER)) && !offload.set_lost(&lost(round, PEER)));
        assert_eq!(offload.lost_of(Family::V4), Some(PEER));
    }
}
