//! A store that is replaced by another one under the same address: same cluster id, because that is
//! made of addresses, and a revision beyond all we have seen. Nothing in the answer to our watch
//! gives it away.

use std::time::Duration;

use flannel_store::{
    StoreEvent,
    etcd::{EtcdManager, Liveness},
};
use tokio::sync::mpsc;

use crate::support::{
    BRISK, Cluster, Data, GrpcProxy, Proxy, attrs, follow, request, until, until_in_sync,
};

/// Fills a new store with as many revisions as the former one had, and one lease.
async fn refill(cluster: &Cluster, past: i64) {
    let mut client = cluster.etcd.client().await;
    client
        .put(cluster.key("10.5.222.0-24"), attrs(7).to_json(), None)
        .await
        .expect("put");
    for _ in 0..=past {
        client.put("elsewhere", "x", None).await.expect("put");
    }
}

async fn revision(cluster: &Cluster) -> i64 {
    cluster
        .etcd
        .client()
        .await
        .get("any", None)
        .await
        .expect("get")
        .header()
        .expect("a header")
        .revision()
}

async fn until_lost_and_held_again(events: &mut mpsc::Receiver<StoreEvent>) {
    until(events, |event| {
        matches!(event, StoreEvent::OwnLeaseLost { .. }).then_some(())
    })
    .await;
    until(events, |event| {
        matches!(event, StoreEvent::OwnLease(_)).then_some(())
    })
    .await;
}

/// Cuts us off from a store we follow and replaces it by an empty one. The revision it had.
async fn cut_off_and_wiped(
    cluster: &Cluster,
    proxy: &Proxy,
    events: &mut mpsc::Receiver<StoreEvent>,
) -> i64 {
    until_in_sync(events).await;
    proxy.cut();
    until(events, |event| {
        matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
    })
    .await;
    let past = revision(cluster).await;
    cluster.etcd.stop();
    cluster.etcd.restart(Data::Wiped).await;
    past
}

#[tokio::test]
async fn a_store_wiped_and_refilled_while_we_were_cut_off_is_noticed() {
    let Some(cluster) = Cluster::alone("refilled").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    let (own, mut events) = follow(
        EtcdManager::new(&cluster.options_at(&proxy.endpoint()), BRISK),
        request(1),
    )
    .await;
    let past = cut_off_and_wiped(&cluster, &proxy, &mut events).await;
    refill(&cluster, past).await;
    proxy.restore();
    assert_eq!(until_in_sync(&mut events).await, ["10.5.222.0-24"]);
    until_lost_and_held_again(&mut events).await;
    assert!(
        cluster
            .etcd
            .client()
            .await
            .get(cluster.key(own), None)
            .await
            .expect("get")
            .count()
            == 1
    );
}

/// The same, and our own key is there again, from a copy: with our address, and not as we left it.
#[tokio::test]
async fn a_copy_of_our_lease_in_another_store_does_not_deceive() {
    let Some(cluster) = Cluster::alone("copied").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    let (own, mut events) = follow(
        EtcdManager::new(&cluster.options_at(&proxy.endpoint()), BRISK),
        request(1),
    )
    .await;
    let past = cut_off_and_wiped(&cluster, &proxy, &mut events).await;
    let mut client = cluster.etcd.client().await;
    let lease = client
        .lease_grant(86_400, None)
        .await
        .expect("a lease")
        .id();
    let options = etcd_client::PutOptions::new().with_lease(lease);
    client
        .put(cluster.key(own), attrs(1).to_json(), Some(options))
        .await
        .expect("put");
    refill(&cluster, past).await;
    proxy.restore();
    let mut snapshot = until_in_sync(&mut events).await;
    snapshot.sort();
    let mut expected = ["10.5.222.0-24".to_owned(), own.to_string()];
    expected.sort();
    assert_eq!(snapshot, expected);
    let held = until(&mut events, |event| match event {
        StoreEvent::OwnLease(own) => Some(own.key),
        StoreEvent::OwnLeaseLost { .. } => panic!("{event:?}"),
        _ => None,
    });
    assert_eq!(held.await, own);
}

/// Behind etcd's proxy our watch outlives the store: our connection does not break, and no change
/// ever arrives.
#[tokio::test]
async fn a_store_replaced_behind_a_living_watch_is_noticed() {
    let Some(cluster) = Cluster::alone("behind").await else {
        return;
    };
    let proxy = GrpcProxy::to(&cluster.etcd).await;
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    let brisk = Liveness {
        verify: Duration::from_millis(500),
        ..BRISK
    };
    let (_, mut events) = follow(
        EtcdManager::new(&cluster.options_at(&proxy.endpoint()), brisk),
        request(1),
    )
    .await;
    assert_eq!(until_in_sync(&mut events).await.len(), 2);
    let past = revision(&cluster).await;
    cluster.etcd.stop();
    cluster.etcd.restart(Data::Wiped).await;
    refill(&cluster, past).await;
    // It may be looked at while it is filled.
    while until_in_sync(&mut events)
        .await
        .contains(&"10.5.201.0-24".to_owned())
    {}
    until_lost_and_held_again(&mut events).await;
}

/// A look at the store that finds nothing wrong lists nothing.
#[tokio::test]
async fn a_store_that_stays_is_not_listed_again() {
    let Some(cluster) = Cluster::shared("stays").await else {
        return;
    };
    let brisk = Liveness {
        verify: Duration::from_millis(1),
        ..BRISK
    };
    let (own, mut events) = follow(EtcdManager::new(&cluster.options(), brisk), request(1)).await;
    until_in_sync(&mut events).await;
    for n in 2..30 {
        let name = format!("10.5.{}.0-24", 200 + n);
        cluster.put(&name, &attrs(n).to_json()).await;
        let changed = until(&mut events, |event| match event {
            StoreEvent::Put(entry) if *entry.name != own.to_string() => {
                Some(entry.name.to_string())
            }
            StoreEvent::InSync { .. } => panic!("listed again"),
            _ => None,
        });
        assert_eq!(changed.await, name);
    }
}
