//! Tests of IPv6 only, of both families, and of backends without a tunnel.

use std::collections::BTreeSet;

use flannel_common::packet::addr::Mac;
use flannel_store::{
    AcquireError, LeaseAttrs, LeaseKey, LeaseRequest, LostCause, RawJson, StoreEvent,
    SubnetManager as _, VxlanData, config::BackendConfig, etcd::EtcdError,
};

use crate::support::{
    Cluster, config, follow, key, publish, until, until_in_sync, until_lost, until_own,
};

const V4: &str = r#""Network":"10.5.0.0/16""#;
const V6: &str = r#""EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;
const V6_ONLY: &str = r#""EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;

/// The backend data of node 1 in each family.
const DATA_V4: &str = r#"{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}"#;
const DATA_V6: &str = r#"{"VNI":1,"VtepMAC":"02:00:00:00:06:01"}"#;

/// The request of node `n`: 192.0.2.n and 2001:db8::n, in the families of the configuration.
fn request(families: &str, backend: &str, n: u8) -> LeaseRequest {
    let config = config(&format!(
        r#"{{{families},"Backend":{{"Type":"{backend}"}}}}"#
    ));
    let data = |family| {
        let data = VxlanData {
            vni: Some(1),
            vtep_mac: Mac([2, 0, 0, 0, family, n]),
            zero_checksum_v6: false,
            other_source: false,
        };
        matches!(config.backend, BackendConfig::Vxlan(_)).then(|| data.to_json())
    };
    let attrs = LeaseAttrs {
        public_ip: config.ipv4.map(|_| [192, 0, 2, n].into()),
        public_ipv6: config
            .ipv6
            .map(|_| format!("2001:db8::{n}").parse().expect("an address")),
        backend_type: config.backend.properties().lease_name.into(),
        backend_data: config.ipv4.and_then(|_| data(4)),
        backend_v6_data: config.ipv6.and_then(|_| data(6)),
    };
    LeaseRequest {
        config,
        attrs,
        previous: Some(key("10.5.7.0-24&fd00:5:0:7::-64")),
    }
}

fn anywhere(request: LeaseRequest) -> LeaseRequest {
    LeaseRequest {
        previous: None,
        ..request
    }
}

/// Asks for a lease twice, and expects the same one, with this key and this value.
async fn assert_leased(
    cluster: &Cluster,
    (families, backend): (&str, &str),
    (name, value): (&str, &str),
) {
    let own = cluster
        .manager()
        .acquire(&request(families, backend, 1))
        .await
        .expect("a lease");
    assert_eq!(own.key.to_string(), name, "{families} {backend}");
    let kv = cluster.get(name).await.expect("the key");
    assert_eq!(kv.value_str().expect("text"), value, "{families} {backend}");
    // The same node finds it again.
    let again = cluster
        .manager()
        .acquire(&anywhere(request(families, backend, 1)))
        .await
        .expect("a lease");
    assert_eq!(again.key, own.key, "{families} {backend}");
}

#[tokio::test]
async fn keys_and_values_are_those_of_flannel() {
    let Some(cluster) = Cluster::shared("families").await else {
        return;
    };
    let (v4, v6) = ("10.5.7.0-24", "0.0.0.0-0&fd00:5:0:7::-64");
    let dual = "10.5.7.0-24&fd00:5:0:7::-64";
    let both = format!("{V4},{V6}");
    let (no_v6, no_v4) = (
        r#""PublicIP":"192.0.2.1","PublicIPv6":null"#,
        r#""PublicIP":"0.0.0.0","PublicIPv6":"2001:db8::1""#,
    );
    let ips = r#""PublicIP":"192.0.2.1","PublicIPv6":"2001:db8::1""#;
    for (families, backend, name, value) in [
        (
            V4,
            "vxlan",
            v4,
            format!(r#"{{{no_v6},"BackendType":"vxlan","BackendData":{DATA_V4}}}"#),
        ),
        (
            V6_ONLY,
            "vxlan",
            v6,
            format!(r#"{{{no_v4},"BackendType":"vxlan","BackendV6Data":{DATA_V6}}}"#),
        ),
        (
            &both,
            "vxlan",
            dual,
            format!(
                r#"{{{ips},"BackendType":"vxlan","BackendData":{DATA_V4},"BackendV6Data":{DATA_V6}}}"#
            ),
        ),
        (
            V4,
            "host-gw",
            v4,
            format!(r#"{{{no_v6},"BackendType":"host-gw"}}"#),
        ),
        (
            V6_ONLY,
            "host-gw",
            v6,
            format!(r#"{{{no_v4},"BackendType":"host-gw"}}"#),
        ),
        (
            &both,
            "host-gw",
            dual,
            format!(r#"{{{ips},"BackendType":"host-gw"}}"#),
        ),
        (V4, "alloc", v4, format!("{{{no_v6}}}")),
        (V6_ONLY, "alloc", v6, format!("{{{no_v4}}}")),
        (&both, "alloc", dual, format!("{{{ips}}}")),
    ] {
        assert_leased(&cluster, (families, backend), (name, &value)).await;
        cluster.delete(name).await;
    }
}

#[tokio::test]
async fn with_ipv6_alone_stock_leases_of_others_are_left_to_them() {
    let Some(cluster) = Cluster::shared("stock_v6").await else {
        return;
    };
    let stock = |n: u8| {
        format!(
            r#"{{"PublicIP":"0.0.0.0","PublicIPv6":"2001:db8::{n}","BackendType":"vxlan","BackendV6Data":{{"VtepMAC":"02:00:00:00:06:02"}}}}"#
        )
    };
    cluster.put("0.0.0.0-0&fd00:5:0:5::-64", &stock(2)).await;
    cluster
        .put(
            "0.0.0.0-0&fd00:5:0:6::-64",
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":null}"#,
        )
        .await;
    let mut seen = BTreeSet::new();
    for n in [1, 3, 4] {
        let own = cluster
            .manager()
            .acquire(&request(V6_ONLY, "vxlan", n))
            .await
            .expect("a lease")
            .key;
        assert_eq!(own.v4, None);
        assert!(seen.insert(own), "{own} is leased twice");
    }
    assert!(
        seen.contains(&key("0.0.0.0-0&fd00:5:0:7::-64")) && seen.len() == 3,
        "{seen:?}"
    );
    for (name, value) in [
        ("fd00:5:0:5::-64", stock(2)),
        (
            "fd00:5:0:6::-64",
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":null}"#.into(),
        ),
    ] {
        let kv = cluster
            .get(format!("0.0.0.0-0&{name}"))
            .await
            .expect("the key");
        assert_eq!(kv.value_str().expect("text"), value);
    }
}

#[tokio::test]
async fn with_ipv6_alone_a_lease_taken_over_is_left_to_its_new_owner() {
    let Some(cluster) = Cluster::shared("taken_v6").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(V6_ONLY, "vxlan", 1)).await;
    until_in_sync(&mut events).await;
    let thief = request(V6_ONLY, "vxlan", 2).attrs;
    cluster.put(&own.to_string(), &thief.to_json()).await;
    assert_eq!(
        until_lost(&mut events).await,
        LostCause::TakenOver {
            by: "2001:db8::2".parse().ok()
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
        thief.to_json()
    );
}

#[tokio::test]
async fn addresses_of_either_family_may_change_under_the_same_key() {
    let Some(cluster) = Cluster::shared("moved").await else {
        return;
    };
    let both = format!("{V4},{V6}");
    let moves = |attrs: &LeaseAttrs| {
        let v6 = LeaseAttrs {
            public_ipv6: "2001:db8::11".parse().ok(),
            ..attrs.clone()
        };
        [
            LeaseAttrs {
                public_ip: attrs.public_ip.map(|_| [192, 0, 2, 11].into()),
                ..v6.clone()
            },
            v6,
        ]
    };
    for families in [V6_ONLY, &both] {
        let request = request(families, "vxlan", 1);
        let moves = moves(&request.attrs);
        let (own, mut events, publish) = publish(cluster.manager(), request).await;
        until_in_sync(&mut events).await;
        for attrs in moves {
            if publish
                .send_if_modified(|published| std::mem::replace(published, attrs.clone()) != attrs)
            {
                assert_eq!(until_own(&mut events).await.key, own);
                assert_eq!(
                    cluster
                        .get(own)
                        .await
                        .expect("the key")
                        .value_str()
                        .expect("text"),
                    attrs.to_json()
                );
            }
        }
        drop(events);
        cluster.delete(own).await;
    }
}

/// Keys differ where only one of their subnets is the same, so etcd does not keep such nodes apart.
#[tokio::test]
async fn nodes_that_race_share_no_subnet_of_either_family() {
    let Some(cluster) = Cluster::shared("race_dual").await else {
        return;
    };
    // Nodes that yield to a conflict hold subnets for a moment, so there are more subnets than
    // nodes.
    let families = r#""Network":"10.5.0.0/16","SubnetMax":"10.5.12.0","EnableIPv6":true,"IPv6Network":"fd00:5::/48","IPv6SubnetMax":"fd00:5:0:c::""#;
    let racers: Vec<_> = (1..=8)
        .map(|n| {
            let (mut manager, request) =
                (cluster.manager(), anywhere(request(families, "vxlan", n)));
            tokio::spawn(async move { acquire(&mut manager, &request).await })
        })
        .collect();
    let (mut v4, mut v6) = (BTreeSet::new(), BTreeSet::new());
    for racer in racers {
        let key = racer.await.expect("no panic");
        assert!(
            v4.insert(key.v4.expect("IPv4")),
            "{key} has an IPv4 subnet of another"
        );
        assert!(
            v6.insert(key.v6.expect("IPv6")),
            "{key} has an IPv6 subnet of another"
        );
        assert!(cluster.get(key).await.is_some());
    }
    let (_, mut events) = follow(cluster.manager(), anywhere(request(families, "vxlan", 1))).await;
    assert_eq!(
        until_in_sync(&mut events).await.len(),
        8,
        "what gave way is gone"
    );
}

async fn acquire(
    manager: &mut flannel_store::etcd::EtcdManager,
    request: &LeaseRequest,
) -> LeaseKey {
    loop {
        match manager.acquire(request).await {
            Ok(own) => return own.key,
            Err(AcquireError::<EtcdError>::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn what_changes_of_the_families_is_a_new_lease_with_the_former_subnets() {
    let Some(cluster) = Cluster::shared("turned_on").await else {
        return;
    };
    let both = format!("{V4},{V6}");
    let mut former: Option<LeaseKey> = None;
    for (families, expected) in [
        (V4, "10.5.7.0-24"),
        (&both, "10.5.7.0-24&fd00:5:0:7::-64"),
        (V6_ONLY, "0.0.0.0-0&fd00:5:0:7::-64"),
        (&both, "10.5.7.0-24&fd00:5:0:7::-64"),
        (V4, "10.5.7.0-24"),
    ] {
        let own = cluster
            .manager()
            .acquire(&request(families, "vxlan", 1))
            .await
            .expect("a lease");
        assert_eq!(own.key.to_string(), expected);
        if let Some(former) = former.replace(own.key) {
            assert!(
                cluster.get(former).await.is_none(),
                "{former} is still there"
            );
        }
    }
}

/// A node finds its lease although it holds data of a different backend.
#[tokio::test]
async fn a_lease_of_another_backend_is_taken_along() {
    let Some(cluster) = Cluster::shared("another_backend").await else {
        return;
    };
    let first = cluster
        .manager()
        .acquire(&request(V4, "vxlan", 1))
        .await
        .expect("a lease");
    let odd = RawJson::parse("data", r#""wireguard's""#).expect("JSON");
    let attrs = LeaseAttrs {
        backend_data: Some(odd),
        backend_type: "wireguard".into(),
        ..request(V4, "vxlan", 1).attrs
    };
    cluster.put(&first.key.to_string(), &attrs.to_json()).await;
    let (own, mut events) = follow(cluster.manager(), request(V4, "host-gw", 1)).await;
    assert_eq!(own, first.key);
    let value = until(&mut events, |event| match event {
        StoreEvent::InSync { snapshot } => snapshot
            .into_iter()
            .find_map(|entry| entry.lease.as_ref().ok().cloned()),
        _ => None,
    });
    assert_eq!(value.await.attrs, request(V4, "host-gw", 1).attrs);
}
