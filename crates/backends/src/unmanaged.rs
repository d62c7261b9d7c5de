//! The backends without kernel objects: something else carries the packets of pods, by way of the
//! external interface.
//!
//! For the programs the peers are direct: they learn flows that leave by the external interface to
//! a peer's subnet, and flows that come from one. If commands route packets elsewhere, the programs
//! neither see nor learn them. With the backend alloc no peers are known: for the programs all
//! addresses but those of the node's own subnet are hosts outside.

use flannel_backend_api::{
    Backend, CarriedExit, CarriedWay, Desired, EchoAddress, Node, OwnEnd, PeerWay, PodNetwork,
    ProgramSet, Way, network_config, routed_entry, underlay::Underlay,
};
use flannel_common::abi::node::FamilyConfig;
use flannel_host::family::Family;
use flannel_store::{Peer, RawJson};

/// The way along which the commands of the backend extension carry packets.
pub const EXTENSION: CarriedWay = CarriedWay {
    name: "extension",
    exit: CarriedExit::ExternalInterface,
    echo: EchoAddress::GatewayAndHost,
};
/// The way along which a cloud routes packets.
pub const CLOUD: CarriedWay = CarriedWay {
    name: "cloud",
    exit: CarriedExit::ExternalInterface,
    echo: EchoAddress::End,
};

/// Such a backend.
#[derive(Clone, Debug)]
pub struct Unmanaged {
    /// The way to every peer.
    way: Way,
    /// The data in the lease, as a JSON text.
    published: Option<RawJson>,
    /// True if the peers are known.
    knows_peers: bool,
}

impl Unmanaged {
    /// The backend alloc: a subnet for this node, and `subnet.env`.
    pub const fn alloc() -> Self {
        Self {
            way: Way::NotOnLink,
            published: None,
            knows_peers: false,
        }
    }

    /// The backend extension: commands of the operator carry the packets. `published` is the output
    /// of `PreStartupCommand`; `None` without that command.
    pub const fn extension(published: Option<RawJson>) -> Self {
        Self {
            way: Way::Carried(&EXTENSION),
            published,
            knows_peers: true,
        }
    }

    /// The routes of a cloud: packets follow the default route into the cloud's network, whose
    /// route tables forward them to their node.
    pub const fn cloud() -> Self {
        Self {
            way: Way::Carried(&CLOUD),
            published: None,
            knows_peers: true,
        }
    }
}

impl Backend for Unmanaged {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn published(&self, _family: Family, _end: Option<OwnEnd>) -> Option<RawJson> {
        self.published.clone()
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        self.way.clone()
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let entry = |PeerWay { peer, .. }: &PeerWay| routed_entry(node, peer, node.external);
        Desired {
            peers: peers.iter().filter_map(entry).collect(),
            ..Desired::default()
        }
    }

    fn node_config(&self, node: &Node) -> Option<FamilyConfig> {
        let own = Node {
            network: PodNetwork::of_subnet(node.subnet),
            ..*node
        };
        network_config(if self.knows_peers { node } else { &own })
    }

    fn carries_packets(&self) -> bool {
        false
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Ok(ProgramSet::Link)
    }
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::{entry_state::EntryState, peer::subnet_index_v4};

    use super::*;
    use flannel_backend_api::PeerValue;

    fn node() -> Node {
        Node {
            network: PodNetwork {
                prefix: "10.244.0.0/16".parse().expect("a network"),
                subnet_len: 24,
            },
            subnet: "10.244.1.0/24".parse().expect("a subnet"),
            source: "192.0.2.1".parse().expect("an address"),
            external: 2,
            tunnel: None,
            port_range: (32768, 60999),
        }
    }

    #[test]
    fn with_alloc_all_but_the_own_subnet_is_outside() {
        let config = |backend: Unmanaged| {
            backend
                .node_config(&node())
                .expect("a network of that size")
        };
        let (alloc, cloud) = (config(Unmanaged::alloc()), config(Unmanaged::cloud()));
        for (address, by_alloc, by_cloud) in [
            ([10, 244, 1, 7], Some(0), Some(1)),
            ([10, 244, 9, 7], None, Some(9)),
            ([192, 0, 2, 9], None, None),
        ] {
            let found = [&alloc, &cloud].map(|config| subnet_index_v4(config, address));
            assert_eq!(found, [by_alloc, by_cloud], "{address:?}");
        }
    }

    #[test]
    fn the_programs_know_each_peer_behind_the_external_interface_and_nothing_else_is_made() {
        let node = node();
        let peer = Peer {
            subnet: "10.244.9.0/24".parse().expect("a subnet"),
            public_ip: "198.51.100.9".parse().expect("an address"),
            end: None,
            key: "10.244.9.0-24".into(),
        };
        let value = PeerValue {
            flags: EntryState::DIRECT,
            vtep: peer.public_ip.into(),
            oif: 2,
            ..PeerValue::default()
        };
        for (backend, name) in [
            (Unmanaged::cloud(), "cloud"),
            (Unmanaged::extension(None), "extension"),
        ] {
            let way = backend.way(&node, &Underlay::new(None), &peer);
            assert_eq!(way.name(), name);
            let peers = [(9, value)].into();
            let desired = backend.desired(
                &node,
                &[PeerWay {
                    peer: peer.clone(),
                    way,
                }],
            );
            assert_eq!(
                desired,
                Desired {
                    peers,
                    ..Desired::default()
                }
            );
            assert_eq!(backend.programs(), Ok(ProgramSet::Link));
        }
    }
}
