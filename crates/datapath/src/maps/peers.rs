//! Peers of both families as their maps have them, and how a subnet and its number belong together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_common::abi::{
    node::{FamilyConfig, NodeConfig},
    peer::{subnet_index_v4, subnet_index_v6},
};
use flannel_host::family::Family;
use ipnet::IpNet;

pub use crate::maps::pinned_peer::PinnedPeer;
use crate::{DatapathError, PinRoot, maps::PeerMap};

/// The valid entries of the pinned peer maps, IPv4 first. An agent older than IPv6 pinned one map
/// alone.
pub fn pinned_peers(pins: &PinRoot, config: &NodeConfig) -> Result<Vec<PinnedPeer>, DatapathError> {
    let mut peers = family_peers(&PeerMap::open(pins, Family::V4)?, Family::V4, config)?;
    match PeerMap::open(pins, Family::V6) {
        Ok(map) => peers.extend(family_peers(&map, Family::V6, config)?),
        Err(error) if error.is_absent() => {}
        Err(error) => return Err(error),
    }
    Ok(peers)
}

fn family_peers(
    map: &PeerMap,
    family: Family,
    config: &NodeConfig,
) -> Result<Vec<PinnedPeer>, DatapathError> {
    let config = family_config(config, family);
    let peer = |(index, entry)| PinnedPeer {
        index,
        subnet: subnet(family, config, index),
        entry,
    };
    map.entries().map(|found| found.map(peer)).collect()
}

/// The node's own data of one family.
pub const fn family_config(config: &NodeConfig, family: Family) -> &FamilyConfig {
    match family {
        Family::V4 => &config.v4,
        Family::V6 => &config.v6,
    }
}

/// The number of the subnet an address is in; none outside of the network, and while its family is
/// off.
pub fn subnet_index(config: &NodeConfig, address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => subnet_index_v4(&config.v4, address.octets()),
        IpAddr::V6(address) => subnet_index_v6(&config.v6, address.octets()),
    }
}

/// The subnet with this number.
pub fn subnet(family: Family, config: &FamilyConfig, index: u32) -> IpNet {
    let shift = config.subnet_shift;
    let base: IpAddr = match family {
        Family::V4 => {
            let network = u32::from_be_bytes(config.network.v4_bytes());
            Ipv4Addr::from_bits(network.wrapping_add(index.checked_shl(shift).unwrap_or_default()))
                .into()
        }
        Family::V6 => {
            let network = u128::from_be_bytes(config.network.0);
            let offset = u128::from(index).checked_shl(shift).unwrap_or_default();
            Ipv6Addr::from_bits(network.wrapping_add(offset)).into()
        }
    };
    let length = u32::from(family.bits()).saturating_sub(shift);
    u8::try_from(length)
        .ok()
        .and_then(|length| IpNet::new(base, length).ok())
        .unwrap_or_else(|| base.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(network: IpAddr, shift: u32) -> FamilyConfig {
        FamilyConfig {
            network: network.into(),
            subnet_shift: shift,
            subnet_count: 256,
            ..FamilyConfig::default()
        }
    }

    #[test]
    fn a_subnets_number_gives_back_its_prefix() {
        let (v4, v6) = (
            "10.244.0.0".parse().expect("an address"),
            "fd00:10:244::".parse().expect("an address"),
        );
        let config = NodeConfig {
            v4: config(v4, 8),
            v6: config(v6, 64),
            ..NodeConfig::default()
        };
        for (family, index, prefix, inside) in [
            (Family::V4, 7, "10.244.7.0/24", "10.244.7.9"),
            (Family::V6, 0xff, "fd00:10:244:ff::/64", "fd00:10:244:ff::9"),
        ] {
            assert_eq!(
                subnet(family, family_config(&config, family), index).to_string(),
                prefix
            );
            assert_eq!(
                subnet_index(&config, inside.parse().expect("an address")),
                Some(index)
            );
        }
        assert_eq!(
            subnet_index(&config, "10.245.0.1".parse().expect("an address")),
            None
        );
        assert_eq!(
            subnet_index(&NodeConfig::default(), v4),
            None,
            "a family that is off"
        );
    }
}
