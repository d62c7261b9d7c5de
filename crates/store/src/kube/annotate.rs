//! Our own Node: what we write on it, and what we read back. Pure.
//!
//! Only annotations that differ are written. Those of a family that is off are removed from the
//! Node, so that peers do not send to an address that does not answer.
//!
//! The set of annotations depends on the backend, as in flannel. vxlan has those of each family
//! that is on. The other backends always have those of IPv4, with the address `0.0.0.0` where IPv4
//! is off; of these, host-gw and wireguard also have those of IPv6 where IPv6
//! is on.

use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use serde_json::{Map, Value, json};
use tracing::warn;

use super::{
    entry::Annotations,
    record::{
        BACKEND_DATA, BACKEND_TYPE, BACKEND_V6_DATA, MANAGED, NODE_PUBLIC_IP, NODE_PUBLIC_IPV6,
        OVERWRITE_IP, OVERWRITE_IPV6, PUBLIC_IP, PUBLIC_IPV6,
    },
    settings::settings,
};
use crate::{
    config::{AnnotatedAddresses, BackendKind, EndKind},
    {Hints, LeaseAttrs, RawJson, VxlanData},
};

/// The strategic-merge patch that makes the Node say what we are; `None` when it does already.
pub(super) fn patch_for(own: &Annotations<'_>, attrs: &LeaseAttrs) -> Option<Value> {
    let v4 = attrs
        .public_ip
        .map(|detected| overwritten(own, OVERWRITE_IP, detected));
    let v6 = attrs
        .public_ipv6
        .map(|detected| overwritten(own, OVERWRITE_IPV6, detected));
    let off = || Some(Ipv4Addr::UNSPECIFIED.to_string());
    let (v4, v6) =
        match BackendKind::of_lease(&attrs.backend_type).map(|kind| kind.properties().annotated) {
            Some(AnnotatedAddresses::OfFamilies) | None => (v4, v6),
            Some(AnnotatedAddresses::Ipv4Always) => (v4.or_else(off), v6),
            Some(AnnotatedAddresses::Ipv4Only) => (v4.or_else(off), None),
        };
    let data = |family: &Option<String>, data: &Option<RawJson>| {
        family
            .as_ref()
            .map(|_| data.as_ref().map_or("null", RawJson::text).to_owned())
    };
    let wanted = [
        (MANAGED, Some("true".to_owned())),
        (BACKEND_TYPE, Some(attrs.backend_type.to_string())),
        (BACKEND_DATA, data(&v4, &attrs.backend_data)),
        (BACKEND_V6_DATA, data(&v6, &attrs.backend_v6_data)),
        (PUBLIC_IP, v4),
        (PUBLIC_IPV6, v6),
    ];
    let differs = |(suffix, value): &(&str, Option<String>)| {
        own.node.annotation(own.prefix, suffix) != value.as_deref()
    };
    let changes: Map<_, _> = wanted
        .into_iter()
        .filter(differs)
        .map(|(suffix, value)| (own.prefix.name(suffix), value.into()))
        .collect();
    (!changes.is_empty()).then(|| json!({ "metadata": { "annotations": changes } }))
}

/// The address to publish: the operator's, if there is one that can be read.
fn overwritten<A: FromStr + Copy + Into<IpAddr> + Display>(
    own: &Annotations<'_>,
    suffix: &'static str,
    detected: A,
) -> String {
    readable(own, suffix).unwrap_or(detected).to_string()
}

fn readable<A: FromStr + Copy + Into<IpAddr>>(
    own: &Annotations<'_>,
    suffix: &'static str,
) -> Option<A> {
    own.address(suffix).unwrap_or_else(|bad| {
        let (node, prefix) = (&own.node.name, own.prefix);
        warn!(
            "the annotation {prefix}{suffix} of node {node} is ignored: {bad}; correct or remove it"
        );
        None
    })
}

/// Returns the facts that our Node remembers, from its annotations.
pub(super) fn hints(own: &Annotations<'_>) -> Hints {
    Hints {
        public_ip: readable(own, NODE_PUBLIC_IP),
        public_ipv6: readable(own, NODE_PUBLIC_IPV6),
        vtep_mac: stored_mac(own, BACKEND_DATA),
        vtep_mac_v6: stored_mac(own, BACKEND_V6_DATA),
        settings: settings(own),
    }
}

fn stored_mac(
    own: &Annotations<'_>,
    suffix: &'static str,
) -> Option<flannel_common::packet::addr::Mac> {
    own.get(BACKEND_TYPE)
        .and_then(BackendKind::of_lease)
        .filter(|kind| kind.properties().end == EndKind::Vtep)?;
    let data = own.data(suffix).ok().flatten()?;
    VxlanData::parse(&data)
        .ok()
        .map(|data| data.vtep_mac)
        .filter(|mac| mac.is_unicast())
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::addr::Mac;

    use super::*;
    use crate::kube::{prefix::AnnotationPrefix, record::NodeRecord};

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const DATA: &str = r#"{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:01\"}"#;

    fn attrs() -> LeaseAttrs {
        LeaseAttrs {
            public_ip: Some([192, 0, 2, 1].into()),
            backend_type: "vxlan".into(),
            backend_data: Some(
                VxlanData {
                    vni: Some(1),
                    vtep_mac: MAC,
                    zero_checksum_v6: false,
                    other_source: false,
                }
                .to_json(),
            ),
            ..LeaseAttrs::default()
        }
    }

    fn with<T>(annotations: &str, test: impl Fn(&Annotations<'_>) -> T) -> T {
        let text = format!(r#"{{"metadata":{{"name":"a","annotations":{{{annotations}}}}}}}"#);
        let node: NodeRecord =
            serde_json::from_str(&text.replace("p/", "org.com/x-")).expect("a node");
        let prefix: AnnotationPrefix = "org.com/x".parse().expect("a prefix");
        test(&Annotations {
            node: &node,
            prefix: &prefix,
        })
    }

    fn changes(annotations: &str, attrs: &LeaseAttrs) -> String {
        with(annotations, |own| {
            patch_for(own, attrs).map_or("none".to_owned(), |patch| patch.to_string())
        })
    }

    fn complete() -> String {
        format!(
            r#""p/kube-subnet-manager":"true","p/backend-type":"vxlan","p/backend-data":"{DATA}","p/public-ip":"192.0.2.1""#
        )
    }

    #[test]
    fn only_what_differs_is_written() {
        let all = format!(
            r#"{{"metadata":{{"annotations":{{"org.com/x-kube-subnet-manager":"true","org.com/x-backend-type":"vxlan","org.com/x-backend-data":"{DATA}","org.com/x-public-ip":"192.0.2.1"}}}}}}"#
        );
        assert_eq!(changes("", &attrs()), all);
        assert_eq!(changes(&complete(), &attrs()), "none");
        let moved = complete().replace("192.0.2.1", "192.0.2.9");
        assert_eq!(
            changes(&moved, &attrs()),
            r#"{"metadata":{"annotations":{"org.com/x-public-ip":"192.0.2.1"}}}"#
        );
    }

    #[test]
    fn a_family_that_is_off_is_taken_off() {
        let stale = format!(
            r#"{},"p/public-ipv6":"fd00::1","p/backend-v6-data":"null""#,
            complete()
        );
        let removed = r#"{"metadata":{"annotations":{"org.com/x-backend-v6-data":null,"org.com/x-public-ipv6":null}}}"#;
        assert_eq!(changes(&stale, &attrs()), removed);
        let dual = LeaseAttrs {
            public_ipv6: "fd00::1".parse().ok(),
            ..attrs()
        };
        assert_eq!(changes(&stale, &dual), "none", "no data is written as null");
    }

    /// Returns the annotations that a Node without any gets, without the prefix.
    fn annotated(backend: &str, v4: bool, v6: bool) -> String {
        let data = VxlanData {
            vni: Some(1),
            vtep_mac: MAC,
            zero_checksum_v6: false,
            other_source: false,
        };
        let data = |on: bool| (on && backend == "vxlan").then(|| data.to_json());
        let attrs = LeaseAttrs {
            public_ip: v4.then_some([192, 0, 2, 1].into()),
            public_ipv6: v6.then(|| "2001:db8::1".parse().expect("an address")),
            backend_type: backend.to_owned().into(),
            backend_data: data(v4),
            backend_v6_data: data(v6),
        };
        let patch: Value = serde_json::from_str(&changes("", &attrs)).expect("JSON");
        let lines = patch["metadata"]["annotations"]
            .as_object()
            .expect("annotations")
            .iter();
        let line = |(name, value): (&String, &Value)| {
            format!(
                "{}={}\n",
                &name["org.com/x-".len()..],
                value.as_str().expect("text")
            )
        };
        lines.map(line).collect::<Vec<_>>().concat()
    }

    #[test]
    fn each_backend_has_flannels_annotations() {
        let (v4, v6) = ("public-ip=192.0.2.1\n", "public-ipv6=2001:db8::1\n");
        let data = "{\"VNI\":1,\"VtepMAC\":\"02:00:00:00:00:01\"}";
        let head = |backend: &str| format!("kube-subnet-manager=true\nbackend-type={backend}\n");
        let (vxlan, host_gw, alloc) = (head("vxlan"), head("host-gw"), head(""));
        let (d4, d6) = (
            format!("backend-data={data}\n"),
            format!("backend-v6-data={data}\n"),
        );
        let (n4, n6) = ("backend-data=null\n", "backend-v6-data=null\n");
        for (backend, on, expected) in [
            ("vxlan", (true, false), format!("{vxlan}{d4}{v4}")),
            ("vxlan", (false, true), format!("{vxlan}{d6}{v6}")),
            ("vxlan", (true, true), format!("{vxlan}{d4}{d6}{v4}{v6}")),
            ("host-gw", (true, false), format!("{host_gw}{n4}{v4}")),
            (
                "host-gw",
                (false, true),
                format!("{host_gw}{n4}{n6}public-ip=0.0.0.0\n{v6}"),
            ),
            (
                "host-gw",
                (true, true),
                format!("{host_gw}{n4}{n6}{v4}{v6}"),
            ),
            ("", (true, false), format!("{alloc}{n4}{v4}")),
            ("", (false, true), format!("{alloc}{n4}public-ip=0.0.0.0\n")),
            ("", (true, true), format!("{alloc}{n4}{v4}")),
        ] {
            assert_eq!(annotated(backend, on.0, on.1), expected, "{backend} {on:?}");
        }
    }

    #[test]
    fn the_operators_ipv6_address_is_published_and_none_of_a_family_that_is_off() {
        let overwrites =
            r#""p/public-ip-overwrite":"203.0.113.1","p/public-ipv6-overwrite":"2001:db8:9::1""#;
        let host_gw = LeaseAttrs {
            public_ipv6: "2001:db8::1".parse().ok(),
            backend_type: "host-gw".into(),
            ..LeaseAttrs::default()
        };
        let patch = changes(overwrites, &host_gw);
        assert!(
            patch.contains(r#"public-ipv6":"2001:db8:9::1""#)
                && patch.contains(r#"public-ip":"0.0.0.0""#),
            "{patch}"
        );
    }

    #[test]
    fn the_operators_address_is_published_instead_of_ours() {
        let overwritten = format!(r#"{},"p/public-ip-overwrite":"203.0.113.1""#, complete());
        let patch = r#"{"metadata":{"annotations":{"org.com/x-public-ip":"203.0.113.1"}}}"#;
        assert_eq!(changes(&overwritten, &attrs()), patch);
        for nonsense in ["", "here", "fd00::1", "0.0.0.0"] {
            assert_eq!(
                changes(&overwritten.replace("203.0.113.1", nonsense), &attrs()),
                "none",
                "{nonsense}"
            );
        }
    }

    #[test]
    fn what_the_node_remembers_is_read_back() {
        let v6 = r#""p/backend-v6-data":"{\"VtepMAC\":\"02:00:00:00:00:06\",\"VNI\":1}""#;
        let more = format!(
            r#"{},{v6},"p/node-public-ip":"203.0.113.7","p/node-public-ipv6":"x""#,
            complete()
        );
        let expected = Hints {
            public_ip: Some([203, 0, 113, 7].into()),
            vtep_mac: Some(MAC),
            vtep_mac_v6: Some(Mac([2, 0, 0, 0, 0, 6])),
            ..Hints::default()
        };
        assert_eq!(with(&more, hints), expected);
        for other in [
            "",
            &complete().replace("vxlan", "host-gw"),
            &complete().replace("02:00", "03:00"),
        ] {
            assert_eq!(with(other, hints), Hints::default(), "{other}");
        }
    }
}
