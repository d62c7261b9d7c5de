//! Two machines with one public address.

use std::time::Duration;

use flannel_store::{
    AcquireError, LeaseAttrs, LeaseRequest, LostCause, StoreEvent, SubnetManager as _,
};
use tokio::{sync::mpsc, time::timeout};

use crate::support::{
    Cluster, attrs, follow, request, until, until_in_sync, until_lost, until_own,
};

/// Longer than a holder has for its answer.
const ANSWER: Duration = Duration::from_secs(4);

/// A machine with the address of node 1 and the device of node `n`.
fn like_node_1(n: u8) -> LeaseRequest {
    LeaseRequest {
        attrs: LeaseAttrs {
            public_ip: attrs(1).public_ip,
            ..attrs(n)
        },
        ..request(1)
    }
}

async fn until_contested(events: &mut mpsc::Receiver<StoreEvent>) -> String {
    until(events, |event| match event {
        StoreEvent::Contested { by } => Some(by),
        StoreEvent::OwnLeaseLost { key, cause } => panic!("{key} is lost: {cause:?}"),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_second_machine_with_our_address_is_refused_while_the_first_one_lives() {
    let Some(cluster) = Cluster::shared("second").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    let before = cluster.get(own).await.expect("the key");
    let mut second = cluster.manager();
    for _ in 0..2 {
        let refused = second
            .acquire(&like_node_1(9))
            .await
            .expect_err("the address is taken");
        let AcquireError::AddressTaken(taken) = refused else {
            panic!("{refused}")
        };
        assert_eq!(
            (taken.lease, taken.by),
            (own.to_string(), "VTEP MAC 02:00:00:00:00:01".to_owned())
        );
        assert!(
            until_contested(&mut events)
                .await
                .contains("VTEP MAC 02:00:00:00:00:09")
        );
    }
    let after = cluster.get(own).await.expect("the key");
    let value = attrs(1).to_json();
    assert_eq!(
        (after.value_str().expect("text"), after.lease()),
        (value.as_str(), before.lease()),
        "as it was"
    );
    assert_eq!(
        cluster.leases().await,
        [own.to_string()],
        "none for the second machine"
    );
}

#[tokio::test]
async fn who_asks_changes_nothing_for_other_nodes() {
    let Some(cluster) = Cluster::shared("asked").await else {
        return;
    };
    let (_, mut events) = follow(cluster.manager(), request(2)).await;
    until_in_sync(&mut events).await;
    let (own, mut holders) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut holders).await;
    cluster
        .manager()
        .acquire(&like_node_1(9))
        .await
        .expect_err("the address is taken");
    // Created, written a second time, asked for, answered.
    for _ in 0..3 {
        let seen = until(&mut events, |event| match event {
            StoreEvent::Put(entry) if *entry.name == own.to_string() => Some(entry),
            _ => None,
        });
        let lease = seen.await.lease.clone().expect("a lease");
        assert_eq!(lease.attrs, attrs(1));
    }
}

#[tokio::test]
async fn a_machine_that_is_gone_does_not_answer_and_its_lease_is_taken_over() {
    let Some(cluster) = Cluster::shared("gone").await else {
        return;
    };
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let heir = cluster
        .manager()
        .acquire(&like_node_1(9))
        .await
        .expect("the same lease");
    assert_eq!(
        heir.key, own.key,
        "a machine that was reinstalled, or has another device"
    );
    let kv = cluster.get(own.key).await.expect("the key");
    assert_eq!(
        kv.value_str().expect("text"),
        like_node_1(9).attrs.to_json()
    );
}

/// A write as that of a machine whose question the holder did not see.
#[tokio::test]
async fn the_holder_writes_over_another_machine_with_its_address_and_gives_way_to_one_that_persists()
 {
    let Some(cluster) = Cluster::shared("persistent").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    let theirs = like_node_1(9).attrs.to_json();
    for _ in 0..3 {
        cluster.put_on_a_lease(own, &theirs).await;
        assert_eq!(
            until_contested(&mut events).await,
            "VTEP MAC 02:00:00:00:00:09"
        );
        cluster.until_value(own, &attrs(1).to_json()).await;
    }
    cluster.put_on_a_lease(own, &theirs).await;
    assert_eq!(
        until_lost(&mut events).await,
        LostCause::SameAddress {
            by: "VTEP MAC 02:00:00:00:00:09".to_owned()
        }
    );
}

#[tokio::test]
async fn who_took_a_lease_over_gives_it_back_to_a_holder_that_was_only_slow() {
    let Some(cluster) = Cluster::shared("slow").await else {
        return;
    };
    cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let (own, mut events) = follow(cluster.manager(), like_node_1(9)).await;
    until_in_sync(&mut events).await;
    cluster.put_on_a_lease(own, &attrs(1).to_json()).await;
    assert_eq!(
        until_lost(&mut events).await,
        LostCause::SameAddress {
            by: "VTEP MAC 02:00:00:00:00:01".to_owned()
        }
    );
    let refused = until(&mut events, |event| match event {
        StoreEvent::NotAcquired {
            reason,
            address_taken,
        } => Some((reason, address_taken)),
        StoreEvent::OwnLease(own) => panic!("{own:?} although its holder wrote it a moment ago"),
        _ => None,
    });
    let (reason, address_taken) = refused.await;
    assert!(
        address_taken && reason.contains("another machine has our public address 192.0.2.1"),
        "{reason}"
    );
}

/// Flannel on this machine, and an operator, write with our device's address or on no etcd lease.
#[tokio::test]
async fn writes_with_our_own_device_and_reservations_are_not_another_machine() {
    let Some(cluster) = Cluster::shared("same_device").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster.put_on_a_lease(own, &attrs(1).to_json()).await;
    assert_eq!(until_own(&mut events).await.key, own);
    cluster
        .put(&own.to_string(), &like_node_1(9).attrs.to_json())
        .await;
    until_own(&mut events).await;
    cluster.until_value(own, &attrs(1).to_json()).await;
    let contested = until(&mut events, |event| {
        matches!(event, StoreEvent::Contested { .. }).then_some(())
    });
    assert!(
        timeout(ANSWER, contested).await.is_err(),
        "no other machine"
    );
}
