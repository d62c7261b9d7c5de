//! Nodes of any content: no panic, no Node harms another, and what we write settles what was to be
//! written.

use flannel_common::packet::addr::Mac;
use kube::core::WatchEvent;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    annotate::{hints, patch_for},
    entry::{Annotations, Families, entry_of},
    items::ListText,
    prefix::AnnotationPrefix,
    prune::Pruner,
    record::{NodePage, NodeRecord},
};
use crate::{
    config::NetworkConfig,
    {LeaseAttrs, LeaseSet, Precedence, VxlanData, properties::noise::damaged},
};

const BOTH: Families = Families { v4: true, v6: true };
const DUAL: &str = r#"{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"vxlan"}}"#;

/// Returns the annotations that stock flannel leaves on node `n`.
fn annotations(n: u8) -> Value {
    let data = |family: u8| format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:{family:02x}:{n:02x}"}}"#);
    let prefix = "flannel.alpha.coreos.com/";
    json!({
        format!("{prefix}kube-subnet-manager"): "true",
        format!("{prefix}backend-type"): "vxlan",
        format!("{prefix}backend-data"): data(4),
        format!("{prefix}backend-v6-data"): data(6),
        format!("{prefix}public-ip"): format!("192.0.2.{n}"),
        format!("{prefix}public-ipv6"): format!("2001:db8::{n:x}"),
        format!("{prefix}public-ip-overwrite"): format!("198.51.100.{n}"),
        "node.alpha.kubernetes.io/ttl": "0",
    })
}

fn node(n: u8, annotations: &Value) -> Value {
    let cidrs = [format!("10.5.{n}.0/24"), format!("fd00:5:0:{n:x}::/64")];
    let meta = json!({
        "name": format!("node{n}"), "uid": format!("u{n}"), "resourceVersion": "7",
        "creationTimestamp": format!("2026-01-02T03:04:{n:02}Z"), "annotations": annotations,
    });
    json!({
        "kind": "Node",
        "metadata": meta,
        "spec": { "podCIDR": cidrs[0], "podCIDRs": cidrs },
        "status": {},
    })
}

fn read(node: &Value) -> NodeRecord {
    serde_json::from_value(node.clone()).expect("a node")
}

fn with_one_good() -> LeaseSet {
    let data = |family| {
        Some(
            VxlanData {
                vni: Some(1),
                vtep_mac: Mac([2, 0, 0, 0, family, 1]),
                zero_checksum_v6: false,
                other_source: false,
            }
            .to_json(),
        )
    };
    let own = LeaseAttrs {
        public_ip: Some([192, 0, 2, 1].into()),
        public_ipv6: "2001:db8::1".parse().ok(),
        backend_type: "vxlan".into(),
        backend_data: data(4),
        backend_v6_data: data(6),
    };
    let mut set = LeaseSet::new(
        &NetworkConfig::parse_assigned(DUAL).expect("a configuration"),
        Precedence::FirstCreated,
        own,
    );
    set.set_own_key("10.5.1.0-24&fd00:5:0:1::-64".parse().expect("our key"));
    let good = read(&node(2, &annotations(2)));
    set.put(entry_of(&good, &AnnotationPrefix::default(), BOTH).expect("a lease"));
    set
}

/// The values of the annotations are anybody's text; everything else on a Node the server has
/// checked.
fn node_of_any_annotations() -> impl Strategy<Value = Value> {
    damaged(annotations(3).to_string()).prop_map(|bytes| {
        let texts = match serde_json::from_slice::<Value>(&bytes) {
            Ok(Value::Object(members)) => members
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(text) => (name, Value::String(text)),
                    other => (name, Value::String(other.to_string())),
                })
                .collect(),
            _ => serde_json::Map::new(),
        };
        node(3, &texts.into())
    })
}

proptest! {
    #[test]
    fn no_annotation_harms_another_node(node in node_of_any_annotations()) {
        let mut set = with_one_good();
        let Some(entry) = entry_of(&read(&node), &AnnotationPrefix::default(), BOTH) else {
            return Ok(());
        };
        set.put(entry);
        let resolved = set.resolve();
        let good = resolved
            .peers
            .iter()
            .filter(|peer| *peer.key == *"node2")
            .count();
        prop_assert_eq!(good, 2, "{:?}", resolved);
        let reported = resolved
            .peers
            .iter()
            .map(|peer| &*peer.key)
            .chain(resolved.rejected.iter().map(|rejected| &*rejected.key));
        prop_assert!(
            reported.into_iter().any(|key| key == "node3"),
            "{resolved:?}"
        );
    }

    #[test]
    fn no_object_of_a_stream_is_more_than_unreadable(
        line in damaged(node(3, &annotations(3)).to_string()),
    ) {
        read_object(&line);
    }

    #[test]
    fn what_we_write_settles_it(node in node_of_any_annotations(), v6 in any::<bool>()) {
        let prefix = AnnotationPrefix::default();
        let attrs = LeaseAttrs {
            public_ip: Some([192, 0, 2, 9].into()),
            public_ipv6: "2001:db8::9".parse().ok().filter(|_| v6),
            backend_type: "vxlan".into(),
            backend_data: Some(
                VxlanData {
                    vni: Some(1),
                    vtep_mac: Mac([2; 6]),
                    zero_checksum_v6: false,
                    other_source: false,
                }
                .to_json(),
            ),
            ..LeaseAttrs::default()
        };
        let record = read(&node);
        let Some(patch) = patch_for(
            &Annotations {
                node: &record,
                prefix: &prefix,
            },
            &attrs,
        ) else {
            return Ok(());
        };
        let mut written = node;
        for (name, value) in patch["metadata"]["annotations"]
            .as_object()
            .expect("annotations")
        {
            let annotations = written["metadata"]["annotations"]
                .as_object_mut()
                .expect("annotations");
            if value.is_null() {
                annotations.remove(name)
            } else {
                annotations.insert(name.clone(), value.clone())
            };
        }
        let record = read(&written);
        prop_assert_eq!(
            patch_for(
                &Annotations {
                    node: &record,
                    prefix: &prefix
                },
                &attrs
            ),
            None
        );
    }
}

/// Reads an object as each place of the API server's answers has it.
fn read_object(line: &[u8]) {
    let wrapped = [b"{\"type\":\"MODIFIED\",\"object\":".as_slice(), line, b"}"].concat();
    let page = [
        b"{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[".as_slice(),
        line,
        b"]}",
    ]
    .concat();
    let mut of_page = None;
    let mut list = ListText::default();
    let listed = list.push(&page, |item| {
        serde_json::from_slice::<NodeRecord>(item).map(|node| of_page = Some(node))
    });
    let is_whole = listed.is_ok() && serde_json::from_slice::<NodePage>(list.frame()).is_ok();
    let mut pruned = Vec::new();
    Pruner::default().prune(line, &mut pruned);
    let read = [
        serde_json::from_slice::<NodeRecord>(line).ok(),
        serde_json::from_slice::<NodeRecord>(&pruned).ok(),
        of_page.filter(|_| is_whole),
        match serde_json::from_slice::<WatchEvent<NodeRecord>>(&wrapped) {
            Ok(WatchEvent::Modified(node)) => Some(node),
            _ => None,
        },
    ];
    for node in read.into_iter().flatten() {
        for families in [
            BOTH,
            Families {
                v4: true,
                v6: false,
            },
            Families {
                v4: false,
                v6: true,
            },
        ] {
            let entry = entry_of(&node, &AnnotationPrefix::default(), families);
            assert!(entry.is_none_or(|entry| *entry.name == *node.name));
        }
        hints(&Annotations {
            node: &node,
            prefix: &AnnotationPrefix::default(),
        });
    }
}

/// The first byte is the size of the pieces in which the text arrives.
#[test]
fn fuzz_kube_nodes() {
    let whole = node(3, &annotations(3)).to_string();
    let error = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
    let seeds = [
        format!("\u{1}{whole}"),
        format!("@{whole}"),
        format!("\u{7}{error}"),
    ];
    flannel_fuzz::run(
        "kube_nodes",
        &seeds.each_ref().map(String::as_bytes),
        |input| {
            let Some((size, line)) = input.split_first() else {
                return;
            };
            read_object(line);
            let (mut at_once, mut in_pieces) = (Vec::new(), Vec::new());
            Pruner::default().prune(line, &mut at_once);
            let mut pruner = Pruner::default();
            line.chunks(usize::from(*size).max(1))
                .for_each(|piece| pruner.prune(piece, &mut in_pieces));
            assert!(at_once == in_pieces, "the size of pieces decides nothing");
            for event in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"] {
                let wrapped = [
                    format!("{{\"type\":\"{event}\",\"object\":").as_bytes(),
                    line,
                    b"}",
                ]
                .concat();
                drop(serde_json::from_slice::<WatchEvent<NodeRecord>>(&wrapped));
            }
        },
    );
}
