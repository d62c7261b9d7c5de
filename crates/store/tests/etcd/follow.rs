//! Following the leases of others.

use etcd_client::{Txn, TxnOp};
use flannel_store::{
    LeaseKey, LeaseSet, Precedence, StoreEvent,
    etcd::{EtcdManager, EtcdOptions},
};
use tokio::{sync::mpsc, time::timeout};

use crate::support::{
    BRISK, CONFIG, Cluster, PATIENCE, Proxy, attrs, config, follow, next, request, until,
    until_in_sync,
};

/// Names of puts and deletes, until the entry `last` is reported.
async fn changes_until(events: &mut mpsc::Receiver<StoreEvent>, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        match next(events).await {
            StoreEvent::Put(entry) => seen.push(format!("+{}", entry.name)),
            StoreEvent::Delete { name } => seen.push(format!("-{name}")),
            StoreEvent::InSync { .. } => panic!("a snapshot among the changes {seen:?}"),
            _ => {}
        }
        if seen.last().is_some_and(|name| name == last) {
            return seen;
        }
    }
}

#[tokio::test]
async fn a_snapshot_comes_first_then_changes_good_and_bad() {
    let Some(cluster) = Cluster::shared("changes").await else {
        return;
    };
    cluster.put("10.5.200.0-24", &attrs(2).to_json()).await;
    cluster.put("nonsense", "{}").await;
    cluster
        .client
        .clone()
        .put(
            format!("{}/subnets-foo/10.5.3.0-24", cluster.prefix),
            "{}",
            None,
        )
        .await
        .expect("put");
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    let mut snapshot = until_in_sync(&mut events).await;
    snapshot.retain(|name| *name != own.to_string());
    assert_eq!(snapshot, ["10.5.200.0-24", "nonsense"]);
    cluster
        .client
        .clone()
        .put(format!("{}/subnets-foo/x", cluster.prefix), "{}", None)
        .await
        .expect("put");
    cluster.put("10.5.201.0-24", "{").await;
    cluster.delete("10.5.200.0-24").await;
    assert_eq!(
        changes_until(&mut events, "-10.5.200.0-24").await,
        ["+10.5.201.0-24", "-10.5.200.0-24"]
    );
}

#[tokio::test]
async fn a_watch_that_breaks_goes_on_where_it_ended() {
    let Some(cluster) = Cluster::shared("resumed").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    let manager = EtcdManager::new(&cluster.options_at(&proxy.endpoint()), BRISK);
    let (_, mut events) = follow(manager, request(1)).await;
    until_in_sync(&mut events).await;
    proxy.cut();
    until(&mut events, |event| {
        matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
    })
    .await;
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    cluster.put("10.5.202.0-24", &attrs(3).to_json()).await;
    cluster.delete("10.5.201.0-24").await;
    proxy.restore();
    until(&mut events, |event| {
        matches!(event, StoreEvent::Resumed).then_some(())
    })
    .await;
    let changes = changes_until(&mut events, "-10.5.201.0-24").await;
    assert_eq!(
        changes,
        ["+10.5.201.0-24", "+10.5.202.0-24", "-10.5.201.0-24"]
    );
}

/// Follows a store that changes and compacts its changes while we are cut off from it. Compaction
/// is for a whole server, so each of these has its own. Returns our lease, and the snapshot.
async fn compacted(
    cluster: &Cluster,
    proxy: &Proxy,
    loses_own: bool,
) -> (LeaseKey, Vec<String>, mpsc::Receiver<StoreEvent>) {
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    let manager = EtcdManager::new(&cluster.options_at(&proxy.endpoint()), BRISK);
    let (own, mut events) = follow(manager, request(1)).await;
    until_in_sync(&mut events).await;
    proxy.cut();
    until(&mut events, |event| {
        matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
    })
    .await;
    cluster.delete("10.5.201.0-24").await;
    cluster.put("10.5.202.0-24", &attrs(3).to_json()).await;
    if loses_own {
        cluster.delete(own).await;
    }
    cluster.compact().await;
    proxy.restore();
    let snapshot = timeout(PATIENCE, until_in_sync(&mut events))
        .await
        .expect("a snapshot in time");
    (own, snapshot, events)
}

#[tokio::test]
async fn compacted_changes_are_made_up_for_by_a_snapshot() {
    let Some(cluster) = Cluster::alone("compacted").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    let (own, mut snapshot, _events) = compacted(&cluster, &proxy, false).await;
    snapshot.retain(|name| *name != own.to_string());
    assert_eq!(snapshot, ["10.5.202.0-24"]);
}

#[tokio::test]
async fn the_loss_of_our_lease_in_compacted_changes_is_noticed() {
    let Some(cluster) = Cluster::alone("compacted_own").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    let (own, snapshot, mut events) = compacted(&cluster, &proxy, true).await;
    assert_eq!(snapshot, ["10.5.202.0-24"]);
    until(&mut events, |event| {
        matches!(event, StoreEvent::OwnLeaseLost { .. }).then_some(())
    })
    .await;
    let again = until(&mut events, |event| match event {
        StoreEvent::OwnLease(own) => Some(own.key),
        _ => None,
    });
    assert_eq!(again.await, own);
}

#[tokio::test]
async fn a_dead_endpoint_is_passed_over() {
    let Some(cluster) = Cluster::shared("failover").await else {
        return;
    };
    // No process listens on port 1.
    let endpoints = vec!["http://127.0.0.1:1".to_owned(), cluster.etcd.endpoint()];
    let (_, mut events) = follow(
        EtcdManager::new(
            &EtcdOptions {
                endpoints,
                ..cluster.options()
            },
            BRISK,
        ),
        request(1),
    )
    .await;
    assert_eq!(until_in_sync(&mut events).await.len(), 1);
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    changes_until(&mut events, "+10.5.201.0-24").await;
}

#[tokio::test]
async fn many_leases_are_listed_page_by_page() {
    let Some(cluster) = Cluster::shared("pages").await else {
        return;
    };
    let names: Vec<_> = (0..2500)
        .map(|n| format!("10.5.{}.{}-28", n / 16, n % 16 * 16))
        .collect();
    for chunk in names.chunks(100) {
        let puts: Vec<_> = chunk
            .iter()
            .map(|name| TxnOp::put(cluster.key(name), "{}", None))
            .collect();
        cluster
            .client
            .clone()
            .txn(Txn::new().and_then(puts))
            .await
            .expect("put");
    }
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    let mut snapshot = until_in_sync(&mut events).await;
    snapshot.retain(|name| *name != own.to_string());
    assert_eq!(snapshot.len(), names.len());
}

/// Overlaps, duplicates and nonsense, in an order without meaning but always the same.
fn storm() -> impl Iterator<Item = (String, Option<String>)> {
    (0..300_u32).map(|step| {
        let mix = step.wrapping_mul(2_654_435_761) >> 16;
        let name = format!("10.5.{}.0-{}", 200 + mix % 8, 22 + mix / 8 % 4);
        let node = u8::try_from(2 + mix / 32 % 5).expect("small");
        let value = if mix % 11 == 0 {
            "{".to_owned()
        } else {
            attrs(node).to_json()
        };
        (name, (mix % 3 != 0).then_some(value))
    })
}

#[tokio::test]
async fn changes_and_a_later_snapshot_agree() {
    let Some(cluster) = Cluster::shared("agree").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    let writes = async {
        for (name, value) in storm() {
            match value {
                Some(value) => cluster.put(&name, &value).await,
                None => cluster.delete(&name).await,
            }
        }
        cluster.put("last", "{}").await;
    };
    let mut by_changes = LeaseSet::new(&config(CONFIG), Precedence::FirstRenewed, attrs(1));
    by_changes.set_own_key(own);
    let reads = async {
        loop {
            let event = next(&mut events).await;
            let last = matches!(&event, StoreEvent::Put(entry) if &*entry.name == "last");
            by_changes.apply(event);
            if last {
                return;
            }
        }
    };
    tokio::join!(writes, reads);
    // With its receiver the first manager ends, which would answer the second one.
    drop(events);
    let mut by_snapshot = LeaseSet::new(&config(CONFIG), Precedence::FirstRenewed, attrs(1));
    let (same, mut events) = follow(cluster.manager(), request(1)).await;
    assert_eq!(same, own);
    by_snapshot.set_own_key(own);
    let snapshot = until(&mut events, |event| match event {
        StoreEvent::InSync { snapshot } => Some(snapshot),
        _ => None,
    });
    by_snapshot.replace(snapshot.await);
    let resolved = by_snapshot.resolve();
    assert!(!resolved.peers.is_empty() && !resolved.rejected.is_empty());
    assert_eq!(by_changes.resolve(), resolved);
}
