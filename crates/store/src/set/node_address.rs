//! The addresses at which a node cannot be reached. Pure.
//!
//! Packets to the subnet of a lease, and no others, are sent to the address of that lease, so an
//! address of some other machine harms no other node. What is refused here is what cannot be a
//! node's, or what this host would not send to the underlay.
//!
//! A default gateway and the API server may be nodes (small clusters route by one, control planes
//! run pods), and no field that a node cannot forge says which; so their addresses are accepted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use ipnet::{IpNet, Ipv4Net};

/// `0.0.0.0/8`, [RFC 1122, section
/// 3.2.1.3](https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3): "this host on this network".
const THIS_NETWORK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8);
/// `240.0.0.0/4`, [RFC 1112, section 4](https://www.rfc-editor.org/rfc/rfc1112#section-4):
/// reserved.
const RESERVED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4);

/// Reasons an address cannot be a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Unspecified, loopback, multicast, broadcast, or IPv4 in IPv6.
    #[error("is not a unicast address that can be routed to")]
    NotUnicast,
    /// Of link scope.
    #[error("is valid on one link alone")]
    LinkLocal,
    /// In a prefix without host addresses.
    #[error("is in {0}, which is reserved")]
    Reserved(IpNet),
    /// This host has it.
    #[error("is an address of this host")]
    Ours,
    /// The first or last of a prefix on a link of this host.
    #[error("is the network or broadcast address of {0}, on a link of this host")]
    Edge(IpNet),
    /// In a pod network.
    #[error("is in the pod network ({0})")]
    Pods(IpNet),
}

impl AddressFault {
    /// Returns the fault that the address shows by itself, without knowledge of this host.
    pub fn of(address: IpAddr) -> Option<Self> {
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_odd = match address {
            IpAddr::V4(v4) => v4.is_broadcast(),
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
        };
        let reserved = |v4| {
            [THIS_NETWORK, RESERVED]
                .into_iter()
                .find(|prefix| prefix.contains(&v4))
        };
        match address {
            _ if is_odd
                || address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast() =>
            {
                Some(Self::NotUnicast)
            }
            _ if is_link_local => Some(Self::LinkLocal),
            IpAddr::V4(v4) => reserved(v4).map(|prefix| Self::Reserved(prefix.into())),
            IpAddr::V6(_) => None,
        }
    }
}

/// The addresses of this host, and those that no host on its links can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    own: BTreeSet<IpAddr>,
    edges: BTreeMap<IpAddr, IpNet>,
}

impl HostAddresses {
    /// Of these addresses, each with the prefix length of its link.
    pub fn new(addresses: impl IntoIterator<Item = IpNet>) -> Self {
        let mut host = Self::default();
        for address in addresses {
            host.own.insert(address.addr());
            let prefix = address.trunc();
            // A prefix of two addresses has two hosts: RFC 3021
            // <https://www.rfc-editor.org/rfc/rfc3021>, RFC 6164
            // <https://www.rfc-editor.org/rfc/rfc6164>.
            if address.prefix_len() + 1 >= address.max_prefix_len() {
                continue;
            }
            host.edges.insert(prefix.network(), prefix);
            if let IpNet::V4(v4) = prefix {
                host.edges.insert(v4.broadcast().into(), prefix);
            }
        }
        host
    }

    pub(super) fn fault(&self, address: IpAddr) -> Option<AddressFault> {
        if self.own.contains(&address) {
            return Some(AddressFault::Ours);
        }
        self.edges
            .get(&address)
            .map(|prefix| AddressFault::Edge(*prefix))
    }

    /// True if the two have different verdicts on an address.
    pub(super) fn differs_on(&self, other: &Self, address: IpAddr) -> bool {
        self.fault(address) != other.fault(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_itself(text: &str) -> Option<AddressFault> {
        AddressFault::of(text.parse().expect("an address"))
    }

    #[test]
    fn what_is_no_host_s_is_refused_in_both_families() {
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
        ] {
            assert_eq!(by_itself(text), Some(AddressFault::NotUnicast), "{text}");
        }
        for text in ["::", "::1", "ff02::1", "ff0e::1", "::ffff:192.0.2.1"] {
            assert_eq!(by_itself(text), Some(AddressFault::NotUnicast), "{text}");
        }
        for text in ["169.254.169.254", "169.254.0.1", "fe80::1", "febf:ffff::1"] {
            assert_eq!(by_itself(text), Some(AddressFault::LinkLocal), "{text}");
        }
        for text in ["0.1.2.3", "0.255.255.255", "240.0.0.1", "255.255.255.254"] {
            assert!(
                matches!(by_itself(text), Some(AddressFault::Reserved(_))),
                "{text}"
            );
        }
        for text in [
            "1.0.0.1",
            "10.0.0.1",
            "100.64.0.1",
            "169.253.0.1",
            "192.168.0.255",
            "198.18.0.1",
            "223.255.255.254",
        ] {
            assert_eq!(by_itself(text), None, "{text}");
        }
        for text in ["2001:db8::1", "fd00::1", "fec0::1", "64:ff9b::192.0.2.1"] {
            assert_eq!(by_itself(text), None, "{text}");
        }
    }

    #[test]
    fn what_this_host_has_and_what_no_host_on_its_links_can_have_is_refused() {
        let net = |text: &str| text.parse::<IpNet>().expect("an address and a length");
        let links = [
            "192.168.79.11/24",
            "10.0.0.1/31",
            "10.9.9.9/32",
            "2001:db8:1::11/64",
            "fd00::5/127",
            "fd00::9/128",
        ];
        let host = HostAddresses::new(links.map(net));
        let fault = |text: &str| host.fault(text.parse().expect("an address"));
        for own in [
            "192.168.79.11",
            "10.0.0.1",
            "10.9.9.9",
            "2001:db8:1::11",
            "fd00::5",
            "fd00::9",
        ] {
            assert_eq!(fault(own), Some(AddressFault::Ours), "{own}");
        }
        for (edge, prefix) in [
            ("192.168.79.0", "192.168.79.0/24"),
            ("192.168.79.255", "192.168.79.0/24"),
            ("2001:db8:1::", "2001:db8:1::/64"),
        ] {
            assert_eq!(fault(edge), Some(AddressFault::Edge(net(prefix))), "{edge}");
        }
        // Other nodes and the gateway, the other end of a link of two, and the last address of an
        // IPv6 link.
        for other in [
            "192.168.79.1",
            "192.168.79.12",
            "10.0.0.0",
            "10.9.9.8",
            "fd00::4",
            "2001:db8:1::1",
            "2001:db8:1:0:ffff:ffff:ffff:ffff",
        ] {
            assert_eq!(fault(other), None, "{other}");
        }
    }
}
