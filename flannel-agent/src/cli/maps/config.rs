//! The node's own data and the mode.

use std::{fmt::Write as _, time::Duration};

use flannel_common::{
    entry_state::EntryState,
    mode::ModeWord,
    node::{FamilyConfig, NodeConfig, heartbeat_is_fresh},
};
use flannel_host::family::Family;
use serde::Serialize;

use super::peers::device;
use crate::monitor::DeviceNames;

/// The keys of the IPv4 tunnel are on the same level as the node's own, those of the IPv6 tunnel
/// below `ipv6`. A family that is switched off has none.
#[derive(Debug, Serialize)]
pub(super) struct ConfigRow {
    mode: String,
    choice: Option<String>,
    mode_generation: u32,
    valid: bool,
    generation: u32,
    heartbeat_age_seconds: Option<f64>,
    heartbeat_fresh: bool,
    #[serde(flatten)]
    ipv4: Option<FamilyRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<FamilyRow>,
}

#[derive(Debug, Serialize)]
struct FamilyRow {
    network: String,
    subnet_len: u32,
    subnets: u32,
    vtep: String,
    vtep_mac: String,
    vni: u32,
    port: u16,
    source_ports: String,
    tunnel_ifindex: u32,
    tunnel_interface: Option<String>,
    underlay_ifindex: u32,
    underlay_interface: Option<String>,
}

impl ConfigRow {
    pub(super) fn new(config: &NodeConfig, word: ModeWord, now: u64, devices: &mut DeviceNames) -> Self {
        let age = now.checked_sub(config.heartbeat_ns).filter(|_| config.heartbeat_ns != 0);
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
        let network = ("network", format!("{} in {} subnets of /{}", self.network, self.subnets, self.subnet_len));
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
            ("vni, port", format!("{}, {} (source ports {})", self.vni, self.port, self.source_ports)),
            (
                "interfaces",
                format!("tunnel {}, underlay {underlay}", device(self.tunnel_ifindex, self.tunnel_interface.as_ref())),
            ),
        ]
    }
}

pub(super) fn table(row: &ConfigRow) -> String {
    let heartbeat = match (row.heartbeat_age_seconds, row.heartbeat_fresh) {
        (None, _) => "never".to_owned(),
        (Some(age), true) => format!("{age:.1} s ago"),
        (Some(age), false) => format!("{age:.1} s ago: too old, every packet takes the kernel's path"),
    };
    let node = [
        ("mode", row.mode.clone()),
        ("chosen at run time", row.choice.clone().unwrap_or_else(|| "no (auto)".to_owned())),
        ("heartbeat", heartbeat),
        ("valid", format!("{} (generation {})", if row.valid { "yes" } else { "no" }, row.generation)),
    ];
    let families = [&row.ipv4, &row.ipv6].into_iter().flatten().flat_map(FamilyRow::lines);
    node.into_iter().chain(families).fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<20}{value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use flannel_common::addr::Addr;

    use super::*;

    fn family(network: Addr, shift: u32) -> FamilyConfig {
        FamilyConfig { network, subnet_shift: shift, subnet_count: 256, ..FamilyConfig::default() }
    }

    fn row(v4: bool, v6: bool) -> ConfigRow {
        let network6 = Addr([0xfd, 0, 0, 0x10, 2, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let config = NodeConfig {
            v4: if v4 { family(Addr::from_v4_bytes([10, 244, 0, 0]), 8) } else { FamilyConfig::default() },
            v6: if v6 { family(network6, 64) } else { FamilyConfig::default() },
            ..NodeConfig::default()
        };
        ConfigRow::new(&config, ModeWord::default(), 0, &mut DeviceNames::default())
    }

    #[test]
    fn each_family_that_is_on_has_its_lines() {
        let networks = |row: &ConfigRow| -> Vec<String> {
            table(row).lines().filter(|line| line.starts_with("network")).map(|line| line[20..].to_owned()).collect()
        };
        let (v4, v6) = ("10.244.0.0 in 256 subnets of /24", "fd00:10:244:: in 256 subnets of /64");
        assert_eq!(networks(&row(true, false)), [v4]);
        assert_eq!(networks(&row(true, true)), [v4, v6]);
        assert_eq!(networks(&row(false, true)), [v6]);
    }

    #[test]
    fn ipv6_adds_keys_and_moves_none() {
        let json = |row| serde_json::to_value(row).expect("JSON");
        let (one, both, six) = (json(row(true, false)), json(row(true, true)), json(row(false, true)));
        for (key, value) in one.as_object().expect("an object") {
            assert_eq!(&both[key], value, "{key}");
        }
        assert_eq!(one.get("ipv6"), None);
        assert_eq!(both["ipv6"]["subnet_len"], 64);
        assert_eq!((six.get("network"), &six["ipv6"]), (None, &both["ipv6"]));
    }
}
