//! Keeping a lease.

use std::time::Duration;

use flannel_store::{
    LostCause, OwnLease,
    etcd::{EtcdManager, EtcdOptions},
};
use tokio::sync::{mpsc, watch};

use crate::support::{
    BRISK, Cluster, attrs, follow, key, publish, request, until_in_sync, until_lost, until_own,
};

#[tokio::test]
async fn renewal_keeps_the_key_and_moves_it_to_a_new_lease() {
    let Some(cluster) = Cluster::shared("renewed").await else {
        return;
    };
    let short = EtcdOptions {
        lease_ttl: Duration::from_secs(4),
        renew_margin: Duration::from_secs(3),
        ..cluster.options()
    };
    let (own, mut events) = follow(EtcdManager::new(&short, BRISK), request(1)).await;
    let mut leases = vec![cluster.get(own).await.expect("the key").lease()];
    // Five terms: longer than any one etcd lease lives.
    for _ in 0..5 {
        assert_eq!(until_own(&mut events).await.key, own);
        let kv = cluster.get(own).await.expect("the key");
        assert!(!leases.contains(&kv.lease()));
        assert_eq!(kv.value_str().expect("text"), attrs(1).to_json());
        leases.push(kv.lease());
    }
}

#[tokio::test]
async fn a_deleted_lease_is_acquired_again() {
    let Some(cluster) = Cluster::shared("deleted").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    for _ in 0..2 {
        cluster.delete(own).await;
        assert_eq!(until_lost(&mut events).await, LostCause::Deleted);
        assert_eq!(until_own(&mut events).await.key, own);
        let kv = cluster.get(own).await.expect("the key");
        assert!(kv.lease() != 0 && kv.value_str().expect("text") == attrs(1).to_json());
    }
}

#[tokio::test]
async fn a_lease_taken_over_is_left_to_its_new_owner() {
    let Some(cluster) = Cluster::shared("taken").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster.put(&own.to_string(), &attrs(2).to_json()).await;
    assert_eq!(
        until_lost(&mut events).await,
        LostCause::TakenOver {
            by: attrs(2).node_address()
        }
    );
    assert_ne!(until_own(&mut events).await.key, own);
    assert_eq!(
        cluster
            .get(own)
            .await
            .expect("the key")
            .value_str()
            .expect("text"),
        attrs(2).to_json()
    );
}

#[tokio::test]
async fn an_operator_can_turn_a_lease_into_a_reservation() {
    let Some(cluster) = Cluster::shared("turned").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster.put(&own.to_string(), &attrs(1).to_json()).await;
    assert_eq!(
        until_own(&mut events).await,
        OwnLease {
            key: own,
            expires_at: None
        }
    );
    assert_eq!(cluster.get(own).await.expect("the key").lease(), 0);
}

#[tokio::test]
async fn attributes_changed_by_others_are_written_again() {
    let Some(cluster) = Cluster::shared("overwritten").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster
        .put(
            &own.to_string(),
            r#"{"PublicIP":"192.0.2.1","BackendType":"vxlan"}"#,
        )
        .await;
    // Once for what was seen, once for what was written.
    until_own(&mut events).await;
    until_own(&mut events).await;
    let kv = cluster.get(own).await.expect("the key");
    assert_eq!(
        (kv.lease(), kv.value_str().expect("text")),
        (0, attrs(1).to_json().as_str())
    );
}

#[tokio::test]
async fn a_manager_that_holds_nothing_acquires_by_itself() {
    use flannel_store::{LeaseRequest, SubnetManager as _};
    let Some(cluster) = Cluster::shared("by_itself").await else {
        return;
    };
    let (sender, mut events) = mpsc::channel(64);
    let request = LeaseRequest {
        previous: Some(key("10.5.9.0-24")),
        ..request(1)
    };
    let (_attrs, published) = watch::channel(request.attrs.clone());
    tokio::spawn(cluster.manager().run(request, published, sender));
    assert_eq!(until_own(&mut events).await.key, key("10.5.9.0-24"));
}

#[tokio::test]
async fn changed_attributes_are_published_at_once_under_the_same_key() {
    let Some(cluster) = Cluster::shared("republished").await else {
        return;
    };
    let (own, mut events, publish) = publish(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    for n in [2, 3] {
        publish.send_replace(attrs(n));
        assert_eq!(until_own(&mut events).await.key, own);
        let kv = cluster.get(own).await.expect("the key");
        assert!(kv.lease() != 0 && kv.value_str().expect("text") == attrs(n).to_json());
    }
    // A lease with our former attributes belongs to another node from now on.
    cluster.put(&own.to_string(), &attrs(1).to_json()).await;
    assert_eq!(
        until_lost(&mut events).await,
        LostCause::TakenOver {
            by: attrs(1).node_address()
        }
    );
}

#[tokio::test]
async fn a_reservation_stays_one_when_its_attributes_change() {
    let Some(cluster) = Cluster::shared("reserved_again").await else {
        return;
    };
    cluster.put("10.5.42.0-24", &attrs(1).to_json()).await;
    let (own, mut events, publish) = publish(cluster.manager(), request(1)).await;
    publish.send_replace(attrs(2));
    assert_eq!(
        until_own(&mut events).await,
        OwnLease {
            key: own,
            expires_at: None
        }
    );
    let kv = cluster.get(own).await.expect("the key");
    assert_eq!(
        (kv.lease(), kv.value_str().expect("text")),
        (0, attrs(2).to_json().as_str())
    );
}
