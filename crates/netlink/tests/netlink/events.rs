//! The event stream: each kind arrives, noise does not.

use std::{
    io::{BufWriter, Write as _},
    net::Ipv4Addr,
    time::Duration,
};

use flannel_common::packet::addr::Mac;
use flannel_netlink::{
    FdbKey, KernelEvent, NeighbourKey, Netlink, Nexthop, NexthopId, Route, RouteKey, protocol,
};
use ipnet::IpNet;
use tokio::time::timeout;

use crate::namespace::{Namespace, addr, in_namespace, ip};

const PEER: Mac = Mac([0x02, 0, 0, 0, 0, 2]);

/// The events up to and including the first that `is_last` accepts.
pub(crate) async fn until(
    ns: &mut Namespace,
    is_last: impl Fn(&KernelEvent) -> bool,
) -> Vec<KernelEvent> {
    let mut seen = Vec::new();
    loop {
        let next = timeout(Duration::from_secs(10), ns.events.next()).await;
        let event = next
            .unwrap_or_else(|_| panic!("only these events came: {seen:#?}"))
            .expect("the stream is open");
        let last = is_last(&event);
        seen.push(event);
        if last {
            return seen;
        }
    }
}

#[test]
fn links_and_addresses_are_announced() {
    in_namespace(async |mut ns| {
        let index = ns.flannel_1().await;
        until(
            &mut ns,
            |event| matches!(event, KernelEvent::Link(link) if link.index == index && link.up),
        )
        .await;
        ip("addr add 10.5.1.0/32 dev flannel.1");
        let own = addr("10.5.1.0");
        until(
            &mut ns,
            |event| matches!(event, KernelEvent::Address(a) if a.key.addr == own),
        )
        .await;
        ip("addr del 10.5.1.0/32 dev flannel.1");
        until(
            &mut ns,
            |event| matches!(event, KernelEvent::AddressGone(a) if a.key.addr == own),
        )
        .await;
        ip("link del flannel.1");
        let gone = KernelEvent::LinkGone {
            index,
            name: "flannel.1".into(),
        };
        until(&mut ns, |event| *event == gone).await;
    });
}

#[test]
fn a_port_that_leaves_its_bridge_is_not_a_link_that_is_gone() {
    in_namespace(async |mut ns| {
        ip("link add br0 type bridge");
        ip("link set eth0 master br0");
        ip("link set eth0 nomaster");
        ip("link add last0 type bridge");
        let seen = until(
            &mut ns,
            |event| matches!(event, KernelEvent::Link(link) if link.name == "last0"),
        )
        .await;
        assert!(
            !seen
                .iter()
                .any(|event| matches!(event, KernelEvent::LinkGone { .. })),
            "{seen:#?}"
        );
    });
}

#[test]
fn routes_are_announced_with_what_they_are_now() {
    in_namespace(async |mut ns| {
        let dev = ns.flannel_1().await;
        let other = somebody_else();
        for (dst, gateway) in [("10.5.2.0/24", "10.5.2.0"), ("fd00:5:2::/64", "fd00:5:2::")] {
            let key = RouteKey::main(dst.parse().expect("a prefix"));
            let route = Route::onlink(addr(gateway), dev, protocol::BOOT);
            other.replace_route(&key, &route).await.expect("made");
            let there = KernelEvent::Route {
                key,
                route: Some(route.clone()),
            };
            until(&mut ns, |event| *event == there).await;
            other.del_route(&key, &route).await.expect("deleted");
            let gone = KernelEvent::Route { key, route: None };
            until(&mut ns, |event| *event == gone).await;
        }
    });
}

#[test]
fn permanent_entries_are_announced_and_dynamic_ones_are_not() {
    in_namespace(async |mut ns| {
        let ifindex = ns.flannel_1().await;
        ip("neigh add 10.9.0.7 lladdr 02:00:00:00:00:07 nud reachable dev eth0");
        ip("neigh change 10.9.0.7 lladdr 02:00:00:00:00:08 nud stale dev eth0");
        let other = somebody_else();
        for text in ["10.5.2.0", "fd00:5:2::"] {
            let key = NeighbourKey {
                ifindex,
                addr: addr(text),
            };
            other.replace_neighbour(key, PEER).await.expect("added");
            other.del_neighbour(key).await.expect("deleted");
            let seen = until(&mut ns, |event| {
                *event == KernelEvent::Neighbour { key, mac: None }
            })
            .await;
            let there = KernelEvent::Neighbour {
                key,
                mac: Some(PEER),
            };
            assert!(seen.contains(&there), "{seen:#?}");
            let of_eth0 = |event: &KernelEvent| {
                matches!(
                    event,
                    KernelEvent::Neighbour { key, .. } if key.ifindex != ifindex,
                )
            };
            assert!(!seen.iter().any(of_eth0), "{seen:#?}");
        }
    });
}

#[test]
fn what_we_do_to_routes_and_neighbours_ourselves_is_not_announced() {
    in_namespace(async |mut ns| {
        let dev = ns.flannel_1().await;
        let other = somebody_else();
        let route = |subnet: &str| {
            let dst: IpNet = subnet.parse().expect("a prefix");
            (
                RouteKey::main(dst),
                Route::onlink(dst.addr(), dev, protocol::BOOT),
            )
        };
        let ((ours, our_route), (theirs, their_route)) =
            (route("10.5.2.0/24"), route("10.5.3.0/24"));
        let neighbour = NeighbourKey {
            ifindex: dev,
            addr: ours.dst.addr(),
        };
        ns.netlink
            .replace_neighbour(neighbour, PEER)
            .await
            .expect("added");
        ns.netlink
            .replace_route(&ours, &our_route)
            .await
            .expect("made");
        other
            .replace_route(&theirs, &their_route)
            .await
            .expect("made");
        let there = KernelEvent::Route {
            key: theirs,
            route: Some(their_route),
        };
        let seen = until(&mut ns, |event| *event == there).await;
        let is_ours = |event: &KernelEvent| match event {
            KernelEvent::Route { key, .. } => *key == ours,
            KernelEvent::Neighbour { key, .. } => *key == neighbour,
            _ => false,
        };
        assert!(!seen.iter().any(is_ours), "{seen:#?}");
    });
}

/// Returns a handle with separate sockets, which the kernel treats as another process.
fn somebody_else() -> Netlink {
    Netlink::connect().expect("netlink sockets").0
}

#[test]
fn fdb_entries_are_announced() {
    in_namespace(async |mut ns| {
        let ifindex = ns.flannel_1().await;
        let key = FdbKey { ifindex, mac: PEER };
        for dst in ["10.9.0.2", "10.9.0.3"] {
            ns.netlink
                .replace_fdb(key, addr(dst))
                .await
                .expect("replaced");
            let there = KernelEvent::Fdb {
                key,
                dst: Some(addr(dst)),
            };
            until(&mut ns, |event| *event == there).await;
        }
        ns.netlink.del_fdb(key).await.expect("deleted");
        until(&mut ns, |event| {
            *event == KernelEvent::Fdb { key, dst: None }
        })
        .await;
    });
}

#[test]
fn rules_and_policies_are_announced() {
    in_namespace(async |mut ns| {
        for family in ["", "-6 "] {
            ip(&format!("{family}rule add pref 100 fwmark 1 lookup 100"));
            until(&mut ns, |event| *event == KernelEvent::Rules).await;
            ip(&format!("{family}rule del pref 100"));
            until(&mut ns, |event| *event == KernelEvent::Rules).await;
        }
        let policy = "src 10.9.0.1/32 dst 10.9.0.2/32 dir out";
        for command in [
            format!("add {policy}"),
            format!("del {policy}"),
            "setdefault out block".into(),
        ] {
            ip(&format!("xfrm policy {command}"));
            until(&mut ns, |event| *event == KernelEvent::XfrmPolicy).await;
        }
    });
}

#[test]
fn nexthop_objects_are_announced_with_what_they_are() {
    in_namespace(async |mut ns| {
        let oif = Some(ns.link("eth0").await.index);
        let id = NexthopId(7);
        let gateway = Some(addr("10.9.0.2"));
        let nexthop = Nexthop {
            gateway,
            oif,
            onlink: false,
            protocol: protocol::FLANNEL,
            special: false,
        };
        ip("nexthop add id 7 via 10.9.0.2 dev eth0 proto 191");
        until(&mut ns, |event| {
            *event == KernelEvent::Nexthop { id, nexthop }
        })
        .await;
        ip("nexthop add id 8 group 7");
        let is_group = |event: &KernelEvent| match event {
            KernelEvent::Nexthop { id, nexthop } => *id == NexthopId(8) && nexthop.special,
            _ => false,
        };
        until(&mut ns, is_group).await;
        ip("nexthop del id 7");
        until(&mut ns, |event| {
            *event == KernelEvent::NexthopGone { id, nexthop }
        })
        .await;
    });
}

#[test]
fn lost_events_are_announced() {
    in_namespace(async |mut ns| {
        // The batch runs without a reader: on this runtime the reading task only runs while the
        // test waits.
        let batch = tempfile::NamedTempFile::new().expect("a file");
        let mut batch = BufWriter::new(batch);
        for n in 0..60_000 {
            let dst = Ipv4Addr::from(0x0a80_0000 + n);
            writeln!(batch, "route add {dst} via 10.9.0.2").expect("written");
        }
        batch.flush().expect("written");
        ip(&format!("-batch {}", batch.get_ref().path().display()));
        until(&mut ns, |event| *event == KernelEvent::Overflow).await;
        ip("rule add pref 100 fwmark 1 lookup 100");
        until(&mut ns, |event| *event == KernelEvent::Rules).await;
    });
}

#[test]
fn the_stream_ends_with_its_consumer() {
    in_namespace(async |ns| {
        drop(ns.events);
        ip("link add br0 type bridge");
        assert!(
            ns.netlink
                .link_by_name("br0")
                .await
                .expect("the verbs go on")
                .is_some()
        );
    });
}
