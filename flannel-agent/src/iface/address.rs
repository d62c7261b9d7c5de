//! Which address of an interface peers are told. Pure.

use std::{
    cmp::Reverse,
    net::{IpAddr, Ipv4Addr},
};

use crate::family::Family;
use crate::netlink::Address;

/// The best usable address of a link. `None` when none is usable.
pub(super) fn choose(addresses: &[Address], ifindex: u32, family: Family) -> Option<IpAddr> {
    usable(addresses, ifindex, family).first().copied()
}

/// The usable addresses of a link, best first: global before link-local, then permanent before leased, then
/// lasting before temporary, then the kernel's order.
pub(super) fn usable(addresses: &[Address], ifindex: u32, family: Family) -> Vec<IpAddr> {
    let own = addresses.iter().filter(|address| address.key.ifindex == ifindex && is_usable(address, family));
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|address| {
        (is_link_local(address.key.addr), Reverse(address.is_permanent()), address.is_temporary())
    });
    own.into_iter().map(|address| address.key.addr).collect()
}

fn is_usable(address: &Address, family: Family) -> bool {
    let addr = address.key.addr;
    let unicast = !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast();
    Family::of(addr) == family
        && unicast
        && addr != Ipv4Addr::BROADCAST
        && !address.is_deprecated()
        && !address.is_duplicate()
}

/// Valid on one link alone.
pub(super) fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{AddressFlags, AddressKey, AddressScope};

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
            ("link-local at last", vec![address("fe80::1", lasting)], "fe80::1"),
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
    fn unusable_addresses_are_passed_over() {
        let deprecated = address("10.0.0.1", AddressFlags::Deprecated | AddressFlags::Permanent);
        for unusable in [deprecated, address("127.0.0.1", NONE), address("224.0.0.5", NONE), address("::1", NONE)] {
            assert_eq!(chosen(&[unusable], Family::V4), None, "{unusable:?}");
        }
        let elsewhere = Address { key: AddressKey { ifindex: 3, ..deprecated.key }, flags: NONE, ..deprecated };
        assert_eq!(chosen(&[elsewhere], Family::V4), None);
    }
}
