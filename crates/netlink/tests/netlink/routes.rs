//! Routes and route lookups.

use std::fs;

use flannel_host::family::Family;
use flannel_netlink::{Route, RouteAnswer, RouteHop, RouteKey, RouteQuery, RouteType, protocol};
use ipnet::IpNet;

use crate::namespace::{Namespace, addr, in_namespace, ip, ip_json};

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

async fn read(ns: &Namespace, key: RouteKey) -> Vec<Route> {
    let routes = ns.netlink.routes(key.family()).await.expect("dump");
    routes
        .into_iter()
        .filter(|(other, _)| *other == key)
        .map(|(_, route)| route)
        .collect()
}

async fn lookup(ns: &Namespace, dst: &str) -> RouteAnswer {
    let dst = addr(dst);
    let src = Some(if dst.is_ipv4() {
        addr("10.9.0.1")
    } else {
        addr("fd00:9::1")
    });
    ns.netlink
        .route_get(RouteQuery {
            dst,
            src,
            dport: Some(8472),
        })
        .await
        .expect("a lookup")
}

/// The same route, made by `ip`, is the oracle: the two must be equal in `ip`'s eyes and in ours.
async fn as_ip_makes_it(ns: &Namespace, command: &str, key: RouteKey, route: &Route) {
    let show = format!(
        "{}route show {}",
        if key.family() == Family::V6 {
            "-6 "
        } else {
            ""
        },
        key.dst
    );
    ip(&command.replace(
        "replace",
        if key.family() == Family::V6 {
            "-6 route replace"
        } else {
            "route replace"
        },
    ));
    let stock = ip_json(&show);
    assert_eq!(
        read(ns, key).await,
        std::slice::from_ref(route),
        "read back: {command}"
    );
    ns.netlink.del_route(&key, route).await.expect("deleted");
    assert_eq!(ip_json(&show), Vec::<serde_json::Value>::new());
    ns.netlink.replace_route(&key, route).await.expect("made");
    assert_eq!(ip_json(&show), stock, "{command}");
    let again = ns.netlink.replace_route(&key, route).await;
    again.expect("replaced by itself");
    assert_eq!(read(ns, key).await.len(), 1);
}

#[test]
fn routes_have_the_stock_shape() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        let eth0 = ns.link("eth0").await.index;
        let (v4, v6) = (
            RouteKey::main(net("10.5.2.0/24")),
            RouteKey::main(net("fd00:5:2::/64")),
        );
        let tunnel = Route::onlink(addr("10.5.2.0"), dev, protocol::BOOT);
        as_ip_makes_it(
            &ns,
            "replace 10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink",
            v4,
            &tunnel,
        )
        .await;
        let tunnel = Route::onlink(addr("fd00:5:2::"), dev, protocol::BOOT);
        as_ip_makes_it(
            &ns,
            "replace fd00:5:2::/64 via fd00:5:2:: dev flannel.1 onlink",
            v6,
            &tunnel,
        )
        .await;
        let direct = Route::via(addr("10.9.0.2"), Some(eth0), protocol::FLANNEL);
        let v4 = RouteKey::main(net("10.5.3.0/24"));
        as_ip_makes_it(
            &ns,
            "replace 10.5.3.0/24 via 10.9.0.2 dev eth0 proto 191",
            v4,
            &direct,
        )
        .await;
        let direct = Route::via(addr("fd00:9::2"), Some(eth0), protocol::FLANNEL);
        let v6 = RouteKey::main(net("fd00:5:3::/64"));
        as_ip_makes_it(
            &ns,
            "replace fd00:5:3::/64 via fd00:9::2 dev eth0 proto 191",
            v6,
            &direct,
        )
        .await;
    });
}

/// Whatever leads the gateway's address elsewhere, and the gateway lies in the destination.
#[test]
fn a_tunnel_route_replaces_one_by_another_device() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        let (v4, v6) = (
            RouteKey::main(net("10.5.2.0/24")),
            RouteKey::main(net("fd00:5:2::/64")),
        );
        let tunnels = [
            (v4, Route::onlink(addr("10.5.2.0"), dev, protocol::BOOT)),
            (v6, Route::onlink(addr("fd00:5:2::"), dev, protocol::BOOT)),
        ];
        for others in [
            [
                "10.5.2.0/24 via 10.9.0.2 proto 191",
                "fd00:5:2::/64 via fd00:9::2 proto 191",
            ],
            ["10.5.2.0/24 dev eth0", "fd00:5:2::/64 dev eth0"],
            ["blackhole 10.5.2.0/24", "blackhole fd00:5:2::/64"],
            ["10.5.0.0/16 via 10.9.0.2", "fd00:5::/32 via fd00:9::2"],
        ] {
            for (other, (key, tunnel)) in others.iter().zip(&tunnels) {
                ip(&format!("route replace {other}"));
                ns.netlink
                    .replace_route(key, tunnel)
                    .await
                    .unwrap_or_else(|error| panic!("over {other}: {error}"));
                assert_eq!(
                    read(&ns, *key).await,
                    std::slice::from_ref(tunnel),
                    "over {other}"
                );
            }
        }
        assert_eq!(
            read(&ns, RouteKey::main(net("fd00:5:2::/128"))).await,
            [],
            "the gateway's own route"
        );
    });
}

/// The kernel's own route to the prefix of an address counts again when ours is gone. A request to
/// replace would have taken it for good.
#[test]
fn a_route_before_a_connected_one_leaves_it_there() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        ip("link add cni0 type bridge");
        ip("link set cni0 up");
        ip("addr add 10.5.2.1/24 dev cni0");
        let (key, ours) = (
            RouteKey::main(net("10.5.2.0/24")),
            Route::onlink(addr("10.5.2.0"), dev, protocol::BOOT),
        );
        let connected = read(&ns, key).await;
        assert!(
            connected.len() == 1 && connected[0].is_connected(),
            "{connected:?}"
        );
        for _ in 0..2 {
            ns.netlink
                .prepend_route(&key, &ours)
                .await
                .expect("made, or there already");
            assert_eq!(read(&ns, key).await, [ours.clone(), connected[0].clone()]);
        }
        assert!(!ours.is_connected());
        ns.netlink.del_route(&key, &ours).await.expect("deleted");
        assert_eq!(read(&ns, key).await, connected);
        ns.netlink
            .replace_route(&key, &ours)
            .await
            .expect("replaced");
        assert_eq!(
            read(&ns, key).await,
            [ours],
            "what a request to replace does"
        );
    });
}

#[test]
fn a_direct_route_needs_no_device() {
    in_namespace(async |ns| {
        let eth0 = ns.link("eth0").await.index;
        let key = RouteKey::main(net("10.5.3.0/24"));
        let route = Route::via(addr("10.9.0.2"), None, protocol::BOOT);
        ns.netlink.replace_route(&key, &route).await.expect("made");
        assert_eq!(
            read(&ns, key).await,
            [Route {
                oif: Some(eth0),
                ..route
            }]
        );
    });
}

#[test]
fn replace_overwrites_whatever_was_there() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        let eth0 = ns.link("eth0").await.index;
        for (dst, tunnel, direct) in [
            ("10.5.2.0/24", "10.5.2.0", "10.9.0.2"),
            ("fd00:5:2::/64", "fd00:5:2::", "fd00:9::2"),
        ] {
            let key = RouteKey::main(net(dst));
            let tunnel = Route::onlink(addr(tunnel), dev, protocol::BOOT);
            let direct = Route::via(addr(direct), Some(eth0), protocol::FLANNEL);
            ns.netlink.replace_route(&key, &tunnel).await.expect("made");
            ns.netlink
                .replace_route(&key, &direct)
                .await
                .expect("replaced");
            assert_eq!(read(&ns, key).await, [direct]);
        }
    });
}

#[test]
fn deleting_takes_exactly_the_route_named() {
    in_namespace(async |ns| {
        let eth0 = ns.link("eth0").await.index;
        for (dst, mine, theirs) in [
            ("10.5.2.0/24", "10.9.0.2", "10.9.0.3"),
            ("fd00:5:2::/64", "fd00:9::2", "fd00:9::3"),
        ] {
            let key = RouteKey::main(net(dst));
            let mine = Route::via(addr(mine), Some(eth0), protocol::FLANNEL);
            let theirs = Route::via(addr(theirs), Some(eth0), protocol::FLANNEL);
            let missing = ns
                .netlink
                .del_route(&key, &mine)
                .await
                .expect_err("not there");
            assert!(missing.is_gone(), "{missing:?}");
            ns.netlink.replace_route(&key, &theirs).await.expect("made");
            for other in [
                &mine,
                &Route {
                    protocol: protocol::BOOT,
                    ..theirs.clone()
                },
            ] {
                let missing = ns
                    .netlink
                    .del_route(&key, other)
                    .await
                    .expect_err("another route");
                assert!(missing.is_gone(), "{missing:?}");
            }
            assert_eq!(read(&ns, key).await, [theirs]);
        }
    });
}

#[test]
fn refusals_carry_the_kernel_s_remark() {
    in_namespace(async |ns| {
        let key = RouteKey::main(net("10.5.2.0/24"));
        let route = Route::via(addr("10.77.0.1"), None, protocol::BOOT);
        let error = ns
            .netlink
            .replace_route(&key, &route)
            .await
            .expect_err("the gateway is not attached");
        assert!(!error.is_gone() && !error.is_exists(), "{error:?}");
        let expected =
            "cannot replace route 10.5.2.0/24 table 254 metric 0: Nexthop has invalid gateway";
        assert_eq!(error.to_string(), expected);
    });
}

#[test]
fn an_empty_table_is_empty() {
    in_namespace(async |ns| {
        ip("link del eth0");
        assert_eq!(
            ns.netlink.routes(Family::V4).await.expect("no table yet"),
            []
        );
    });
}

#[test]
fn foreign_routes_are_read_as_what_they_are() {
    in_namespace(async |ns| {
        ip("route add 10.6.0.0/24 nexthop via 10.9.0.2 nexthop via 10.9.0.3");
        ip("route add unreachable 10.7.0.0/24");
        ip("route add 10.8.0.0/24 via 10.9.0.2 tos 0x10");
        ip("route add default via 10.9.0.254 src 10.9.0.1 metric 100");
        ip("route add 10.8.1.0/24 via inet6 fe80::7 dev eth0");
        ip("route add 10.8.2.0/24 via 10.9.0.2 table 100");
        let several = &read(&ns, RouteKey::main(net("10.6.0.0/24"))).await[0];
        assert!(several.is_multipath() && several.oif.is_none());
        assert_eq!(
            read(&ns, RouteKey::main(net("10.7.0.0/24"))).await[0].kind,
            RouteType::Unreachable
        );
        assert_eq!(read(&ns, RouteKey::main(net("10.8.0.0/24"))).await, []);
        let default = &read(
            &ns,
            RouteKey {
                metric: 100,
                ..RouteKey::main(net("0.0.0.0/0"))
            },
        )
        .await[0];
        assert_eq!(
            (default.gateway, default.src),
            (Some(addr("10.9.0.254")), Some(addr("10.9.0.1")))
        );
        assert_eq!(
            read(&ns, RouteKey::main(net("10.8.1.0/24"))).await[0].gateway,
            Some(addr("fe80::7"))
        );
        assert_eq!(read(&ns, RouteKey::main(net("10.8.2.0/24"))).await, []);
    });
}

#[test]
fn lookups_answer_with_the_table_s_entry() {
    in_namespace(async |ns| {
        let eth0 = Some(ns.link("eth0").await.index);
        for (attached, routed, gateway, family) in [
            ("10.9.0.2", "10.30.0.1", "10.9.0.254", ""),
            ("fd00:9::2", "fd00:30::1", "fd00:9::254", "-6 "),
        ] {
            let answer = lookup(&ns, attached).await;
            assert_eq!(
                (answer.kind, answer.oif, answer.gateway),
                (RouteType::Unicast, eth0, None)
            );
            assert_eq!(
                (answer.mtu, answer.is_multipath(), answer.lwtunnel),
                (None, false, false)
            );

            ip(&format!(
                "{family}route add {routed} via {gateway} mtu 1400"
            ));
            let answer = lookup(&ns, routed).await;
            assert_eq!(
                (answer.oif, answer.gateway, answer.mtu),
                (eth0, Some(addr(gateway)), Some(1400))
            );
        }
    });
}

#[test]
fn lookups_show_several_next_hops_and_nexthop_objects() {
    in_namespace(async |ns| {
        ip("route add 10.30.0.0/24 nexthop via 10.9.0.2 nexthop via 10.9.0.3");
        ip("-6 route add fd00:30::/64 nexthop via fd00:9::2 nexthop via fd00:9::3");
        let oif = ns.link("eth0").await.index;
        let ways = [
            ("10.30.0.1", ["10.9.0.2", "10.9.0.3"]),
            ("fd00:30::1", ["fd00:9::2", "fd00:9::3"]),
        ];
        for (dst, hops) in ways {
            let mut answer = lookup(&ns, dst).await;
            // IPv6 begins with the one its hash chose.
            answer.hops.sort_by_key(|hop| hop.gateway);
            let hop = |gateway| RouteHop {
                oif,
                gateway: Some(addr(gateway)),
            };
            assert_eq!(answer.hops, hops.map(hop), "{answer:?}");
            assert!(
                answer.oif.is_none() && answer.gateway.is_none(),
                "{answer:?}"
            );
        }
        ip("nexthop add id 7 via 10.9.0.2 dev eth0");
        ip("nexthop add id 8 via 10.9.0.3 dev eth0");
        ip("nexthop add id 9 group 7/8");
        ip("route add 10.31.0.0/24 nhid 7");
        ip("route add 10.32.0.0/24 nhid 9");
        let single = lookup(&ns, "10.31.0.1").await;
        assert_eq!((single.nexthop, single.is_multipath()), (Some(7), false));
        assert_eq!(single.gateway, Some(addr("10.9.0.2")));
        let group = lookup(&ns, "10.32.0.1").await;
        assert_eq!((group.nexthop, group.hops.len()), (Some(9), 2));

        // Without the compatibility mode the kernel names the object only.
        fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").expect("this namespace's sysctl");
        for (dst, id) in [("10.31.0.1", 7), ("10.32.0.1", 9)] {
            let answer = lookup(&ns, dst).await;
            assert_eq!(
                (answer.nexthop, answer.oif, answer.gateway),
                (Some(id), None, None),
                "{dst}"
            );
        }
    });
}

#[test]
fn lookups_show_routes_that_encapsulate() {
    in_namespace(async |ns| {
        ip("route add 10.34.0.0/24 encap ip id 7 dst 10.9.0.2 via 10.9.0.2 dev eth0");
        ip(
            "route add 10.35.0.0/24 nexthop encap ip id 7 dst 10.9.0.2 via 10.9.0.2 dev eth0 \
             nexthop via 10.9.0.3",
        );
        assert!(lookup(&ns, "10.34.0.1").await.lwtunnel);
        assert!(lookup(&ns, "10.35.0.1").await.lwtunnel);
    });
}

#[test]
fn lookups_say_why_there_is_no_way() {
    in_namespace(async |ns| {
        for (family, prefix) in [("", "10.3"), ("-6 ", "fd00:3")] {
            let (zero, tail) = if family.is_empty() {
                (".0.0/24", ".0.1")
            } else {
                ("::/64", "::1")
            };
            for (n, kind, expected) in [
                (1, "unreachable", RouteType::Unreachable),
                (2, "prohibit", RouteType::Prohibit),
                (3, "blackhole", RouteType::BlackHole),
            ] {
                ip(&format!("{family}route add {kind} {prefix}{n}{zero}"));
                assert_eq!(
                    lookup(&ns, &format!("{prefix}{n}{tail}")).await.kind,
                    expected,
                    "{family}{kind}"
                );
            }
        }
        assert_eq!(
            lookup(&ns, "203.0.113.1").await.kind,
            RouteType::Unreachable
        );
        assert_eq!(
            lookup(&ns, "2001:db8::1").await.kind,
            RouteType::Unreachable
        );
        assert_eq!(lookup(&ns, "10.9.0.1").await.kind, RouteType::Local);
        assert_eq!(lookup(&ns, "fd00:9::1").await.kind, RouteType::Local);
    });
}

#[test]
fn lookups_show_a_gateway_of_the_other_family_and_a_preferred_source() {
    in_namespace(async |ns| {
        ip("route add 10.33.0.0/24 via inet6 fe80::7 dev eth0 src 10.9.0.1");
        let answer = lookup(&ns, "10.33.0.1").await;
        assert_eq!(answer.gateway, Some(addr("fe80::7")));
        assert!(answer.gateway_of_other_family(addr("10.33.0.1")));
        assert_eq!(answer.src, Some(addr("10.9.0.1")));
    });
}

#[test]
fn lookups_follow_rules_on_what_they_ask_for() {
    in_namespace(async |ns| {
        ip("route add 10.9.0.0/24 via 10.9.0.77 table 100");
        ip("rule add pref 90 ipproto udp dport 8472 lookup 100");
        assert_eq!(
            lookup(&ns, "10.9.0.2").await.gateway,
            Some(addr("10.9.0.77"))
        );
        let query = RouteQuery {
            dst: addr("10.9.0.2"),
            src: None,
            dport: Some(4789),
        };
        assert_eq!(
            ns.netlink.route_get(query).await.expect("a lookup").gateway,
            None
        );
    });
}

#[test]
fn the_entry_that_forwards_a_packet_is_the_default_route_or_another_one() {
    in_namespace(async |ns| {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a sysctl");
        ip("link add pods type veth peer name pod");
        ip("addr add 10.33.1.1/24 dev pods");
        ip("link set pods up");
        ip("link set pod up");
        let pods = ns.link("pods").await.index;
        let entry = async |dst: &str| {
            let found = ns
                .netlink
                .forwarding_entry(addr(dst), addr("10.33.1.2"), pods)
                .await;
            found.expect("a lookup")
        };
        assert_eq!(
            entry("10.33.9.1").await.answer.kind,
            RouteType::Unreachable,
            "no route"
        );
        ip("route add default via 10.9.0.77");
        let found = entry("10.33.9.1").await;
        assert!(
            found.is_default() && found.answer.gateway == Some(addr("10.9.0.77")),
            "{found:?}"
        );
        assert!(
            ns.netlink
                .entry_from_here(addr("10.33.9.1"))
                .await
                .expect("a lookup")
                .is_default()
        );

        // The default route of another table is for the packets that a rule sends there.
        ip("route add default via 10.9.0.78 table 100");
        ip("rule add pref 90 iif pods to 10.33.0.0/16 lookup 100");
        let found = entry("10.33.9.1").await;
        assert!(
            !found.is_default() && (found.prefix_len, found.table) == (0, 100),
            "{found:?}"
        );
        assert!(
            ns.netlink
                .entry_from_here(addr("10.33.9.1"))
                .await
                .expect("a lookup")
                .is_default()
        );

        ip("rule del pref 90");
        ip("route add 10.33.9.0/24 via 10.9.0.79");
        let found = entry("10.33.9.1").await;
        assert!(!found.is_default() && found.prefix_len == 24, "{found:?}");
        let own = ns
            .netlink
            .entry_from_here(addr("10.33.1.2"))
            .await
            .expect("a lookup");
        assert_eq!((own.prefix_len, own.answer.oif), (24, Some(pods)));
    });
}
