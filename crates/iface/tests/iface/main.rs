//! The external interface, chosen on a real host.

#[expect(
    dead_code,
    reason = "shared with the tests of flannel-netlink, which need more of it"
)]
#[path = "../../../../tests/support/netlink.rs"]
mod namespace;
#[path = "../../../../tests/support/not_run.rs"]
mod not_run;
#[expect(dead_code, reason = "shared with tests that read the events")]
#[path = "../../../../tests/support/namespace.rs"]
mod shared;

mod addresses;

use std::collections::BTreeMap;

use flannel_host::family::Family;
use flannel_iface::{End, Host, IfaceError, IfaceOptions, NamePattern, select};

use crate::namespace::{addr, in_namespace, ip};

#[test]
fn the_default_route_and_a_name_lead_to_the_underlay() {
    in_namespace(async |ns| {
        for (family, command, own) in [
            (Family::V4, "route add default via 10.9.0.254", "10.9.0.1"),
            (
                Family::V6,
                "-6 route add default via fd00:9::fe",
                "fd00:9::1",
            ),
        ] {
            let host = Host::read(&ns.netlink, &[family], &IfaceOptions::default(), &[])
                .await
                .expect("the host");
            let nothing_given = select(&IfaceOptions::default(), &[family], &host);
            assert!(
                matches!(nothing_given, Err(IfaceError::NoDefaultRoute { .. })),
                "{nothing_given:?}"
            );

            ip(command);
            let host = Host::read(&ns.netlink, &[family], &IfaceOptions::default(), &[])
                .await
                .expect("the host");
            let by_route =
                select(&IfaceOptions::default(), &[family], &host).expect("by the default route");
            assert_eq!(
                (by_route.name.as_str(), by_route.mtu, by_route.arphrd),
                ("eth0", 1500, 1)
            );
            let end = End {
                addr: addr(own),
                public: addr(own),
                source: addr(own),
            };
            assert_eq!(by_route.ends, BTreeMap::from([(family, end)]));
            let options = IfaceOptions {
                iface: vec!["eth0".into()],
                ..IfaceOptions::default()
            };
            assert_eq!(
                select(&options, &[family], &host).expect("by name"),
                by_route
            );
        }
    });
}

/// An interface with the addresses of stock flannel's own test. Not every kernel has the dummy
/// driver.
fn many_addresses() {
    ip("link add dummy0 type veth peer name dummy0-peer");
    ip("link set dummy0-peer up");
    ip("link set dummy0 up");
    for own in [
        "1.10.100.1",
        "192.168.200.128",
        "172.16.30.18",
        "172.16.31.200",
        "172.16.32.100",
    ] {
        ip(&format!("addr add {own}/24 dev dummy0"));
    }
}

#[test]
fn patterns_and_reach_lead_to_the_stock_results() {
    in_namespace(async |ns| {
        many_addresses();
        let pattern = |text: &str| IfaceOptions {
            patterns: vec![NamePattern::new(text).expect("a pattern")],
            ..IfaceOptions::default()
        };
        let reach = |target: &str| IfaceOptions {
            can_reach: Some(addr(target)),
            ..IfaceOptions::default()
        };
        for (options, name, own) in [
            (pattern(r"192\.168\.200\.\d+"), "dummy0", "192.168.200.128"),
            (pattern(r"dummy\d+"), "dummy0", "1.10.100.1"),
            (reach("172.16.32.254"), "dummy0", "172.16.32.100"),
            (reach("10.9.0.77"), "eth0", "10.9.0.1"),
            // An address of this host: the kernel routes it by the loopback.
            (reach("172.16.31.200"), "dummy0", "172.16.31.200"),
        ] {
            let host = Host::read(&ns.netlink, &[Family::V4], &options, &[])
                .await
                .expect("the host");
            let chosen = select(&options, &[Family::V4], &host).expect("an interface");
            assert_eq!(
                (chosen.name.as_str(), chosen.ends[&Family::V4].addr),
                (name, addr(own)),
                "{options:?}"
            );
        }
        ip("route add unreachable 203.0.113.0/24");
        for nowhere in ["198.51.100.1", "203.0.113.1"] {
            let host = Host::read(&ns.netlink, &[Family::V4], &reach(nowhere), &[])
                .await
                .expect("the host");
            assert_eq!(host.reach, None, "{nowhere}");
        }
    });
}
