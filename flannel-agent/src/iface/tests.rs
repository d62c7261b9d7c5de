//! The selection against made-up hosts, the documented stock results among them.

use super::*;
use crate::netlink::{AddressFlags, AddressKey, AddressScope};

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.into(),
        mtu: 1500,
        max_mtu: None,
        mac: None,
        up: true,
        running: true,
        loopback: name == "lo",
        arphrd: Link::ETHER,
        kind: None,
        controller: None,
        lower: None,
        netns: None,
        vxlan: None,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn address(ifindex: u32, text: &str) -> Address {
    let key = AddressKey { ifindex, addr: ip(text), prefix_len: 24 };
    Address { key, scope: AddressScope::Universe, flags: AddressFlags::Permanent }
}

fn default_route(family: Family, oif: Option<u32>) -> (RouteKey, Route) {
    let gateway = if family == Family::V4 { "10.0.0.254" } else { "fe80::1" };
    (RouteKey::main(family.everything()), Route::via(ip(gateway), oif, 3))
}

fn host() -> Host {
    let dummy0 = ["1.10.100.1", "192.168.200.128", "172.16.30.18", "172.16.31.200", "172.16.32.100", "2001:db8::1"];
    let mut addresses = vec![address(1, "127.0.0.1"), address(1, "10.255.0.1"), address(2, "10.0.0.1")];
    addresses.extend(dummy0.map(|text| address(3, text)));
    Host {
        links: vec![link(1, "lo"), link(2, "eth0"), link(3, "dummy0"), link(4, "bare0")],
        addresses,
        routes: vec![default_route(Family::V4, Some(2))],
    }
}

fn options(iface: &[&str], public: Option<&str>) -> IfaceOptions {
    IfaceOptions { iface: iface.iter().map(ToString::to_string).collect(), public_ip: public.map(ip) }
}

#[test]
fn the_stock_results() {
    for (name, options, expected) in [
        ("nothing given", options(&[], None), ("eth0", "10.0.0.1", "10.0.0.1")),
        ("name", options(&["dummy0"], None), ("dummy0", "1.10.100.1", "1.10.100.1")),
        ("address", options(&["172.16.30.18"], None), ("dummy0", "172.16.30.18", "172.16.30.18")),
        ("public only", options(&[], Some("172.16.31.200")), ("dummy0", "172.16.31.200", "172.16.31.200")),
        ("both local", options(&["172.16.30.18"], Some("172.16.31.200")), ("dummy0", "172.16.30.18", "172.16.31.200")),
        ("public behind NAT", options(&["eth0"], Some("203.0.113.7")), ("eth0", "10.0.0.1", "203.0.113.7")),
        ("first that fits", options(&["bond0", "bare0", "dummy0"], None), ("dummy0", "1.10.100.1", "1.10.100.1")),
        ("address on lo", options(&["10.255.0.1"], None), ("lo", "10.255.0.1", "10.255.0.1")),
    ] {
        let chosen = select(&options, Family::V4, &host()).expect(name);
        let (iface, addr, public) = expected;
        assert_eq!((chosen.name.as_str(), chosen.addr, chosen.public), (iface, ip(addr), ip(public)), "{name}");
    }
}

#[test]
fn the_family_decides_what_is_looked_at() {
    let mut host = host();
    let chosen = select(&options(&["dummy0"], None), Family::V6, &host).expect("an IPv6 address");
    assert_eq!(chosen.addr, ip("2001:db8::1"));
    let missing = select(&options(&[], None), Family::V6, &host);
    assert!(matches!(missing, Err(IfaceError::NoDefaultRoute { family: Family::V6, .. })));
    host.routes.push(default_route(Family::V6, Some(3)));
    assert_eq!(select(&options(&[], None), Family::V6, &host).expect("a route").index, 3);
}

#[test]
fn the_error_lists_what_was_tried_and_what_there_is() {
    let error = select(&options(&["bond0", "10.0.0.9", "fd00::1", "bare0"], None), Family::V4, &host());
    let text = error.expect_err("nothing fits").to_string();
    let expected = "no --iface value fits:\n  \
                      bond0: no such interface\n  \
                      10.0.0.9: no interface has this address\n  \
                      fd00::1: not an IPv4 address\n  \
                      bare0: no usable IPv4 address\n\
                    pass --iface with the name or a local address of one of:\n  \
                      eth0 (up): 10.0.0.1\n  \
                      dummy0 (up): 1.10.100.1, 192.168.200.128, 172.16.30.18, 172.16.31.200, 172.16.32.100, \
                    2001:db8::1\n  \
                      bare0 (up): no address";
    assert_eq!(text, expected);
}

#[test]
fn a_public_address_alone_has_to_be_local() {
    let error = select(&options(&[], Some("203.0.113.7")), Family::V4, &host());
    assert!(matches!(error, Err(IfaceError::PublicNotLocal { .. })));
}

#[test]
fn a_public_address_has_to_be_of_the_family() {
    let error = select(&options(&["eth0"], Some("2001:db8::1")), Family::V4, &host());
    assert!(matches!(error, Err(IfaceError::PublicOfOtherFamily { family: Family::V4, .. })));
}

#[test]
fn a_default_route_without_one_interface_is_refused() {
    let host = Host { routes: vec![default_route(Family::V4, None)], ..host() };
    let error = select(&options(&[], None), Family::V4, &host);
    assert!(matches!(error, Err(IfaceError::AmbiguousDefaultRoute { .. })));
}

#[test]
fn an_mtu_of_zero_is_refused() {
    let mut host = host();
    host.links[1].mtu = 0;
    let error = select(&options(&[], None), Family::V4, &host);
    assert!(matches!(error, Err(IfaceError::Unusable { why: Rejection::NoMtu, .. })));
}
