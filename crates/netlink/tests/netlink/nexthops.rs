//! Nexthop objects, and routes by them.

use flannel_host::family::Family;
use flannel_netlink::{Nexthop, NexthopId, Route, RouteKey, protocol};
use serde_json::Value;

use crate::namespace::{Namespace, addr, in_namespace, ip, ip_json};

const ID: NexthopId = NexthopId(0x0a05_0200);

fn onlink(gateway: &str, oif: u32) -> Nexthop {
    Nexthop {
        gateway: Some(addr(gateway)),
        oif: Some(oif),
        onlink: true,
        protocol: protocol::FLANNEL,
        special: false,
    }
}

async fn all(ns: &Namespace) -> Vec<(NexthopId, Nexthop)> {
    ns.netlink
        .nexthops()
        .await
        .expect("dump")
        .expect("this kernel has nexthop objects")
}

#[test]
fn objects_are_as_ip_makes_them() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        for gateway in ["10.5.2.0", "fd00:5:2::"] {
            let nexthop = onlink(gateway, dev);
            ip(&format!(
                "nexthop add id {} via {gateway} dev flannel.1 onlink proto 191",
                ID.0
            ));
            let stock = ip_json("nexthop show");
            assert_eq!(all(&ns).await, [(ID, nexthop)]);
            assert_eq!(ns.netlink.nexthop(ID).await.expect("there"), nexthop);
            ns.netlink.del_nexthop(ID).await.expect("deleted");
            assert_eq!(ip_json("nexthop show"), Vec::<Value>::new());
            ns.netlink.add_nexthop(ID, &nexthop).await.expect("made");
            assert_eq!(ip_json("nexthop show"), stock);
            ns.netlink
                .replace_nexthop(ID, &nexthop)
                .await
                .expect("replaced by itself");
            assert_eq!(all(&ns).await, [(ID, nexthop)]);
            ns.netlink.del_nexthop(ID).await.expect("deleted");
            assert!(
                ns.netlink
                    .del_nexthop(ID)
                    .await
                    .expect_err("gone")
                    .is_gone()
            );
            assert!(ns.netlink.nexthop(ID).await.expect_err("gone").is_gone());
        }
    });
}

#[test]
fn a_number_that_is_taken_is_reported() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        ip(&format!("nexthop add id {} blackhole", ID.0));
        let error = ns
            .netlink
            .add_nexthop(ID, &onlink("10.5.2.0", dev))
            .await
            .expect_err("taken");
        assert!(error.is_exists(), "{error:?}");
        assert!(ns.netlink.nexthop(ID).await.expect("theirs").special);
    });
}

#[test]
fn groups_and_others_are_read_as_special() {
    in_namespace(async |ns| {
        ip("nexthop add id 7 via 10.9.0.2 dev eth0");
        ip("nexthop add id 8 group 7");
        ip("nexthop add id 9 blackhole");
        ip("nexthop add id 10 via 10.9.0.2 fdb");
        let special: Vec<_> = all(&ns)
            .await
            .into_iter()
            .map(|(id, nexthop)| (id.0, nexthop.special))
            .collect();
        assert_eq!(special, [(7, false), (8, true), (9, true), (10, true)]);
    });
}

/// Changes a route between a gateway and a nexthop object, in both directions: the key is the same,
/// and there is one route throughout.
#[test]
fn a_route_changes_to_an_object_and_back_in_place() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        let key = RouteKey::main("10.5.2.0/24".parse().expect("a prefix"));
        let plain = Route::onlink(addr("10.5.2.0"), dev, protocol::BOOT);
        let by_object = Route {
            nexthop: Some(ID.0),
            ..plain.clone()
        };
        ns.netlink
            .add_nexthop(ID, &onlink("10.5.2.0", dev))
            .await
            .expect("made");
        for route in [&plain, &by_object, &plain, &by_object] {
            ns.netlink
                .replace_route(&key, route)
                .await
                .expect("replaced");
            let routes = ns.netlink.routes(Family::V4).await.expect("dump");
            assert_eq!(
                routes.iter().find(|(other, _)| *other == key),
                Some(&(key, route.clone()))
            );
            assert_eq!(ip_json("route show 10.5.2.0/24").len(), 1);
        }
        ns.netlink
            .del_route(&key, &by_object)
            .await
            .expect("deleted");
        assert_eq!(ip_json("route show 10.5.2.0/24").len(), 0);
    });
}

#[test]
fn objects_and_their_routes_go_with_the_device() {
    in_namespace(async |ns| {
        let dev = ns.flannel_1().await;
        let key = RouteKey::main("10.5.2.0/24".parse().expect("a prefix"));
        let route = Route {
            nexthop: Some(ID.0),
            ..Route::onlink(addr("10.5.2.0"), dev, protocol::BOOT)
        };
        for end in ["link set flannel.1 down", "link del flannel.1"] {
            ns.netlink.set_up(dev).await.expect("up");
            ns.netlink
                .add_nexthop(ID, &onlink("10.5.2.0", dev))
                .await
                .expect("made");
            ns.netlink.replace_route(&key, &route).await.expect("made");
            ip(end);
            assert_eq!(all(&ns).await, []);
            assert!(
                ns.netlink
                    .routes(Family::V4)
                    .await
                    .expect("dump")
                    .iter()
                    .all(|(other, _)| *other != key)
            );
        }
    });
}
