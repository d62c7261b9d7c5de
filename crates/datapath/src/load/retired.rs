//! Pins of agents that have ended, in another pin root.
//!
//! Programs stay on their devices when their agent ends. An agent that is started with another pin
//! root replaces only the programs in that one: for a minute the guard of the former one would go
//! on to refuse peers that it does not know, and afterwards each packet would pass two sets of
//! programs. So the new agent removes pins that no agent claims, and that are of the tunnel or
//! network that it has now.
//!
//! Pin roots of other network namespaces may be in the same bpf filesystem. The programs that the
//! kernel lists on a device of this namespace show which are not. Pins of a build
//! with another schema are known only by their links to our tunnel devices.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::programs::TcAttachType;
use flannel_common::abi::{
    node::{FamilyConfig, NodeConfig},
    program::Program,
};
use flannel_host::networks::overlap;
use flannel_netlink::device_name;
use ipnet::IpNet;

use crate::{PinRoot, attach::query, maps::ConfigMap};

/// The pin root where no option names one.
const DEFAULT: &str = "/sys/fs/bpf/flannel";

/// By what the pins of a former agent are known.
#[derive(Clone, Debug)]
pub struct Successor<'a> {
    /// Our own pins.
    pub pins: &'a PinRoot,
    /// Interface index of the external interface.
    pub external: u32,
    /// Interface indices of our tunnel devices.
    pub tunnels: &'a [u32],
    /// Our pod networks.
    pub networks: &'a [IpNet],
}

impl Successor<'_> {
    /// Removes such pins, with which programs come off their devices. Returns the pin roots.
    /// `is_free` says that no agent claims a pin root.
    pub fn retire(&self, is_free: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut retired = Vec::new();
        for pins in self.candidates() {
            if self.is_former(&pins) && is_free(pins.root()) {
                match fs::remove_dir_all(pins.dir()) {
                    Ok(()) => retired.push(pins.root().to_owned()),
                    Err(error) => {
                        tracing::warn!(%error, path = %pins.dir().display(), "programs of an agent \
                            that ended are left");
                    }
                }
            }
        }
        retired
    }

    /// The pins in other pin roots: those next to our own, and the default one.
    fn candidates(&self) -> Vec<PinRoot> {
        let own = self.pins.root();
        let neighbours = own
            .parent()
            .and_then(|parent| fs::read_dir(parent).ok())
            .into_iter()
            .flatten()
            .flatten();
        let mut found: Vec<PathBuf> = neighbours
            .map(|entry| entry.path())
            .chain([PathBuf::from(DEFAULT)])
            .collect();
        found.sort();
        found.dedup();
        found.retain(|root| root.as_path() != own);
        found
            .iter()
            .flat_map(|root| PinRoot::of_all_schemas(root))
            .collect()
    }

    fn is_former(&self, pins: &PinRoot) -> bool {
        if !self.is_attached(&pins.link(Program::FromUnderlay, self.external)) {
            return false;
        }
        if pins.has_own_schema() {
            let config = ConfigMap::open(pins).and_then(|map| map.get());
            return config.is_ok_and(|config| {
                self.succeeds(&config, |tunnel| device_name(tunnel).is_some())
            });
        }
        self.tunnels
            .iter()
            .any(|tunnel| pins.link(Program::ToTunnel, *tunnel).exists())
    }

    /// Returns true if the pinned link is on our external interface, and not on one of another
    /// network namespace with the same index.
    fn is_attached(&self, link: &Path) -> bool {
        let here = query::programs(self.external, TcAttachType::Ingress);
        query::held_by(link)
            .zip(here.ok())
            .is_some_and(|(program, here)| here.contains(&program))
    }

    /// Returns true if that configuration is of our tunnel, of one that is gone, or without a
    /// tunnel of our network. An existing tunnel device that is not ours is another agent's, which
    /// may start again.
    fn succeeds(&self, config: &NodeConfig, exists: impl Fn(u32) -> bool) -> bool {
        let is_ours = |family: &FamilyConfig| match family.tunnel_ifindex {
            0 => self.networks.iter().any(|network| {
                overlap(
                    *network,
                    IpNet::from(std::net::IpAddr::from(family.network)),
                )
            }),
            tunnel => self.tunnels.contains(&tunnel) || !exists(tunnel),
        };
        let families = [&config.v4, &config.v6];
        families
            .into_iter()
            .filter(|family| family.subnet_count > 0)
            .any(is_ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_of_our_tunnel_or_network_are_succeeded_and_those_of_another_agent_are_not() {
        let pins = PinRoot::new(Path::new("/sys/fs/bpf/absent"));
        let networks = ["10.244.0.0/16".parse().expect("a network")];
        let successor = Successor {
            pins: &pins,
            external: 2,
            tunnels: &[7],
            networks: &networks,
        };
        let config = |tunnel_ifindex, network: [u8; 4]| NodeConfig {
            v4: FamilyConfig {
                tunnel_ifindex,
                subnet_count: 256,
                network: std::net::Ipv4Addr::from(network).into(),
                ..FamilyConfig::default()
            },
            ..NodeConfig::default()
        };
        let there = |index| index == 8;
        assert!(
            successor.succeeds(&config(7, [10, 9, 0, 0]), there),
            "our tunnel with a former network"
        );
        assert!(
            successor.succeeds(&config(6, [10, 9, 0, 0]), there),
            "a tunnel that is gone"
        );
        assert!(
            !successor.succeeds(&config(8, [10, 244, 0, 0]), there),
            "another agent's tunnel"
        );
        assert!(
            successor.succeeds(&config(0, [10, 244, 0, 0]), there),
            "our network"
        );
        assert!(
            !successor.succeeds(&config(0, [10, 55, 0, 0]), there),
            "another network"
        );
        assert!(
            !successor.succeeds(&NodeConfig::default(), there),
            "nothing is known"
        );
    }
}
