//! Getting a lease.

use std::collections::BTreeSet;

use flannel_host::clock::BootTime;
use flannel_store::{AcquireError, LeaseRequest, SubnetManager as _};

use crate::support::{Cluster, DAY, attrs, config, key, request};

#[tokio::test]
async fn a_lease_is_written_as_flannel_writes_it() {
    let Some(cluster) = Cluster::shared("written").await else {
        return;
    };
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let kv = cluster.get(own.key).await.expect("the key");
    let expected = r#"{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}}"#;
    assert_eq!(kv.value_str().expect("text"), expected);
    let left = own.expires_at.expect("an expiry").since(BootTime::now());
    assert!(left <= DAY && left > DAY * 9 / 10, "{left:?}");
    let answer = cluster
        .client
        .clone()
        .lease_time_to_live(kv.lease(), None)
        .await
        .expect("a lifetime");
    assert_eq!(answer.granted_ttl(), 86_400);
    let v4 = own.key.v4.expect("IPv4");
    assert!(request(1).config.ipv4.expect("IPv4").allows(v4), "{v4}");
}

#[tokio::test]
async fn the_lease_with_our_address_is_reused_with_new_attributes() {
    let Some(cluster) = Cluster::shared("reused").await else {
        return;
    };
    let first = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let before = cluster.get(first.key).await.expect("the key");
    let mut changed = request(1);
    changed.attrs.backend_data = attrs(9).backend_data;
    let second = cluster.manager().acquire(&changed).await.expect("a lease");
    assert_eq!(second.key, first.key);
    let after = cluster.get(first.key).await.expect("the key");
    assert_ne!(after.lease(), before.lease());
    assert!(
        after
            .value_str()
            .expect("text")
            .contains("02:00:00:00:00:09")
    );
}

#[tokio::test]
async fn the_previous_subnet_is_asked_for_unless_it_is_taken() {
    let Some(cluster) = Cluster::shared("previous").await else {
        return;
    };
    let with_previous = |n| LeaseRequest {
        previous: Some(key("10.5.77.0-24")),
        ..request(n)
    };
    let own = cluster
        .manager()
        .acquire(&with_previous(1))
        .await
        .expect("a lease");
    assert_eq!(own.key, key("10.5.77.0-24"));
    let other = cluster
        .manager()
        .acquire(&with_previous(2))
        .await
        .expect("a lease");
    assert_ne!(other.key, own.key);
}

#[tokio::test]
async fn a_lease_that_does_not_suit_any_more_is_replaced() {
    let Some(cluster) = Cluster::shared("unsuitable").await else {
        return;
    };
    cluster.put("10.9.0.0-24", &attrs(1).to_json()).await;
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    assert_ne!(own.key, key("10.9.0.0-24"));
    assert!(cluster.get("10.9.0.0-24").await.is_none());
}

#[tokio::test]
async fn a_reservation_is_used_and_stays_one() {
    let Some(cluster) = Cluster::shared("reserved").await else {
        return;
    };
    cluster
        .put("10.5.42.0-24", r#"{"PublicIP":"192.0.2.1"}"#)
        .await;
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    assert_eq!((own.key, own.expires_at), (key("10.5.42.0-24"), None));
    let kv = cluster.get(own.key).await.expect("the key");
    assert_eq!(
        (kv.lease(), kv.value_str().expect("text")),
        (0, attrs(1).to_json().as_str())
    );
}

#[tokio::test]
async fn nodes_that_race_get_different_subnets_until_none_is_left() {
    let Some(cluster) = Cluster::shared("race").await else {
        return;
    };
    let text = r#"{"Network":"10.5.0.0/16","SubnetMin":"10.5.1.0","SubnetMax":"10.5.6.0","Backend":{"Type":"vxlan"}}"#;
    let racers: Vec<_> = (1..=8)
        .map(|n| {
            let (mut manager, request) = (
                cluster.manager(),
                LeaseRequest {
                    config: config(text),
                    ..request(n)
                },
            );
            tokio::spawn(async move { manager.acquire(&request).await })
        })
        .collect();
    let (mut won, mut lost) = (BTreeSet::new(), Vec::new());
    for racer in racers {
        match racer.await.expect("no panic") {
            Ok(own) => assert!(won.insert(own.key), "{} was leased twice", own.key),
            Err(error) => lost.push(error),
        }
    }
    assert_eq!((won.len(), lost.len()), (6, 2));
    for error in lost {
        assert!(matches!(error, AcquireError::OutOfSubnets(_)), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("out of subnets: every /24 from 10.5.1.0 to 10.5.6.0"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_read_still_blocks_its_subnet() {
    let Some(cluster) = Cluster::shared("blocked").await else {
        return;
    };
    cluster.put("nonsense", "{}").await;
    cluster.put("10.5.0.0-23", "{").await;
    let text = r#"{"Network":"10.5.0.0/16","SubnetMin":"10.5.1.0","SubnetMax":"10.5.2.0","Backend":{"Type":"vxlan"}}"#;
    let own = cluster
        .manager()
        .acquire(&LeaseRequest {
            config: config(text),
            ..request(1)
        })
        .await
        .expect("a lease");
    assert_eq!(own.key, key("10.5.2.0-24"));
}
