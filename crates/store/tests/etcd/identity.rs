//! The lease that is a node's own when it starts.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use flannel_common::packet::addr::Mac;
use flannel_store::{LeaseAttrs, LeaseRequest, NodeMemory, SubnetManager as _, etcd::EtcdManager};

use crate::support::{Cluster, attrs, follow, key, request, until_in_sync};

/// Shorter than a holder has for its answer.
const AT_ONCE: Duration = Duration::from_millis(1900);

/// A manager on the machine whose interface is `interface`, with a state directory.
fn on_machine(cluster: &Cluster, interface: u8, state: &Path) -> EtcdManager {
    let mac = Mac([2, 0, 0, 0, 1, interface]);
    let mut manager = cluster.manager();
    manager.remember_in(NodeMemory {
        file: state.join("lease"),
        interface: Some(mac),
        interfaces: BTreeSet::from([mac]),
    });
    manager
}

/// Of a backend whose leases name no device.
fn host_gw(n: u8) -> LeaseRequest {
    let attrs = LeaseAttrs {
        public_ip: attrs(n).public_ip,
        backend_type: "host-gw".into(),
        ..LeaseAttrs::default()
    };
    LeaseRequest {
        attrs,
        ..request(n)
    }
}

#[tokio::test]
async fn a_node_with_another_address_takes_its_lease_over_under_the_same_key() {
    let Some(cluster) = Cluster::shared("moved").await else {
        return;
    };
    let own = cluster
        .manager()
        .acquire(&request(1))
        .await
        .expect("a lease");
    let moved = LeaseRequest {
        attrs: LeaseAttrs {
            public_ip: attrs(61).public_ip,
            ..attrs(1)
        },
        previous: Some(own.key),
        ..request(1)
    };
    let after = cluster
        .manager()
        .acquire(&moved)
        .await
        .expect("the same lease");
    assert_eq!(
        (after.key, cluster.leases().await),
        (own.key, vec![own.key.to_string()])
    );
    cluster.until_value(own.key, &moved.attrs.to_json()).await;
}

/// A copy has the device's address and subnet.env, and the machine that it was made of lives.
#[tokio::test]
async fn a_copy_of_a_living_machine_gets_another_subnet() {
    let Some(cluster) = Cluster::shared("copied").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    let copy = LeaseRequest {
        attrs: LeaseAttrs {
            public_ip: attrs(61).public_ip,
            ..attrs(1)
        },
        previous: Some(own),
        ..request(1)
    };
    let other = cluster.manager().acquire(&copy).await.expect("a lease");
    assert_ne!(other.key, own);
    cluster.until_value(own, &attrs(1).to_json()).await;
}

#[tokio::test]
async fn a_lease_that_names_no_device_is_kept_by_the_record_with_another_address_and_at_once() {
    let Some(cluster) = Cluster::shared("recorded").await else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let own = on_machine(&cluster, 1, state.path())
        .acquire(&host_gw(1))
        .await
        .expect("a lease");
    let start = Instant::now();
    let moved = on_machine(&cluster, 1, state.path())
        .acquire(&host_gw(61))
        .await
        .expect("the same lease");
    assert_eq!(
        (moved.key, start.elapsed() < AT_ONCE),
        (own.key, true),
        "after {:?}",
        start.elapsed()
    );
    assert_eq!(cluster.leases().await, [own.key.to_string()]);
    // On another machine a copy of the state directory proves nothing.
    let copy = on_machine(&cluster, 2, state.path())
        .acquire(&host_gw(62))
        .await
        .expect("a lease");
    assert_ne!(copy.key, own.key);
}

/// Two nodes swap their addresses. Neither may take the other's lease, in whatever order they
/// start.
#[tokio::test]
async fn nodes_that_swap_their_addresses_keep_their_subnets_with_and_without_devices() {
    let Some(cluster) = Cluster::shared("swapped").await else {
        return;
    };
    let with_device = |address: u8, device: u8, previous| LeaseRequest {
        attrs: LeaseAttrs {
            public_ip: attrs(address).public_ip,
            ..attrs(device)
        },
        previous,
        ..request(1)
    };
    let mut keys = Vec::new();
    for n in [1, 2] {
        keys.push(
            cluster
                .manager()
                .acquire(&with_device(n, n, None))
                .await
                .expect("a lease")
                .key,
        );
    }
    for (address, device) in [(2, 1), (1, 2)] {
        let former = keys[usize::from(device) - 1];
        let own = cluster
            .manager()
            .acquire(&with_device(address, device, Some(former)))
            .await
            .expect("a lease");
        assert_eq!(own.key, former);
    }
    let states = [1, 2].map(|_| tempfile::tempdir().expect("a directory"));
    let mut keys = Vec::new();
    for n in [11, 12] {
        let state = states[usize::from(n) - 11].path();
        keys.push(
            on_machine(&cluster, n, state)
                .acquire(&host_gw(n))
                .await
                .expect("a lease")
                .key,
        );
    }
    for (address, n) in [(12, 11), (11, 12)] {
        let at = usize::from(n) - 11;
        let own = on_machine(&cluster, n, states[at].path())
            .acquire(&host_gw(address))
            .await
            .expect("a lease");
        assert_eq!(own.key, keys[at]);
    }
    assert_eq!(cluster.leases().await.len(), 4);
}

#[tokio::test]
async fn of_two_own_leases_the_former_subnets_is_kept_and_the_other_one_deleted() {
    let Some(cluster) = Cluster::shared("two_leases").await else {
        return;
    };
    for name in ["10.5.3.0-24", "10.5.7.0-24"] {
        cluster.put_on_a_lease(key(name), &attrs(1).to_json()).await;
    }
    let request = LeaseRequest {
        previous: Some(key("10.5.7.0-24")),
        ..request(1)
    };
    let own = cluster.manager().acquire(&request).await.expect("a lease");
    assert_eq!(
        (own.key, cluster.leases().await),
        (key("10.5.7.0-24"), vec!["10.5.7.0-24".to_owned()])
    );
}

/// Stock flannel 0.20 may miss the first write.
#[tokio::test]
async fn a_new_lease_is_written_a_second_time_unless_it_is_lost_before() {
    let Some(cluster) = Cluster::shared("twice").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    let first = cluster.get(own).await.expect("the key");
    assert_eq!(first.version(), 1);
    let second = cluster.until_version(own, 2).await;
    assert_eq!(
        (second.lease(), second.value()),
        (first.lease(), first.value())
    );

    let (lost, _events) = follow(cluster.manager(), request(2)).await;
    cluster.put(&lost.to_string(), &attrs(3).to_json()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kv = cluster.get(lost).await.expect("the key");
    assert_eq!(
        (kv.version(), kv.value_str().expect("text")),
        (2, attrs(3).to_json().as_str()),
        "another node's by now"
    );
}
