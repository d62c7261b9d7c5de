//! Tests of the fields that are kept of a Node, and of their small size.

use super::*;
use crate::kube::entry::{Families, entry_of};

/// A Node as a busy cluster has it: 16 KiB, of which little is about leases.
fn fat_node(n: usize) -> String {
    let images: Vec<_> = (0..90)
        .map(|i| {
            format!(
                r#"{{"names":["registry.example/{i}@sha256:{:064x}"],"sizeBytes":{i}}}"#,
                n + i
            )
        })
        .collect();
    let managed = "x".repeat(4096);
    let (high, low) = (n / 256, n % 256);
    let node = format!(
        r#"{{"kind":"Node","metadata":{{"name":"node-{n}","uid":"u-{n}","resourceVersion":"{n}","creationTimestamp":"2026-01-02T03:04:05Z","annotations":{{"volumes.kubernetes.io/controller-managed-attach-detach":"true","node.alpha.kubernetes.io/notes":"{managed}","flannel.alpha.coreos.com/backend-data":"{{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:{high:02x}:{low:02x}\"}}","flannel.alpha.coreos.com/backend-type":"vxlan","flannel.alpha.coreos.com/kube-subnet-manager":"true","flannel.alpha.coreos.com/public-ip":"192.0.{high}.{low}"}},"managedFields":[{{"fieldsV1":{{"f:x":"{managed}"}}}}]}},"spec":{{"podCIDR":"10.{high}.{low}.0/24","podCIDRs":["10.{high}.{low}.0/24"],"taints":[]}},"status":{{"images":[{}]}}}}"#,
        images.join(",")
    );
    assert!(node.len() >= 16 << 10, "{}", node.len());
    node
}

#[test]
fn only_what_is_about_leases_is_read() {
    let record: NodeRecord = serde_json::from_str(&fat_node(300)).expect("a node");
    let prefix = AnnotationPrefix::default();
    assert_eq!(
        (
            record.name.as_str(),
            record.uid.as_str(),
            record.resource_version.as_str()
        ),
        ("node-300", "u-300", "300")
    );
    assert_eq!(record.created, 1_767_323_045);
    assert_eq!(record.pod_cidrs, ["10.1.44.0/24"]);
    assert_eq!(record.annotation(&prefix, MANAGED), Some("true"));
    assert_eq!(record.annotation(&prefix, PUBLIC_IP), Some("192.0.1.44"));
    assert_eq!(record.annotation(&prefix, BACKEND_V6_DATA), None);
    assert_eq!(record.annotations.len(), 4);
}

#[test]
fn odd_nodes_are_read_as_well() {
    for (text, cidrs) in [
        (r#"{"metadata":{"name":"a"}}"#, &[][..]),
        (
            r#"{"metadata":{"name":"a","annotations":null,"creationTimestamp":null},"spec":null}"#,
            &[],
        ),
        (
            r#"{"metadata":{"name":"a"},"spec":{"podCIDR":"10.1.0.0/24"}}"#,
            &["10.1.0.0/24"],
        ),
        (
            r#"{"metadata":{"name":"a"},"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24","fd00::/64"]}}"#,
            &["10.1.0.0/24", "fd00::/64"],
        ),
    ] {
        let record: NodeRecord = serde_json::from_str(text).expect(text);
        assert_eq!((record.name.as_str(), record.created), ("a", 0), "{text}");
        assert_eq!(record.pod_cidrs, cidrs, "{text}");
    }
    let page: NodePage =
        serde_json::from_str(r#"{"metadata":{"resourceVersion":"7"},"items":null}"#)
            .expect("a page");
    assert!(page.metadata.next.is_empty());
}

/// Bytes on the heap and in place.
fn size_of_record(record: &NodeRecord) -> usize {
    let texts = [&record.name, &record.uid, &record.resource_version];
    let pairs = record
        .annotations
        .iter()
        .flat_map(|(name, value)| [name, value]);
    let heap: usize = texts
        .into_iter()
        .chain(pairs)
        .chain(&record.pod_cidrs)
        .map(String::capacity)
        .sum();
    size_of::<NodeRecord>() + heap + record.annotations.capacity() * size_of::<(String, String)>()
}

#[test]
fn five_thousand_nodes_fit_into_a_few_megabytes() {
    let (mut read, mut records, mut kept) = (0, 0, 0);
    let entries: Vec<_> = (0..5000)
        .map(|n| {
            let text = fat_node(n);
            let record: NodeRecord = serde_json::from_str(&text).expect("a node");
            (read, records) = (read + text.len(), records + size_of_record(&record));
            entry_of(
                &record,
                &AnnotationPrefix::default(),
                Families { v4: true, v6: true },
            )
            .expect("a lease")
        })
        .collect();
    for entry in &entries {
        let attrs = &entry.lease.as_ref().expect("a good lease").attrs;
        let data = attrs
            .backend_data
            .as_ref()
            .map_or(0, |data| data.text().len());
        kept += size_of_val(entry) + entry.name.len() + attrs.backend_type.len() + data;
    }
    assert!(read > 80_000_000, "{read}");
    assert!(records < 5000 * 1024, "{records} bytes of records");
    assert!(kept < 5000 * 512, "{kept} bytes of entries");
}
