//! The choice of the interface address that is published to peers. Pure.

use std::{
    cmp::Reverse,
    net::{IpAddr, Ipv4Addr},
};

use flannel_host::family::Family;
use flannel_netlink::Address;

/// The best usable address of a link. `None` when none is usable.
pub(super) fn choose(addresses: &[Address], ifindex: u32, family: Family) -> Option<IpAddr> {
    usable(addresses, ifindex, family).first().copied()
}

/// The usable addresses of a link, best first: global before link-local (IPv4), then permanent
/// before leased, then lasting before temporary, then the kernel's order. An IPv6 address of link
/// scope names no node to others and is never usable.
pub(super) fn usable(addresses: &[Address], ifindex: u32, family: Family) -> Vec<IpAddr> {
    let own = addresses.iter().filter(|address| address.key.ifindex == ifindex && is_usable(address, family));
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|address| (is_zeroconf(address.key.addr), Reverse(address.is_permanent()), address.is_temporary()));
    own.into_iter().map(|address| address.key.addr).collect()
}

fn is_usable(address: &Address, family: Family) -> bool {
    let addr = address.key.addr;
    let unicast = !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast();
    let one_node = unicast && addr != Ipv4Addr::BROADCAST && !is_link_scope(addr);
    Family::of(addr) == family && one_node && !address.is_deprecated() && !address.is_duplicate()
}

/// An IPv6 address that is valid on one link alone.
pub(super) fn is_link_scope(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// An IPv4 address that a host gave itself for want of another.
fn is_zeroconf(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(addr) if addr.is_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_netlink::{AddressFlags, AddressKey, AddressScope};

    const NONE: AddressFlags = AddressFlags::empty();

    fn address(text: &str, flags: AddressFlags) -> Address {
        let key = AddressKey { ifindex: 2, addr: text.parse().expect("an address"), prefix_len: 24 };
        Address { key, scope: AddressScope::Universe, flags }
    }

    fn chosen(addresses: &[Address], family: Family) -> Option<String> {
        choose(addresses, 2, family).map(|addr| addr.to_string())
    }

    #[test]
    fn the_order_is_reach_then_permanence_then_lifetime_then_the_kernel_s() {
        let lasting = AddressFlags::Permanent;
        let temporary = AddressFlags::Secondary;
        for (name, addresses, expected) in [
            ("global first", vec![address("fe80::1", lasting), address("2001:db8::1", NONE)], "2001:db8::1"),
            ("then permanent", vec![address("2001:db8::1", NONE), address("2001:db8::2", lasting)], "2001:db8::2"),
            ("then lasting", vec![address("2001:db8::1", temporary), address("2001:db8::2", NONE)], "2001:db8::2"),
            ("then the kernel's", vec![address("2001:db8::2", NONE), address("2001:db8::1", NONE)], "2001:db8::2"),
        ] {
            assert_eq!(chosen(&addresses, Family::V6).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn an_ipv4_secondary_address_is_not_temporary() {
        let both = AddressFlags::Secondary | AddressFlags::Permanent;
        let addresses = [address("10.0.0.2", both), address("10.0.0.1", AddressFlags::Permanent)];
        assert_eq!(chosen(&addresses, Family::V4).as_deref(), Some("10.0.0.2"));
    }

    #[test]
    fn an_address_of_link_scope_is_the_last_resort_of_ipv4_and_none_of_ipv6() {
        let own = [address("169.254.7.7", AddressFlags::Permanent), address("10.0.0.1", NONE)];
        assert_eq!(chosen(&own, Family::V4).as_deref(), Some("10.0.0.1"));
        assert_eq!(chosen(&own[..1], Family::V4).as_deref(), Some("169.254.7.7"));
        assert_eq!(chosen(&[address("fe80::1", AddressFlags::Permanent)], Family::V6), None);
    }

    #[test]
    fn unusable_addresses_are_passed_over() {
        let deprecated = address("10.0.0.1", AddressFlags::Deprecated | AddressFlags::Permanent);
        for unusable in [deprecated, address("127.0.0.1", NONE), address("224.0.0.5", NONE), address("::1", NONE)] {
            assert_eq!(chosen(&[unusable], Family::V4), None, "{unusable:?}");
        }
        assert_eq!(chosen(&[address("2001:db8::1", AddressFlags::Dadfailed)], Family::V6), None);
        let elsewhere = Address { key: AddressKey { ifindex: 3, ..deprecated.key }, flags: NONE, ..deprecated };
        assert_eq!(chosen(&[elsewhere], Family::V4), None);
    }
}
