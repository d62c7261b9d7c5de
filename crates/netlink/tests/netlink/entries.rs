//! Neighbours and FDB entries.

use flannel_common::packet::addr::Mac;
use flannel_netlink::{FdbKey, NeighbourKey};

use crate::namespace::{addr, bridge, in_namespace, ip, ip_json};

const PEER: Mac = Mac([0x02, 0, 0, 0, 0, 2]);
const OTHER: Mac = Mac([0x02, 0, 0, 0, 0, 3]);

#[test]
fn neighbours_have_the_stock_shape() {
    in_namespace(async |ns| {
        let ifindex = ns.flannel_1().await;
        for text in ["10.5.2.0", "fd00:5:2::"] {
            let key = NeighbourKey {
                ifindex,
                addr: addr(text),
            };
            ns.netlink
                .replace_neighbour(key, OTHER)
                .await
                .expect("added");
            ns.netlink
                .replace_neighbour(key, PEER)
                .await
                .expect("replaced");
            let shown = ip_json(&format!("neigh show {text} dev flannel.1"));
            assert_eq!(shown.len(), 1);
            assert_eq!(shown[0]["lladdr"], PEER.to_string());
            assert_eq!(shown[0]["state"], serde_json::json!(["PERMANENT"]));
            assert_eq!(
                ns.netlink.neighbours(Some(ifindex)).await.expect("dump"),
                [(key, PEER)]
            );

            ns.netlink.del_neighbour(key).await.expect("deleted");
            assert_eq!(
                ns.netlink.neighbours(Some(ifindex)).await.expect("dump"),
                []
            );
            let again = ns.netlink.del_neighbour(key).await.expect_err("gone");
            assert!(again.is_gone(), "{again:?}");
        }
    });
}

#[test]
fn only_permanent_neighbours_are_listed() {
    in_namespace(async |ns| {
        let eth0 = ns.link("eth0").await.index;
        ip("neigh add 10.9.0.7 lladdr 02:00:00:00:00:07 nud reachable dev eth0");
        ip("neigh add 10.9.0.8 lladdr 02:00:00:00:00:08 nud permanent dev eth0");
        let expected = [(
            NeighbourKey {
                ifindex: eth0,
                addr: addr("10.9.0.8"),
            },
            Mac([2, 0, 0, 0, 0, 8]),
        )];
        assert_eq!(ns.netlink.neighbours(None).await.expect("dump"), expected);
        assert_eq!(
            ns.netlink.neighbours(Some(eth0 + 100)).await.expect("dump"),
            []
        );
    });
}

#[test]
fn fdb_entries_have_the_stock_shape() {
    in_namespace(async |ns| {
        for (local, first, second) in [
            ("10.9.0.1", "10.9.0.2", "10.9.0.3"),
            ("fd00:9::1", "fd00:9::2", "fd00:9::3"),
        ] {
            let spec = ns.vxlan(local).await;
            let ifindex = ns.link(&spec.name).await.index;
            let key = FdbKey { ifindex, mac: PEER };
            ns.netlink
                .replace_fdb(key, addr(first))
                .await
                .expect("added");
            ns.netlink
                .replace_fdb(key, addr(second))
                .await
                .expect("replaced");
            let shown = bridge(&format!("fdb show dev {}", spec.name));
            assert_eq!(shown.trim(), format!("{PEER} dst {second} self permanent"));
            assert_eq!(
                ns.netlink.fdb(ifindex).await.expect("dump"),
                [(key, addr(second))]
            );

            ns.netlink.del_fdb(key).await.expect("deleted");
            assert_eq!(ns.netlink.fdb(ifindex).await.expect("dump"), []);
            let again = ns.netlink.del_fdb(key).await.expect_err("gone");
            assert!(again.is_gone(), "{again:?}");
        }
    });
}

#[test]
fn the_fdb_of_another_device_is_not_listed() {
    in_namespace(async |ns| {
        let ifindex = ns.flannel_1().await;
        ip("link add vxlan9 type vxlan id 9 dstport 4789 dev eth0");
        bridge("fdb add 02:00:00:00:00:09 dst 10.9.0.9 dev vxlan9 self permanent");
        bridge("fdb add 02:00:00:00:00:0a dst 10.9.0.9 dev flannel.1 self dynamic");
        assert_eq!(ns.netlink.fdb(ifindex).await.expect("dump"), []);
    });
}

#[test]
fn an_entry_on_a_missing_device_is_gone() {
    in_namespace(async |ns| {
        let key = NeighbourKey {
            ifindex: 4000,
            addr: addr("10.5.2.0"),
        };
        let error = ns
            .netlink
            .replace_neighbour(key, PEER)
            .await
            .expect_err("no device");
        assert!(error.is_gone(), "{error:?}");
        let error = ns
            .netlink
            .del_fdb(FdbKey {
                ifindex: 4000,
                mac: PEER,
            })
            .await
            .expect_err("no device");
        assert!(error.is_gone(), "{error:?}");
    });
}

#[test]
fn many_requests_and_dumps_may_be_in_flight() {
    in_namespace(async |ns| {
        const PEERS: u32 = 5000;
        let ifindex = ns.flannel_1().await;
        let key = |n: u32| NeighbourKey {
            ifindex,
            addr: std::net::Ipv4Addr::from(0x0a05_0000 + n).into(),
        };
        let writes = (0..PEERS).map(|n| ns.netlink.replace_neighbour(key(n), PEER));
        let reads = (0..20).map(|_| ns.netlink.neighbours(Some(ifindex)));
        let (writes, reads) = tokio::join!(
            futures::future::join_all(writes),
            futures::future::join_all(reads)
        );
        assert!(writes.iter().all(Result::is_ok));
        // A dump during writes may be reported as interrupted, but must not fail otherwise.
        let kept_changing = |error: &flannel_netlink::NetlinkError| {
            matches!(error.fault, flannel_netlink::Fault::Interrupted { .. })
        };
        assert!(
            reads
                .iter()
                .all(|read| read.as_ref().err().is_none_or(kept_changing)),
            "{reads:?}"
        );
        assert_eq!(
            ns.netlink
                .neighbours(Some(ifindex))
                .await
                .expect("dump")
                .len(),
            PEERS as usize
        );
    });
}

#[test]
fn a_dump_nobody_waits_for_does_not_block_the_next() {
    in_namespace(async |ns| {
        let ifindex = ns.flannel_1().await;
        for _ in 0..10 {
            let abandoned = ns.netlink.neighbours(None);
            let at_once = std::future::ready(());
            tokio::select! { biased; _ = abandoned => {}, () = at_once => {} }
            ns.netlink.neighbours(Some(ifindex)).await.expect("dump");
        }
    });
}
