//! The addresses at which a peer is asked. Pure.

use std::net::IpAddr;

use flannel_backend_api::{EchoAddress, PeerWay, Way};
use flannel_host::family::Family;
use flannel_store::Peer;
use ipnet::IpNet;

/// The addresses of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EchoTarget {
    /// The address that shows if packets of pods reach the peer.
    pub(super) address: IpAddr,
    /// The public address of a peer that commands reach. Nothing may have `address` there.
    pub(super) node: Option<IpAddr>,
}

impl EchoTarget {
    /// Returns the addresses of a peer; `None` if it is not reachable.
    ///
    /// Commands of the backend extension make routes to the peer's subnet, so requests go to an
    /// address in it: the first one, which plugins such as `bridge` and `ptp` give to the host.
    /// A host without pods may lack it, so its public address is asked, too. The routes of a cloud
    /// are made for forwarded packets, so only the public address is asked.
    pub(super) fn of(way: &PeerWay) -> Option<Self> {
        let PeerWay { peer, way } = way;
        let at = |address| {
            Some(Self {
                address,
                node: None,
            })
        };
        match way {
            Way::NotOnLink => None,
            Way::Direct(_) | Way::Tunnel(_) => at(address_of(peer)),
            Way::Carried(way) => match way.echo {
                EchoAddress::End => at(address_of(peer)),
                EchoAddress::Subnet => at(peer.subnet.network()),
                EchoAddress::GatewayAndHost => Some(Self {
                    address: gateway(peer.subnet),
                    node: Some(peer.public_ip),
                }),
            },
        }
    }

    /// The addresses to which requests go.
    pub(super) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        [Some(self.address), self.node].into_iter().flatten()
    }

    /// The family of its addresses.
    pub(super) fn family(self) -> Family {
        Family::of(self.address)
    }
}

fn address_of(peer: &Peer) -> IpAddr {
    if peer.has_tunnel() {
        peer.subnet.network()
    } else {
        peer.public_ip
    }
}

/// The address of a subnet that its host has, as the gateway of its pods.
pub fn gateway(subnet: IpNet) -> IpAddr {
    match subnet.network() {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() | 1).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() | 1).into()),
    }
}

#[cfg(test)]
mod tests {
    use flannel_backends::unmanaged;

    use super::*;

    fn target(way: Way) -> Option<EchoTarget> {
        let peer = Peer {
            subnet: "10.244.9.0/24".parse().expect("a subnet"),
            public_ip: "192.0.2.9".parse().expect("an address"),
            end: None,
            key: "10.244.9.0-24".into(),
        };
        EchoTarget::of(&PeerWay { peer, way })
    }

    #[test]
    fn a_peer_behind_commands_is_asked_in_its_subnet_and_at_its_public_address() {
        let asked = target(Way::Carried(&unmanaged::EXTENSION)).expect("a target");
        let expected: [IpAddr; 2] =
            ["10.244.9.1", "192.0.2.9"].map(|text| text.parse().expect("an address"));
        assert_eq!(asked.addresses().collect::<Vec<_>>(), expected);
        let asked = target(Way::Carried(&unmanaged::CLOUD)).expect("a target");
        assert_eq!(asked.addresses().collect::<Vec<_>>(), expected[1..]);
        assert_eq!(target(Way::NotOnLink), None);
        let v6 = gateway("2001:db8:9::/64".parse().expect("a subnet"));
        assert_eq!(v6, "2001:db8:9::1".parse::<IpAddr>().expect("an address"));
    }
}
