//! The node's own data and the mode.

use std::{fmt::Write as _, time::Duration};

use flannel_common::abi::{
    entry_state::EntryState,
    mode::ModeWord,
    node::{FamilyConfig, NodeConfig, heartbeat_is_fresh},
};
use flannel_flows::monitor::DeviceNames;
use flannel_host::family::Family;
use serde::Serialize;

use super::peers::device;

/// The keys of the IPv4 tunnel are on the same level as the node's own, those of the IPv6 tunnel
/// below `ipv6`. A family that is switched off has none.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub(super) struct ConfigRow {
    /// The active mode.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ModeName")
    )]
    mode: String,
    /// The mode that was chosen at run time; absent without a choice.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ModeName>")
    )]
    choice: Option<String>,
    /// The generation of flows, which grows with every write of the mode.
    mode_generation: u32,
    /// True if the node's own data are complete; otherwise the programs leave all packets to the
    /// kernel.
    valid: bool,
    /// The generation of the node's own data, which grows with every rewrite.
    generation: u32,
    /// Seconds since the agent's last heartbeat; absent if there was none.
    heartbeat_age_seconds: Option<f64>,
    /// True if the heartbeat is recent enough for the programs to trust the maps.
    heartbeat_fresh: bool,
    #[serde(flatten)]
    ipv4: Option<FamilyRow>,
    /// The IPv6 network and tunnel; absent if IPv6 is off.
    ipv6: Option<FamilyRow>,
}

/// The network and the tunnel of an address family.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct FamilyRow {
    /// The first address of the pod network.
    network: String,
    /// The prefix length of a node's subnet.
    subnet_len: u32,
    /// The number of subnets in the pod network.
    subnets: u32,
    /// The address of this node's VTEP.
    vtep: String,
    /// The MAC of this node's VTEP.
    vtep_mac: String,
    /// The VNI of the tunnel.
    vni: u32,
    /// The UDP port of the tunnel; 0 without a tunnel.
    port: u16,
    /// The first and the last UDP source port of outer packets, as `32768-60999`.
    source_ports: String,
    /// Interface index of the tunnel device; 0 without one.
    tunnel_ifindex: u32,
    /// Name of the tunnel device; absent if it is gone.
    tunnel_interface: Option<String>,
    /// Interface index of the external interface.
    underlay_ifindex: u32,
    /// Name of the external interface; absent if it is gone.
    underlay_interface: Option<String>,
}

impl ConfigRow {
    pub(super) fn new(
        config: &NodeConfig,
        word: ModeWord,
        now: u64,
        devices: &mut DeviceNames,
    ) -> Self {
        let age = now
            .checked_sub(config.heartbeat_ns)
            .filter(|_| config.heartbeat_ns != 0);
        Self {
            mode: word.mode().to_string(),
            choice: word.choice().map(|mode| mode.to_string()),
            mode_generation: word.generation(),
            valid: config.word.has(EntryState::VALID),
            generation: config.word.generation(),
            heartbeat_age_seconds: age.map(|age| Duration::from_nanos(age).as_secs_f64()),
            heartbeat_fresh: heartbeat_is_fresh(now, config.heartbeat_ns),
            ipv4: FamilyRow::new(Family::V4, &config.v4, devices),
            ipv6: FamilyRow::new(Family::V6, &config.v6, devices),
        }
    }
}

impl FamilyRow {
    /// The row of a family that is on.
    fn new(family: Family, config: &FamilyConfig, devices: &mut DeviceNames) -> Option<Self> {
        let mut name = |index| devices.get(index).map(str::to_owned);
        (config.subnet_count != 0).then(|| Self {
            network: config.network.to_string(),
            subnet_len: u32::from(family.bits()).saturating_sub(config.subnet_shift),
            subnets: config.subnet_count,
            vtep: config.vtep.to_string(),
            vtep_mac: config.vtep_mac.to_string(),
            vni: config.vni,
            port: u16::from_be_bytes(config.port),
            source_ports: format!("{}-{}", config.source_port_min, config.source_port_max),
            tunnel_ifindex: config.tunnel_ifindex,
            tunnel_interface: name(config.tunnel_ifindex),
            underlay_ifindex: config.underlay_ifindex,
            underlay_interface: name(config.underlay_ifindex),
        })
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let network = (
            "network",
            format!(
                "{} in {} subnets of /{}",
                self.network, self.subnets, self.subnet_len
            ),
        );
        let underlay = device(self.underlay_ifindex, self.underlay_interface.as_ref());
        if self.port == 0 {
            let interface = format!("underlay {underlay}");
            return vec![
                network,
                ("tunnel", "none".to_owned()),
                ("address", self.vtep.clone()),
                ("interface", interface),
            ];
        }
        vec![
            network,
            ("vtep", format!("{} {}", self.vtep, self.vtep_mac)),
            (
                "vni, port",
                format!(
                    "{}, {} (source ports {})",
                    self.vni, self.port, self.source_ports
                ),
            ),
            (
                "interfaces",
                format!(
                    "tunnel {}, underlay {underlay}",
                    device(self.tunnel_ifindex, self.tunnel_interface.as_ref())
                ),
            ),
        ]
    }
}

pub(super) fn table(row: &ConfigRow) -> String {
    let heartbeat = match (row.heartbeat_age_seconds, row.heartbeat_fresh) {
        (None, _) => "never".to_owned(),
        (Some(age), true) => format!("{age:.1} s ago"),
        (Some(age), false) => {
            format!("{age:.1} s ago: too old, every packet takes the kernel's path")
        }
    };
    let node = [
        ("mode", row.mode.clone()),
        (
            "chosen at run time",
            row.choice.clone().unwrap_or_else(|| "no (auto)".to_owned()),
        ),
        ("heartbeat", heartbeat),
        (
            "valid",
            format!(
                "{} (generation {})",
                if row.valid { "yes" } else { "no" },
                row.generation
            ),
        ),
    ];
    let families = [&row.ipv4, &row.ipv6]
        .into_iter()
        .flatten()
        .flat_map(FamilyRow::lines);
    node.into_iter()
        .chain(families)
        .fold(String::new(), |mut text, (name, value)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<20}{value}");
            text
        })
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::addr::Addr;

    use super::*;

    fn family(network: Addr, shift: u32) -> FamilyConfig {
        FamilyConfig {
            network,
            subnet_shift: shift,
            subnet_count: 256,
            ..FamilyConfig::default()
        }
    }

    fn row(v4: bool, v6: bool) -> ConfigRow {
        let network6 = Addr([0xfd, 0, 0, 0x10, 2, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let config = NodeConfig {
            v4: if v4 {
                family(Addr::from_v4_bytes([10, 244, 0, 0]), 8)
            } else {
                FamilyConfig::default()
            },
            v6: if v6 {
                family(network6, 64)
            } else {
                FamilyConfig::default()
            },
            ..NodeConfig::default()
        };
        ConfigRow::new(&config, ModeWord::default(), 0, &mut DeviceNames::default())
    }

    #[test]
    fn each_family_that_is_on_has_its_lines() {
        let networks = |row: &ConfigRow| -> Vec<String> {
            table(row)
                .lines()
                .filter(|line| line.starts_with("network"))
                .map(|line| line[20..].to_owned())
                .collect()
        };
        let (v4, v6) = (
            "10.244.0.0 in 256 subnets of /24",
            "fd00:10:244:: in 256 subnets of /64",
        );
        assert_eq!(networks(&row(true, false)), [v4]);
        assert_eq!(networks(&row(true, true)), [v4, v6]);
        assert_eq!(networks(&row(false, true)), [v6]);
    }

    #[test]
    fn ipv6_adds_keys_and_moves_none() {
        let json = |row| serde_json::to_value(row).expect("JSON");
        let (one, both, six) = (
            json(row(true, false)),
            json(row(true, true)),
            json(row(false, true)),
        );
        for (key, value) in one
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(key, _)| *key != "ipv6")
        {
            assert_eq!(&both[key], value, "{key}");
        }
        assert_eq!(one.get("ipv6"), Some(&serde_json::Value::Null));
        assert_eq!(both["ipv6"]["subnet_len"], 64);
        assert_eq!((six.get("network"), &six["ipv6"]), (None, &both["ipv6"]));
    }
}
