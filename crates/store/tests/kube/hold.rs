//! Our own Node while we run.

use flannel_store::{StoreCounts, SubnetManager as _};
use serde_json::json;

use crate::support::{Cluster, attrs, follow, next, publish};

#[tokio::test]
async fn annotations_others_changed_are_written_again() {
    for cluster in Cluster::each("rewrite").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let mut events = follow(cluster.manager("own")).await;
        assert_eq!(next(&mut events).await, "=");
        let ip = cluster.annotation("public-ip");
        let says = |wanted: &'static str| {
            let ip = ip.clone();
            move |node: &serde_json::Value| {
                (node["metadata"]["annotations"][&ip] == wanted).then_some(())
            }
        };
        cluster
            .annotate("own", "public-ip", Some("192.0.2.99"))
            .await;
        cluster.eventually("own", says("192.0.2.1")).await;
        cluster.annotate("own", "public-ip", None).await;
        cluster.eventually("own", says("192.0.2.1")).await;
        cluster
            .annotate("own", "public-ip-overwrite", Some("203.0.113.1"))
            .await;
        cluster.eventually("own", says("203.0.113.1")).await;
        // The lease was held all along.
        cluster.add_peer(2).await;
        assert_eq!(next(&mut events).await, "+peer2");
    }
}

#[tokio::test]
async fn what_we_publish_once_more_is_written_at_once() {
    for cluster in Cluster::each("written").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let (mut manager, counts) = (cluster.manager("own"), StoreCounts::default());
        manager.count_with(counts.clone());
        let (sender, mut events) = publish(manager).await;
        assert_eq!(next(&mut events).await, "=");
        let ip = cluster.annotation("public-ip");
        for n in [7, 8] {
            sender.send(attrs(n)).expect("a running manager");
            let wanted = format!("192.0.2.{n}");
            cluster
                .eventually("own", |node| {
                    (node["metadata"]["annotations"][&ip] == wanted).then_some(())
                })
                .await;
        }
        // The lease was held all along.
        cluster.add_peer(2).await;
        assert_eq!(next(&mut events).await, "+peer2");
        // Connections from a former address get no answer: the watch is opened again, from where it
        // was.
        assert!(
            counts.watches.get() > 1 && counts.listings.get() == 1,
            "{counts:?}"
        );
    }
}

#[tokio::test]
async fn a_node_that_is_gone_is_a_lost_lease_until_it_is_back() {
    for cluster in Cluster::each("gone").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let (mut manager, counts) = (cluster.manager("own"), StoreCounts::default());
        manager.count_with(counts.clone());
        let mut events = follow(manager).await;
        assert_eq!(next(&mut events).await, "=");
        cluster.remove("own").await;
        assert_eq!(
            next(&mut events).await,
            "lost 10.5.1.0-24: the Node was deleted"
        );
        cluster.add("own", Some("10.5.7.0/24"), &[]).await;
        assert_eq!(next(&mut events).await, "own 10.5.7.0-24");
        assert_eq!(
            cluster.annotated("own", "public-ip").await.as_deref(),
            Some("192.0.2.1"),
            "published first"
        );
        assert_eq!(counts.losses.get(), 1);
        let begun =
            [&counts.renewals, &counts.listings, &counts.watches].map(|count| count.get() > 0);
        assert_eq!(begun, [true; 3], "{counts:?}");
    }
}

/// Real servers refuse to change a subnet in place; other stores behind the same API do not.
#[tokio::test]
async fn a_changed_subnet_is_followed() {
    let cluster = Cluster::double("renumbered").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=");
    let cidr = |cidr: &str| json!({ "spec": { "podCIDR": cidr, "podCIDRs": [cidr] } });
    cluster.edit("own", cidr("10.5.2.0/24")).await;
    assert_eq!(
        next(&mut events).await,
        "lost 10.5.1.0-24: the Node's subnet is 10.5.2.0-24 now"
    );
    assert_eq!(next(&mut events).await, "own 10.5.2.0-24");
    cluster.edit("own", cidr("10.6.0.0/24")).await;
    let lost = next(&mut events).await;
    assert!(
        lost.starts_with("lost 10.5.2.0-24: ") && lost.contains("10.6.0.0/24"),
        "outside of the network: {lost}"
    );
    cluster.edit("own", cidr("10.5.3.0/24")).await;
    assert_eq!(next(&mut events).await, "own 10.5.3.0-24");
}
