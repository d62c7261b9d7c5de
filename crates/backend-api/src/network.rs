//! A pod network without regard to its family: subnets as numbers.

use std::net::IpAddr;

use flannel_common::abi::maps::PEERS_MAX;
use flannel_host::family::Family;
use flannel_store::config::{FamilyConfig, Prefix};
use ipnet::IpNet;

/// The pod network of one family, and the length of a node's subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// The whole network, host bits cleared.
    pub prefix: IpNet,
    /// The prefix length of a node's subnet; at least the network's.
    pub subnet_len: u8,
}

impl<P: Prefix> From<FamilyConfig<P>> for PodNetwork {
    fn from(config: FamilyConfig<P>) -> Self {
        Self {
            prefix: config.network.into(),
            subnet_len: config.subnet_len,
        }
    }
}

impl PodNetwork {
    /// The family.
    pub fn family(&self) -> Family {
        Family::of(self.prefix.addr())
    }

    /// Returns the network of a node that knows only its own subnet.
    pub fn of_subnet(subnet: IpNet) -> Self {
        Self {
            prefix: subnet,
            subnet_len: subnet.prefix_len(),
        }
    }

    /// Returns the same network, cut into subnets of this length by an external allocator. A length
    /// below the network's is raised to the network's.
    #[must_use]
    pub fn cut_into(self, subnet_len: u8) -> Self {
        Self {
            subnet_len: subnet_len.max(self.prefix.prefix_len()),
            ..self
        }
    }

    /// Returns the number of subnets; `u64::MAX` if there are more.
    pub fn subnet_count(&self) -> u64 {
        1_u64
            .checked_shl((self.subnet_len - self.prefix.prefix_len()).into())
            .unwrap_or(u64::MAX)
    }

    /// Returns true if the programs have a map of its subnets. Only the kernel path serves a larger
    /// network.
    pub fn has_peer_map(&self) -> bool {
        self.subnet_count() <= PEERS_MAX.into()
    }

    /// Bits of an address behind those of a subnet.
    pub fn host_bits(&self) -> u32 {
        u32::from(self.family().bits() - self.subnet_len)
    }

    /// The number of a subnet; none for one of another size, or elsewhere, or in a network without
    /// a map.
    pub fn index_of(&self, subnet: IpNet) -> Option<u32> {
        if !self.has_peer_map()
            || subnet.prefix_len() != self.subnet_len
            || !self.prefix.contains(&subnet)
        {
            return None;
        }
        let offset = bits(subnet.network()) - bits(self.prefix.network());
        u32::try_from(offset.checked_shr(self.host_bits()).unwrap_or(0)).ok()
    }
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(prefix: &str, subnet_len: u8) -> PodNetwork {
        PodNetwork {
            prefix: prefix.parse().expect("a network"),
            subnet_len,
        }
    }

    #[test]
    fn subnets_are_numbered_from_the_networks_first_address() {
        for (network, subnet, expected) in [
            (network("10.244.0.0/16", 24), "10.244.9.0/24", Some(9)),
            (network("10.0.0.0/8", 24), "10.255.255.0/24", Some(65535)),
            (network("10.244.0.0/16", 24), "10.244.8.0/23", None),
            (network("10.244.0.0/16", 24), "10.244.9.0/25", None),
            (network("10.244.0.0/16", 24), "10.245.0.0/24", None),
            (network("10.244.0.0/16", 24), "fd00::/24", None),
            (
                network("fd00:10:244::/48", 64),
                "fd00:10:244:a::/64",
                Some(10),
            ),
            (network("fd00:10::/32", 112), "fd00:10:1::/112", None),
            (network("::/0", 17), "8000::/17", Some(1 << 16)),
            (network("::/0", 128), "::1/128", None),
        ] {
            let subnet = subnet.parse().expect("a subnet");
            assert_eq!(
                network.index_of(subnet),
                expected,
                "{subnet} in {network:?}"
            );
        }
    }

    #[test]
    fn networks_of_more_subnets_than_can_be_counted_are_counted_as_that() {
        assert_eq!(network("10.244.0.0/16", 24).subnet_count(), 256);
        assert_eq!(network("fd00::/48", 64).subnet_count(), 65536);
        assert_eq!(network("fd00::/16", 126).subnet_count(), u64::MAX);
        assert!(
            network("10.0.0.0/8", 25).has_peer_map() && !network("10.0.0.0/8", 26).has_peer_map()
        );
        assert_eq!(network("10.244.0.0/16", 24).cut_into(8).subnet_count(), 1);
    }
}
