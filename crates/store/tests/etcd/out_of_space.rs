//! A store that is out of space: it answers, takes no write and no new lease, and lets leases live.

use std::time::{Duration, Instant};

use etcd_client::AlarmAction;
use flannel_host::clock::BootTime;
use flannel_store::{
    SubnetManager as _,
    etcd::{EtcdManager, EtcdOptions},
};

use crate::support::{BRISK, Cluster, DAY, attrs, follow, request, until_own};

const QUOTA: u32 = 2 << 20;
const REMEDY: &str = "refuses: asking for a lease: etcdserver: mvcc: database space exceeded; etcd \
    is out of space: compact";

/// Writes until nothing can be written.
async fn fill(cluster: &Cluster) {
    let value = "x".repeat(100_000);
    for n in 0..100 {
        if let Err(error) = cluster
            .client
            .clone()
            .put(format!("filler-{n}"), value.as_str(), None)
            .await
        {
            assert!(
                error.to_string().contains("database space exceeded"),
                "{error}"
            );
            return;
        }
    }
    panic!("etcd takes 10 MB with a quota of {QUOTA} bytes");
}

/// Frees space as an operator does: deletes keys, compacts, defragments and disarms the alarms.
async fn make_room(cluster: &Cluster) {
    let mut client = cluster.client.clone();
    let options = etcd_client::DeleteOptions::new().with_prefix();
    client
        .delete("filler-", Some(options))
        .await
        .expect("deletions are taken");
    cluster.compact().await;
    client.defragment().await.expect("defragmented");
    let alarms = client
        .alarm(AlarmAction::Get, etcd_client::AlarmType::None, None)
        .await
        .expect("alarms");
    for alarm in alarms.alarms() {
        let mut options = etcd_client::AlarmOptions::new();
        options.with_member(alarm.member_id());
        client
            .alarm(AlarmAction::Deactivate, alarm.alarm(), Some(options))
            .await
            .expect("disarmed");
    }
}

#[tokio::test]
async fn a_restarted_node_keeps_its_lease_and_a_new_one_says_what_to_do() {
    let Some(cluster) = Cluster::small("space-restart", QUOTA).await else {
        return;
    };
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let before = cluster.get(own.key).await.expect("the key");
    fill(&cluster).await;

    let again = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("the lease there is");
    assert_eq!(again.key, own.key);
    let left = again.expires_at.expect("an expiry").since(BootTime::now());
    assert!(left <= DAY && left > DAY * 9 / 10, "{left:?}");
    let after = cluster.get(own.key).await.expect("the key");
    assert_eq!(
        (after.lease(), after.mod_revision()),
        (before.lease(), before.mod_revision()),
        "nothing was written"
    );

    let mut moved = request(1);
    moved.attrs.backend_data = attrs(9).backend_data;
    let error = cluster
        .manager()
        .acquire(&moved)
        .await
        .expect_err("others would be told of another VTEP");
    assert!(error.to_string().contains(REMEDY), "{error}");
    let error = cluster
        .manager()
        .acquire(&request(2))
        .await
        .expect_err("no room for another lease");
    assert!(error.to_string().contains(REMEDY), "{error}");

    make_room(&cluster).await;
    cluster
        .manager()
        .acquire(&request(2))
        .await
        .expect("a lease");
}

#[tokio::test]
async fn a_running_nodes_lease_outlives_its_time_while_there_is_no_space() {
    let Some(cluster) = Cluster::small("space-renewal", QUOTA).await else {
        return;
    };
    let [ttl, renew_margin] = [5, 4].map(Duration::from_secs);
    let options = EtcdOptions {
        lease_ttl: ttl,
        renew_margin,
        ..cluster.options()
    };
    let (key, mut events) = follow(EtcdManager::new(&options, BRISK), request(1)).await;
    fill(&cluster).await;
    let full = Instant::now();
    let before = loop {
        until_own(&mut events).await;
        let kv = cluster.get(key).await.expect("the lease lives");
        if full.elapsed() > 2 * ttl {
            break kv;
        }
    };
    make_room(&cluster).await;
    loop {
        until_own(&mut events).await;
        let kv = cluster.get(key).await.expect("the lease lives");
        if kv.lease() != before.lease() {
            break;
        }
    }
}
