//! Start-up: what is read of our Node, and what is written on it.

use std::fs;

use flannel_common::packet::addr::Mac;
use flannel_store::{
    AcquireError, Hints, LeaseAttrs, LeaseRequest, SubnetManager as _,
    kube::{KubeError, KubeManager, KubeOptions, NodeIdentity},
    wait_for_config, wait_for_hints, wait_for_lease,
};
use serde_json::json;

use crate::support::{BRISK, Cluster, attrs, config, request};

#[tokio::test]
async fn a_lease_is_the_nodes_subnet_and_its_annotations() {
    for cluster in Cluster::each("acquire").await {
        cluster
            .add(
                "own",
                Some("10.5.1.0/24"),
                &[("public-ipv6", "2001:db8::1"), ("backend-v6-data", "null")],
            )
            .await;
        let own = cluster
            .manager("own")
            .acquire(&request(1))
            .await
            .expect("a lease");
        assert_eq!(
            (own.key.to_string().as_str(), own.expires_at),
            ("10.5.1.0-24", None)
        );
        let data = r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}"#;
        let wanted = [
            ("kube-subnet-manager", "true"),
            ("backend-type", "vxlan"),
            ("backend-data", data),
            ("public-ip", "192.0.2.1"),
        ];
        let wanted: serde_json::Map<_, _> = wanted
            .iter()
            .map(|(suffix, value)| (cluster.annotation(suffix), (*value).into()))
            .collect();
        assert_eq!(
            cluster.node("own").await["metadata"]["annotations"],
            json!(wanted),
            "and IPv6 is off"
        );
        let version = cluster.node("own").await["metadata"]["resourceVersion"].clone();
        cluster
            .manager("own")
            .acquire(&request(1))
            .await
            .expect("the same lease");
        assert_eq!(
            cluster.node("own").await["metadata"]["resourceVersion"],
            version,
            "nothing to write"
        );
    }
}

#[tokio::test]
async fn a_subnet_is_waited_for() {
    for cluster in Cluster::each("waiting").await {
        cluster.add("own", None, &[]).await;
        let mut manager = cluster.manager("own");
        let error = manager.acquire(&request(1)).await.expect_err("no subnet");
        let expected = format!("node {} has no IPv4 pod CIDR yet", cluster.node_name("own"));
        assert!(error.to_string().starts_with(&expected), "{error}");
        let assigned = json!({ "spec": { "podCIDR": "10.5.9.0/24", "podCIDRs": ["10.5.9.0/24"] } });
        let asked = request(1);
        let (own, ()) = tokio::join!(
            wait_for_lease(&mut manager, &asked, async |_, _| true),
            cluster.edit("own", assigned)
        );
        assert_eq!(own.expect("a lease").key.to_string(), "10.5.9.0-24");
    }
}

#[tokio::test]
async fn a_subnet_that_cannot_be_served_is_named_and_not_published() {
    for cluster in Cluster::each("outside").await {
        for (name, cidr, reason) in [
            (
                "outer",
                "10.6.1.0/24",
                "has the pod CIDR 10.6.1.0/24, which is not in the network",
            ),
            (
                "tiny",
                "10.5.1.7/32",
                "its pod CIDR 10.5.1.7/32 has no address for a bridge and pods",
            ),
            (
                "small",
                "10.5.1.6/31",
                "its pod CIDR 10.5.1.6/31 has no address for a bridge and pods",
            ),
        ] {
            cluster.add(name, Some(cidr), &[]).await;
            let (mut manager, asked, mut reasons) = (cluster.manager(name), request(1), Vec::new());
            let no_lease = wait_for_lease(&mut manager, &asked, async |_, error| {
                reasons.push(error.to_string());
                reasons.len() < 2
            });
            assert_eq!(no_lease.await, None, "{name}");
            assert!(
                reasons.len() == 2 && reasons.iter().all(|text| text.contains(reason)),
                "{reasons:?}"
            );
            assert_eq!(
                cluster.annotated(name, "public-ip").await,
                None,
                "not published"
            );
        }
    }
}

#[tokio::test]
async fn the_operators_annotations_count() {
    for cluster in Cluster::each("operator").await {
        let data = r#"{"VtepMAC":"02:00:00:00:00:77","VNI":1}"#;
        let annotations = [
            ("node-public-ip", "198.51.100.1"),
            ("public-ip-overwrite", "203.0.113.1"),
            ("backend-type", "vxlan"),
            ("backend-data", data),
        ];
        cluster.add("own", Some("10.5.1.0/24"), &annotations).await;
        let mut manager = cluster.manager("own");
        let hints = wait_for_hints(&mut manager, |_| ()).await;
        let expected = Hints {
            public_ip: Some([198, 51, 100, 1].into()),
            vtep_mac: Some(Mac([2, 0, 0, 0, 0, 0x77])),
            ..Hints::default()
        };
        assert_eq!(hints, expected);
        manager.acquire(&request(1)).await.expect("a lease");
        assert_eq!(
            cluster.annotated("own", "public-ip").await.as_deref(),
            Some("203.0.113.1")
        );
    }
}

#[tokio::test]
async fn the_network_configuration_is_a_file_without_rules_about_cutting() {
    let cluster = Cluster::double("config").await;
    let options = cluster.options();
    fs::write(
        &options.net_config,
        r#"{"Network":"10.5.0.0/26","SubnetLen":1,"Backend":{"Type":"vxlan"}}"#,
    )
    .expect("a file");
    let served = wait_for_config(&mut cluster.manager("own"), |_| ())
        .await
        .expect("a configuration");
    assert_eq!(
        served
            .ipv4
            .map(|family| family.network.to_string())
            .as_deref(),
        Some("10.5.0.0/26")
    );
    fs::remove_file(&options.net_config).expect("removed");
    let error = cluster
        .manager("own")
        .network_config()
        .await
        .expect_err("no file");
    assert!(
        error.to_string().contains("set --net-config-path"),
        "{error}"
    );
}

#[tokio::test]
async fn our_node_is_that_of_our_pod() {
    let cluster = Cluster::double("pod").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let identity = NodeIdentity::Pod {
        namespace: "kube-flannel".to_owned(),
        name: "flannel-x".to_owned(),
    };
    let mut manager = KubeManager::new(cluster.options(), identity, BRISK);
    assert!(
        matches!(manager.hints().await, Err(KubeError::Refused { .. })),
        "no such pod"
    );
    let path = "kube-flannel/flannel-x";
    cluster.faults().change(|state| state.put_pod(path, ""));
    assert!(matches!(
        manager.hints().await,
        Err(KubeError::PodWithoutNode { .. })
    ));
    cluster
        .faults()
        .change(|state| state.put_pod(path, &cluster.node_name("own")));
    assert_eq!(
        manager
            .acquire(&request(1))
            .await
            .expect("a lease")
            .key
            .to_string(),
        "10.5.1.0-24"
    );
}

#[tokio::test]
async fn a_url_replaces_that_of_the_file_and_will_do_alone() {
    let cluster = Cluster::double("url").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let url = Some(cluster.faults().url());
    let elsewhere = cluster
        .options()
        .kubeconfig
        .map(|path| path.with_file_name("elsewhere"))
        .expect("a path");
    let text = fs::read_to_string(cluster.options().kubeconfig.expect("a path")).expect("the file");
    fs::write(
        &elsewhere,
        text.replace(&cluster.faults().url(), "http://127.0.0.1:1"),
    )
    .expect("a file");
    let broken = KubeOptions {
        kubeconfig: Some(elsewhere),
        ..cluster.options()
    };
    for (options, works) in [
        (broken.clone(), false),
        (
            KubeOptions {
                api_url: url.clone(),
                ..broken.clone()
            },
            true,
        ),
        (
            KubeOptions {
                api_url: url,
                kubeconfig: None,
                ..broken
            },
            true,
        ),
    ] {
        let mut manager =
            KubeManager::new(options, NodeIdentity::Node(cluster.node_name("own")), BRISK);
        assert_eq!(manager.hints().await.is_ok(), works);
    }
}

#[tokio::test]
async fn a_new_token_counts_at_the_next_try() {
    let cluster = Cluster::double("token").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut manager = cluster.manager("own");
    manager.hints().await.expect("any token will do");
    cluster.faults().change(|state| state.require("rotated"));
    let error = manager.hints().await.expect_err("an expired token");
    assert!(
        error
            .to_string()
            .ends_with("check the token or certificate"),
        "{error}"
    );
    cluster.write_kubeconfig("rotated");
    manager.hints().await.expect("the new token");
}

#[tokio::test]
async fn a_token_file_may_end_in_a_newline() {
    let cluster = Cluster::double("newline").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    cluster.faults().change(|state| state.require("secret"));
    cluster.write_token_file("secret\n");
    let mut manager = cluster.manager("own");
    manager
        .hints()
        .await
        .expect("the token without the newline");
    // A refusal makes the agent read the file at once.
    cluster.faults().change(|state| state.require("rotated"));
    cluster.write_token_file("rotated\n");
    manager.hints().await.expect_err("an expired token");
    manager.hints().await.expect("the new token");
    cluster.write_token_file("\n");
    let error = cluster.manager("own").hints().await.expect_err("no token");
    assert!(error.to_string().contains("token: it is empty"), "{error}");
}

#[tokio::test]
async fn an_unusable_address_of_the_operator_is_passed_over() {
    let cluster = Cluster::double("nonsense").await;
    cluster
        .add(
            "own",
            Some("10.5.1.0/24"),
            &[("public-ip-overwrite", "here")],
        )
        .await;
    cluster
        .manager("own")
        .acquire(&request(1))
        .await
        .expect("a lease");
    assert_eq!(
        cluster.annotated("own", "public-ip").await.as_deref(),
        Some("192.0.2.1")
    );
    let moved = LeaseRequest {
        attrs: LeaseAttrs {
            public_ip: attrs(2).public_ip,
            ..attrs(1)
        },
        ..request(1)
    };
    cluster
        .manager("own")
        .acquire(&moved)
        .await
        .expect("a lease");
    let patches = cluster.faults().change(|state| state.patches.clone());
    let last = patches.last().expect("a patch");
    let only_the_address =
        json!({ "metadata": { "annotations": { cluster.annotation("public-ip"): "192.0.2.2" } } });
    assert_eq!(last, &only_the_address);
    assert!(matches!(
        cluster
            .manager("absent")
            .acquire(&LeaseRequest {
                config: config(),
                ..moved
            })
            .await,
        Err(AcquireError::Store(KubeError::Refused { .. }))
    ));
}
