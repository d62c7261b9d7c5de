//! Decides if an offload setting of a device keeps packets from skipping it. Pure.
//!
//! Only what the operator changed counts: a feature that a fresh vxlan, bridge or veth device has
//! on, that can be switched, and that is not asked for; a limit below that of a fresh device. A
//! larger limit counts for nothing, because the device only passes on what it is given then. So
//! does a feature that the kernel switches off because it depends on another: the other is named.

use std::fmt;

use flannel_netlink::{DeviceFeatures, Link};

/// Checksum offload.
pub(super) const TX_CHECKSUM: &str = "tx-checksum-ip-generic";
/// Features of sending that every fresh device of these kinds has on, with the kernel's names
/// (`netdev_features_strings` in [net/ethtool/common.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ethtool/common.c)).
const ON_TRANSMIT: [&str; 9] = [
    TX_CHECKSUM,
    "tx-scatter-gather",
    "tx-scatter-gather-fraglist",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-gso-list",
];
/// Features of receipt of a tunnel device, and if a fresh one has them on. It merges packets
/// itself, behind its outer header (`gro_cells_receive()` in [net/core/gro_cells.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/gro_cells.c)).
const ON_RECEIPT: [(&str, bool); 4] = [
    ("rx-checksum", true),
    ("rx-gro", true),
    ("rx-gro-list", false),
    ("rx-udp-gro-forwarding", false),
];
/// `GSO_LEGACY_MAX_SIZE` and `GRO_LEGACY_MAX_SIZE` of [include/linux/netdevice.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/linux/netdevice.h).
const MAX_SIZE: u32 = 65_536;
/// `GSO_MAX_SEGS`.
const MAX_SEGS: u32 = 65_535;

/// A setting that differs from that of a fresh device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffloadSetting {
    device: String,
    name: &'static str,
    value: Value,
}

impl OffloadSetting {
    /// The first feature of sending, off on this device.
    pub fn off(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            name: ON_TRANSMIT[0],
            value: Value::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Off,
    On,
    Limit(u32),
}

impl fmt::Display for OffloadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            name,
            value,
        } = self;
        match value {
            Value::Off => write!(f, "{name} of {device} is off"),
            Value::On => write!(f, "{name} of {device} is on"),
            Value::Limit(limit) => write!(f, "{name} of {device} is {limit}"),
        }
    }
}

/// The first setting by which a device changes packets that it sends.
pub(super) fn on_transmit(link: &Link, features: &DeviceFeatures) -> Option<OffloadSetting> {
    let (name, value) =
        switched(features, ON_TRANSMIT.map(|name| (name, true))).or_else(|| lowered_gso(link))?;
    Some(OffloadSetting {
        device: link.name.clone(),
        name,
        value,
    })
}

/// The first setting by which a tunnel device takes packets in otherwise than a fresh one.
pub(super) fn on_receipt(link: &Link, features: &DeviceFeatures) -> Option<OffloadSetting> {
    let (name, value) = switched(features, ON_RECEIPT).or_else(|| lowered_gro(link))?;
    Some(OffloadSetting {
        device: link.name.clone(),
        name,
        value,
    })
}

/// The first of these features that is not as on a fresh device.
fn switched<const N: usize>(
    features: &DeviceFeatures,
    fresh: [(&'static str, bool); N],
) -> Option<(&'static str, Value)> {
    let differs = |(name, is_on)| {
        features
            .is_wanted(name)
            .filter(|wanted| *wanted != is_on)
            .map(|wanted| (name, wanted))
    };
    let (name, wanted) = fresh.into_iter().find_map(differs)?;
    Some((name, if wanted { Value::On } else { Value::Off }))
}

/// A fresh vxlan device or bridge has the bound of the hardware below it, if that is smaller
/// (`netif_inherit_tso_max`). A kernel that does not show that bound shows no fresh value.
fn lowered_gso(Link { limits, .. }: &Link) -> Option<(&'static str, Value)> {
    let size = MAX_SIZE.min(limits.tso_max_size?);
    let segs = MAX_SEGS.min(limits.tso_max_segs?);
    lowered("gso_max_size", limits.gso_max_size, size)
        .or_else(|| lowered("gso_ipv4_max_size", limits.gso_ipv4_max_size, size))
        .or_else(|| lowered("gso_max_segs", limits.gso_max_segs, segs))
}

fn lowered_gro(Link { limits, .. }: &Link) -> Option<(&'static str, Value)> {
    lowered("gro_max_size", limits.gro_max_size, MAX_SIZE)
        .or_else(|| lowered("gro_ipv4_max_size", limits.gro_ipv4_max_size, MAX_SIZE))
}

fn lowered(name: &'static str, limit: Option<u32>, fresh: u32) -> Option<(&'static str, Value)> {
    limit
        .filter(|limit| *limit < fresh)
        .map(|limit| (name, Value::Limit(limit)))
}

#[cfg(test)]
mod tests {
    use flannel_netlink::OffloadLimits;

    use super::*;

    fn fresh() -> DeviceFeatures {
        let on_receipt = ON_RECEIPT.iter().map(|(name, _)| *name);
        let changeable = ON_TRANSMIT
            .into_iter()
            .chain(on_receipt)
            .map(str::to_owned)
            .collect();
        let on_receipt = ON_RECEIPT
            .iter()
            .filter(|(_, is_on)| *is_on)
            .map(|(name, _)| *name);
        DeviceFeatures {
            changeable,
            wanted: ON_TRANSMIT
                .into_iter()
                .chain(on_receipt)
                .map(str::to_owned)
                .collect(),
        }
    }

    fn tunnel(limits: OffloadLimits) -> Link {
        Link {
            limits,
            ..Link::ethernet(3, "flannel.1", 1450)
        }
    }

    fn limits() -> OffloadLimits {
        OffloadLimits {
            gso_max_size: Some(65_536),
            gso_ipv4_max_size: Some(65_536),
            gso_max_segs: Some(65_535),
            tso_max_size: Some(524_280),
            tso_max_segs: Some(65_535),
            gro_max_size: Some(65_536),
            gro_ipv4_max_size: Some(65_536),
        }
    }

    fn text(setting: Option<OffloadSetting>) -> Option<String> {
        setting.map(|setting| setting.to_string())
    }

    #[test]
    fn a_fresh_device_and_one_of_which_nothing_is_known_may_be_skipped() {
        for (link, features) in [
            (tunnel(limits()), fresh()),
            (tunnel(OffloadLimits::default()), DeviceFeatures::default()),
        ] {
            assert_eq!(
                (on_transmit(&link, &features), on_receipt(&link, &features)),
                (None, None)
            );
        }
    }

    #[test]
    fn each_feature_that_was_switched_counts_on_its_side_and_is_named() {
        let link = tunnel(limits());
        for name in ON_TRANSMIT {
            let mut features = fresh();
            features.wanted.remove(name);
            assert_eq!(
                text(on_transmit(&link, &features)),
                Some(format!("{name} of flannel.1 is off"))
            );
            assert_eq!(on_receipt(&link, &features), None);
        }
        for (name, is_on) in ON_RECEIPT {
            let mut features = fresh();
            if is_on {
                features.wanted.remove(name)
            } else {
                features.wanted.insert(name.to_owned())
            };
            let value = if is_on { "off" } else { "on" };
            assert_eq!(
                text(on_receipt(&link, &features)),
                Some(format!("{name} of flannel.1 is {value}"))
            );
            assert_eq!(on_transmit(&link, &features), None);
        }
    }

    #[test]
    fn a_feature_that_cannot_be_switched_does_not_count() {
        let mut features = fresh();
        features.changeable.remove("tx-udp-segmentation");
        features.wanted.remove("tx-udp-segmentation");
        assert_eq!(on_transmit(&tunnel(limits()), &features), None);
    }

    #[test]
    fn a_limit_counts_below_that_of_a_fresh_device() {
        let transmit = |limits| text(on_transmit(&tunnel(limits), &fresh()));
        let of = |text: &str| Some(text.to_owned());
        let size = OffloadLimits {
            gso_max_size: Some(30_000),
            ..limits()
        };
        assert_eq!(transmit(size), of("gso_max_size of flannel.1 is 30000"));
        let size = OffloadLimits {
            gso_ipv4_max_size: Some(30_000),
            ..limits()
        };
        assert_eq!(
            transmit(size),
            of("gso_ipv4_max_size of flannel.1 is 30000")
        );
        let segs = OffloadLimits {
            gso_max_segs: Some(1),
            ..limits()
        };
        assert_eq!(transmit(segs), of("gso_max_segs of flannel.1 is 1"));
        let of_the_hardware = OffloadLimits {
            gso_max_size: Some(62_780),
            gso_ipv4_max_size: None,
            tso_max_size: Some(62_780),
            ..limits()
        };
        assert_eq!(transmit(of_the_hardware), None);
        let unknown = OffloadLimits {
            tso_max_size: None,
            ..size
        };
        assert_eq!(
            transmit(unknown),
            None,
            "a kernel that does not show the hardware's bound"
        );
        let larger = OffloadLimits {
            gso_max_size: Some(190_000),
            ..limits()
        };
        assert_eq!(transmit(larger), None);
    }

    #[test]
    fn a_smaller_limit_of_merging_counts_on_receipt() {
        let link = tunnel(OffloadLimits {
            gro_max_size: Some(9_000),
            ..limits()
        });
        assert_eq!(
            text(on_receipt(&link, &fresh())),
            Some("gro_max_size of flannel.1 is 9000".to_owned())
        );
        let link = tunnel(OffloadLimits {
            gro_ipv4_max_size: Some(9_000),
            ..limits()
        });
        assert_eq!(
            text(on_receipt(&link, &fresh())),
            Some("gro_ipv4_max_size of flannel.1 is 9000".to_owned())
        );
        assert_eq!(on_transmit(&link, &fresh()), None);
    }
}
