//! Peers: a snapshot, then changes, and nothing about what does not concern leases.

use flannel_store::{LeaseSet, Precedence, StoreEvent};
use serde_json::json;

use crate::support::{Cluster, PATIENCE, attrs, config, follow, next};

#[tokio::test]
async fn a_snapshot_then_changes_and_heartbeats_go_no_further() {
    for cluster in Cluster::each("peers").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        cluster.add("bystander", Some("10.5.50.0/24"), &[]).await;
        cluster.add_peer(2).await;
        let mut events = follow(cluster.manager("own")).await;
        assert_eq!(
            next(&mut events).await,
            "=peer2",
            "ours is told apart by name"
        );
        cluster.add_peer(3).await;
        assert_eq!(next(&mut events).await, "+peer3");
        for heartbeat in ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"] {
            let condition =
                json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat });
            for node in ["peer2", "peer3", "own", "bystander"] {
                cluster
                    .edit(node, json!({ "status": { "conditions": [condition] } }))
                    .await;
            }
        }
        cluster.annotate("peer2", "unrelated", Some("x")).await;
        cluster
            .annotate("peer2", "public-ip", Some("192.0.2.22"))
            .await;
        assert_eq!(next(&mut events).await, "+peer2", "and not a word before");
        cluster
            .annotate("peer3", "kube-subnet-manager", Some("false"))
            .await;
        assert_eq!(next(&mut events).await, "-peer3");
        cluster
            .annotate("peer3", "kube-subnet-manager", Some("true"))
            .await;
        assert_eq!(next(&mut events).await, "+peer3");
        cluster.remove("bystander").await;
        cluster.remove("peer2").await;
        assert_eq!(next(&mut events).await, "-peer2");
    }
}

#[tokio::test]
async fn a_node_created_again_with_another_subnet_is_seen() {
    for cluster in Cluster::each("anew").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        cluster.add_peer(2).await;
        let mut events = follow(cluster.manager("own")).await;
        assert_eq!(next(&mut events).await, "=peer2");
        cluster.remove("peer2").await;
        let annotations = [("kube-subnet-manager", "true"), ("public-ip", "192.0.2.2")];
        cluster
            .add("peer2", Some("10.5.99.0/24"), &annotations)
            .await;
        assert_eq!(
            (next(&mut events).await, next(&mut events).await),
            ("-peer2".to_owned(), "+peer2".to_owned())
        );
    }
}

/// Nodes feed the same set of peers as leases in etcd do.
#[tokio::test]
async fn entries_become_peers() {
    for cluster in Cluster::each("set").await {
        cluster
            .add(
                "own",
                Some("10.5.1.0/24"),
                &[("public-ip-overwrite", "203.0.113.1")],
            )
            .await;
        cluster.add_peer(2).await;
        cluster
            .add(
                "odd",
                Some("10.5.3.0/24"),
                &[("kube-subnet-manager", "true"), ("backend-type", "vxlan")],
            )
            .await;
        let mut events = follow(cluster.manager("own")).await;
        let event = tokio::time::timeout(PATIENCE, events.recv())
            .await
            .expect("in time")
            .expect("a running manager");
        let mut set = LeaseSet::new(&config(), Precedence::FirstCreated, attrs(1));
        set.set_own_key("10.5.1.0-24".parse().expect("a key"));
        assert!(matches!(event, StoreEvent::InSync { .. }) && set.apply(event));
        let resolved = set.resolve();
        let peers: Vec<_> = resolved
            .peers
            .iter()
            .map(|peer| (peer.subnet.to_string(), peer.key.clone()))
            .collect();
        assert_eq!(
            peers,
            [("10.5.2.0/24".to_owned(), cluster.node_name("peer2").into())]
        );
        let reasons: Vec<_> = resolved.rejected.iter().map(ToString::to_string).collect();
        assert_eq!(
            reasons,
            [format!(
                "lease {:?} (IPv4): it has no public address",
                cluster.node_name("odd")
            )]
        );
    }
}
