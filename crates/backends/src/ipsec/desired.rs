//! The ipsec backend: per peer three policies that demand an ESP tunnel between the two nodes. It
//! has neither a device nor routes: packets to a peer follow the routes of the host, and the
//! policies encrypt them there. It supports only IPv4.
//!
//! The associations that the policies ask for are agreed on by a process, see [`crate::ipsec`].
//! Without one the kernel drops the packets (`xfrm_lookup_with_ifid()` in [net/xfrm/xfrm_policy.c,
//! Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/xfrm/xfrm_policy.c)): they never
//! leave in the clear. Policies equal stock flannel's.

use flannel_backend_api::{
    Backend, BackendError, CarriedExit, CarriedWay, Desired, EchoAddress, Node, PeerWay,
    ProgramSet, Way, require_own_address, underlay::Underlay,
};
use flannel_host::family::Family;
use flannel_iface::End;
use flannel_netlink::{PolicyDirection, TunnelPolicy, TunnelPolicyKey};
use flannel_store::Peer;
use ipnet::IpNet;

/// The way through the IPsec tunnel to a peer.
pub const WAY: CarriedWay = CarriedWay {
    name: "ipsec",
    exit: CarriedExit::Policies,
    echo: EchoAddress::End,
};

/// The bytes that ESP takes at most with the algorithms flannel names: an IPv4 header, SPI and
/// sequence number, initialisation vector, padding, trailer and authentication.
const OVERHEAD: u32 = 77;
/// The UDP header of `UDPEncap`.
const UDP_OVERHEAD: u32 = 8;
/// flannel's number of policies and their associations.
pub const REQID: u32 = 11;

/// The backend.
#[derive(Clone, Copy, Debug)]
pub struct Ipsec {
    /// Encrypted packets travel in UDP datagrams.
    pub udp_encap: bool,
}

impl Backend for Ipsec {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu.saturating_sub(OVERHEAD + if self.udp_encap { UDP_OVERHEAD } else { 0 })
    }

    fn accept(&self, end: &End) -> Result<(), BackendError> {
        require_own_address("ipsec", end)
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        Way::Carried(&WAY)
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let policies = peers
            .iter()
            .flat_map(|PeerWay { peer, .. }| policies(node, peer))
            .collect();
        Desired {
            policies,
            ..Desired::default()
        }
    }

    /// None of its routes do.
    fn carries_packets(&self) -> bool {
        false
    }

    fn encrypts_by_policies(&self) -> bool {
        true
    }

    fn has_work_for_programs(&self) -> bool {
        false
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Err("the programs do not encrypt")
    }
}

fn policies(node: &Node, peer: &Peer) -> [(TunnelPolicyKey, TunnelPolicy); 3] {
    let policy = |src, dst| TunnelPolicy {
        src,
        dst,
        reqid: REQID,
        priority: 0,
    };
    policy_keys(node.subnet, peer.subnet).map(|key| match key.direction {
        PolicyDirection::Out => (key, policy(node.source, peer.public_ip)),
        PolicyDirection::In | PolicyDirection::Forward => {
            (key, policy(peer.public_ip, node.source))
        }
    })
}

/// The policies between the subnet of this node and that of a peer.
pub fn policy_keys(own: IpNet, peer: IpNet) -> [TunnelPolicyKey; 3] {
    let from_peer = |direction| TunnelPolicyKey {
        direction,
        src: peer,
        dst: own,
    };
    let to_peer = TunnelPolicyKey {
        direction: PolicyDirection::Out,
        src: own,
        dst: peer,
    };
    [
        to_peer,
        from_peer(PolicyDirection::In),
        from_peer(PolicyDirection::Forward),
    ]
}

/// Returns true for a policy that some node of this network wants: flannel's number, and both
/// prefixes inside the network. Another program may use the same number.
pub fn is_ours(key: &TunnelPolicyKey, policy: &TunnelPolicy, network: IpNet) -> bool {
    policy.reqid == REQID && network.contains(&key.src) && network.contains(&key.dst)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use flannel_backend_api::PodNetwork;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn node() -> Node {
        Node {
            network: PodNetwork {
                prefix: net("10.5.0.0/16"),
                subnet_len: 24,
            },
            subnet: net("10.5.1.0/24"),
            source: ip("192.0.2.1"),
            external: 2,
            tunnel: None,
            port_range: (32768, 60999),
        }
    }

    fn row(
        direction: PolicyDirection,
        [src, dst]: [&str; 2],
        [from, to]: [&str; 2],
    ) -> (TunnelPolicyKey, TunnelPolicy) {
        let key = TunnelPolicyKey {
            direction,
            src: net(src),
            dst: net(dst),
        };
        let policy = TunnelPolicy {
            src: ip(from),
            dst: ip(to),
            reqid: 11,
            priority: 0,
        };
        (key, policy)
    }

    #[test]
    fn a_peer_has_flannels_three_policies() {
        let peer = Peer {
            subnet: net("10.5.9.0/24"),
            public_ip: ip("192.0.2.9"),
            end: None,
            key: "10.5.9.0-24".into(),
        };
        let desired = Ipsec { udp_encap: false }.desired(
            &node(),
            &[PeerWay {
                peer,
                way: Way::Carried(&WAY),
            }],
        );
        let (own, peers) = ("10.5.1.0/24", "10.5.9.0/24");
        let ends = ["192.0.2.9", "192.0.2.1"];
        let policies = [
            row(
                PolicyDirection::Out,
                [own, peers],
                ["192.0.2.1", "192.0.2.9"],
            ),
            row(PolicyDirection::In, [peers, own], ends),
            row(PolicyDirection::Forward, [peers, own], ends),
        ];
        assert!(
            policies
                .iter()
                .all(|(key, policy)| is_ours(key, policy, net("10.5.0.0/16")))
        );
        assert!(
            !is_ours(&policies[0].0, &policies[0].1, net("10.6.0.0/16")),
            "of another network"
        );
        let other = TunnelPolicy {
            reqid: 12,
            ..policies[0].1
        };
        assert!(
            !is_ours(&policies[0].0, &other, net("10.5.0.0/16")),
            "of another number"
        );
        assert_eq!(
            desired,
            Desired {
                policies: policies.into(),
                ..Desired::default()
            }
        );
    }

    #[test]
    fn the_mtu_is_flannels_and_a_nat_is_refused() {
        let mtu = |udp_encap| Ipsec { udp_encap }.mtu(Family::V4, 1500);
        assert_eq!((mtu(false), mtu(true)), (1423, 1415));
        let end = |public: &str| End {
            addr: ip("192.0.2.1"),
            public: ip(public),
            source: ip("192.0.2.1"),
        };
        assert_eq!(Ipsec { udp_encap: true }.accept(&end("192.0.2.1")), Ok(()));
        let refused = Ipsec { udp_encap: true }
            .accept(&end("203.0.113.7"))
            .expect_err("a NAT")
            .to_string();
        assert!(
            refused.starts_with("ipsec needs a node's own address"),
            "{refused}"
        );
    }
}
