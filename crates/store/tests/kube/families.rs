//! Tests of IPv6 only, of both families, and of backends without a tunnel.

use flannel_common::packet::addr::Mac;
use flannel_store::{
    Hints, LeaseAttrs, LeaseRequest, LeaseSet, OwnLease, Precedence, StoreEvent,
    SubnetManager as _, config::NetworkConfig, wait_for_hints,
};
use serde_json::json;

use crate::support::{Cluster, PATIENCE, attrs, next, publish_as};

const V4: &str = r#""Network":"10.5.0.0/16""#;
const V6: &str = r#""EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;
const V6_ONLY: &str = r#""EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;
const CIDRS: &str = "10.5.1.0/24,fd00:5:0:1::/64";

/// The request of node `n`: 192.0.2.n and 2001:db8::n, in the families of the configuration, and
/// without backend data.
fn request(families: &str, backend: &str, n: u8) -> LeaseRequest {
    let text = format!(r#"{{{families},"Backend":{{"Type":"{backend}"}}}}"#);
    let config = NetworkConfig::parse_assigned(&text).expect("a configuration");
    let attrs = LeaseAttrs {
        public_ip: config.ipv4.map(|_| [192, 0, 2, n].into()),
        public_ipv6: config
            .ipv6
            .map(|_| format!("2001:db8::{n}").parse().expect("an address")),
        backend_type: config.backend.properties().lease_name.into(),
        ..LeaseAttrs::default()
    };
    LeaseRequest {
        config,
        attrs,
        previous: None,
    }
}

/// The same with both VTEPs.
fn dual(n: u8) -> LeaseRequest {
    let request = request(&format!("{V4},{V6}"), "vxlan", n);
    let data = attrs(n).backend_data;
    LeaseRequest {
        attrs: LeaseAttrs {
            backend_v6_data: data.clone(),
            backend_data: data,
            ..request.attrs
        },
        ..request
    }
}

#[tokio::test]
async fn a_lease_is_the_nodes_subnets_of_the_families_that_are_on() {
    let both = format!("{V4},{V6}");
    for cluster in Cluster::each("dual").await {
        cluster.add("own", Some(CIDRS), &[]).await;
        for (families, expected) in [
            (V4, "10.5.1.0-24"),
            (V6_ONLY, "0.0.0.0-0&fd00:5:0:1::-64"),
            (&both, "10.5.1.0-24&fd00:5:0:1::-64"),
        ] {
            for backend in ["host-gw", "alloc"] {
                let own = cluster
                    .manager("own")
                    .acquire(&request(families, backend, 1))
                    .await
                    .expect("a lease");
                assert_eq!(
                    own,
                    OwnLease {
                        key: expected.parse().expect("a key"),
                        expires_at: None
                    }
                );
            }
        }
        // The state that alloc left, with only the annotations of IPv4.
        let annotated = cluster.node("own").await["metadata"]["annotations"].clone();
        let [managed, kind, data, ip] = [
            "kube-subnet-manager",
            "backend-type",
            "backend-data",
            "public-ip",
        ]
        .map(|suffix| cluster.annotation(suffix));
        assert_eq!(
            annotated,
            json!({ managed: "true", kind: "", data: "null", ip: "192.0.2.1" })
        );
    }
}

#[tokio::test]
async fn a_family_without_a_subnet_is_waited_for_by_name() {
    for cluster in Cluster::each("nov6").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let error = cluster
            .manager("own")
            .acquire(&dual(1))
            .await
            .expect_err("no IPv6 subnet");
        assert!(
            error.to_string().contains("has no IPv6 pod CIDR yet"),
            "{error}"
        );
        cluster
            .add("other", Some("10.5.2.0/24,fd00:6::/64"), &[])
            .await;
        let error = cluster
            .manager("other")
            .acquire(&dual(1))
            .await
            .expect_err("outside");
        assert!(
            error
                .to_string()
                .contains("the pod CIDR fd00:6::/64, which is not in the network fd00:5::/48"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_the_node_remembers_of_ipv6_is_read_back() {
    for cluster in Cluster::each("remembers").await {
        let remembered = [
            ("node-public-ipv6", "2001:db8::7"),
            ("public-ipv6-overwrite", "2001:db8::9"),
        ];
        cluster.add("own", Some(CIDRS), &remembered).await;
        cluster
            .manager("own")
            .acquire(&dual(1))
            .await
            .expect("a lease");
        assert_eq!(
            cluster.annotated("own", "public-ipv6").await.as_deref(),
            Some("2001:db8::9")
        );
        let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
        let public_ipv6 = "2001:db8::7".parse().ok();
        let hints = wait_for_hints(&mut cluster.manager("own"), |_| ()).await;
        assert_eq!(
            hints,
            Hints {
                public_ipv6,
                vtep_mac: mac,
                vtep_mac_v6: mac,
                ..Hints::default()
            }
        );
    }
}

#[tokio::test]
async fn peers_are_met_in_the_families_they_have_and_a_mistake_costs_one() {
    for cluster in Cluster::each("meet").await {
        cluster.add("own", Some(CIDRS), &[]).await;
        cluster.add_peer(2).await;
        let data = |mac: &str| format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac}"}}"#);
        let head = [("kube-subnet-manager", "true"), ("backend-type", "vxlan")];
        let (four, six) = (data("14"), data("16"));
        let v6 = [("public-ipv6", "2001:db8::3"), ("backend-v6-data", &six)];
        cluster
            .add(
                "peer3",
                Some("10.5.3.0/24,fd00:5:0:3::/64"),
                &[&head[..], &v6].concat(),
            )
            .await;
        let broken = [
            ("public-ip", "192.0.2.4"),
            ("backend-data", &four),
            ("public-ipv6", "2001:db8::4"),
            ("backend-v6-data", "{"),
        ];
        cluster
            .add(
                "peer4",
                Some("10.5.4.0/24,fd00:5:0:4::/64"),
                &[&head[..], &broken].concat(),
            )
            .await;

        let (_, mut events) = publish_as(cluster.manager("own"), dual(1)).await;
        let event = tokio::time::timeout(PATIENCE, events.recv())
            .await
            .expect("in time")
            .expect("a running manager");
        assert!(matches!(event, StoreEvent::InSync { .. }), "{event:?}");
        let mut set = LeaseSet::new(&dual(1).config, Precedence::FirstCreated, dual(1).attrs);
        set.apply(event);
        let resolved = set.resolve();
        let peers: Vec<_> = resolved
            .peers
            .iter()
            .map(|peer| format!("{} {}", peer.subnet, peer.public_ip))
            .collect();
        assert_eq!(
            peers,
            [
                "10.5.2.0/24 192.0.2.2",
                "10.5.4.0/24 192.0.2.4",
                "fd00:5:0:3::/64 2001:db8::3"
            ]
        );
        let reasons: Vec<_> = resolved.rejected.iter().map(ToString::to_string).collect();
        let expected = format!(
            "lease {:?} (IPv6): malformed value: backend-v6-data is not JSON",
            cluster.node_name("peer4")
        );
        assert!(
            reasons.len() == 1 && reasons[0].starts_with(&expected),
            "{reasons:?}"
        );
    }
}

/// However many Nodes there are, only ours is asked for; and it is followed.
#[tokio::test]
async fn without_peers_only_our_own_node_is_watched() {
    for cluster in Cluster::each("alone").await {
        cluster.add("own", Some(CIDRS), &[]).await;
        cluster.add_peer(2).await;
        let (attrs, mut events) = publish_as(cluster.manager("own"), request(V4, "alloc", 1)).await;
        assert_eq!(next(&mut events).await, "=");
        cluster.add_peer(3).await;
        cluster
            .annotate("own", "public-ip", Some("192.0.2.99"))
            .await;
        let ip = cluster.annotation("public-ip");
        let says = |node: &serde_json::Value, wanted: &str| {
            (node["metadata"]["annotations"][&ip] == wanted).then_some(())
        };
        cluster
            .eventually("own", |node| says(node, "192.0.2.1"))
            .await;
        attrs.send_modify(|attrs| attrs.public_ip = Some([192, 0, 2, 5].into()));
        cluster
            .eventually("own", |node| says(node, "192.0.2.5"))
            .await;
        cluster.remove("own").await;
        assert_eq!(
            next(&mut events).await,
            "lost 10.5.1.0-24: the Node was deleted",
            "and not a word of others"
        );
        cluster.add("own", Some("10.5.7.0/24"), &[]).await;
        assert_eq!(next(&mut events).await, "own 10.5.7.0-24");
    }
}
