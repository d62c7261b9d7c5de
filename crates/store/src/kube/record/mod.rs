//! A Node, pruned while it is decoded; and a Pod of this node (`local_pod`).
//!
//! A Node object is often 16 KiB: images, addresses, capacities, managed fields. Of all that, a few
//! hundred bytes are about leases; the rest is skipped by the decoder and never held.

mod local_pod;
#[cfg(test)]
mod tests;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

pub(super) use self::local_pod::{FastPathChoice, LocalPod, PodList};
use super::prefix::AnnotationPrefix;

/// The annotation that says a node takes part. Others are [`BACKEND_TYPE`] to
/// [`NODE_GUARD_INNER`].
pub(super) const MANAGED: &str = "kube-subnet-manager";
pub(super) const BACKEND_TYPE: &str = "backend-type";
pub(super) const BACKEND_DATA: &str = "backend-data";
pub(super) const BACKEND_V6_DATA: &str = "backend-v6-data";
pub(super) const PUBLIC_IP: &str = "public-ip";
pub(super) const PUBLIC_IPV6: &str = "public-ipv6";
pub(super) const OVERWRITE_IP: &str = "public-ip-overwrite";
pub(super) const OVERWRITE_IPV6: &str = "public-ipv6-overwrite";
pub(super) const NODE_PUBLIC_IP: &str = "node-public-ip";
pub(super) const NODE_PUBLIC_IPV6: &str = "node-public-ipv6";
pub(super) const NODE_IFACE: &str = "node-iface";
pub(super) const NODE_MTU: &str = "node-mtu";
pub(super) const NODE_DATAPATH: &str = "node-datapath";
pub(super) const NODE_GUARD_OUTER: &str = "node-guard-outer";
pub(super) const NODE_GUARD_INNER: &str = "node-guard-inner";

/// The type of the condition that says whether a node's pod network works.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The annotation by which a Pod takes part in mode `fast`, or does not.
pub(super) const FAST_PATH: &str = "fast-path";

/// The endings of the annotation names that are kept. Any prefix may precede them, because a
/// decoder does not know ours.
const SUFFIXES: &[&str] = &[
    MANAGED,
    BACKEND_TYPE,
    BACKEND_DATA,
    BACKEND_V6_DATA,
    // Their `node-` forms end the same way.
    PUBLIC_IP,
    PUBLIC_IPV6,
    OVERWRITE_IP,
    OVERWRITE_IPV6,
    NODE_IFACE,
    NODE_MTU,
    NODE_DATAPATH,
    NODE_GUARD_OUTER,
    NODE_GUARD_INNER,
    FAST_PATH,
];

/// The fields of a Node that the agent reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub(super) struct NodeRecord {
    pub(super) name: String,
    /// Distinguishes a Node from an earlier one of the same name.
    pub(super) uid: String,
    /// Opaque, but for [`super::position::Position`].
    pub(super) resource_version: String,
    /// In seconds since 1970 UTC; 0 when the server does not say.
    pub(super) created: i64,
    /// As written; at most one of each family in a well-formed Node.
    pub(super) pod_cidrs: Vec<String>,
    annotations: Vec<(String, String)>,
}

impl NodeRecord {
    /// The value of one of our annotations.
    pub(super) fn annotation(&self, prefix: &AnnotationPrefix, suffix: &str) -> Option<&str> {
        let found = self
            .annotations
            .iter()
            .find(|(name, _)| prefix.suffix_of(name) == Some(suffix));
        found.map(|(_, value)| value.as_str())
    }
}

/// The condition `NetworkUnavailable` of a Node; empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ConditionsWire")]
pub(super) struct NetworkCondition {
    /// `True`, `False` or `Unknown`.
    pub(super) status: String,
    pub(super) reason: String,
}

/// One page of a list, without its items.
#[derive(Debug, Deserialize)]
pub(super) struct NodePage {
    pub(super) metadata: PageMeta,
}

/// The place of the page in the list, and of the list in history.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    /// Asks for the next page; empty on the last.
    #[serde(default, rename = "continue", deserialize_with = "or_default")]
    pub(super) next: String,
}

/// The fields of the agent's Pod that the agent reads, to find the node it runs on.
#[derive(Debug, Deserialize)]
pub(super) struct PodRecord {
    #[serde(default)]
    pub(super) spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    #[serde(default)]
    pub(super) node_name: String,
}

#[derive(Deserialize)]
struct ConditionsWire {
    #[serde(default, deserialize_with = "or_default")]
    status: StatusWire,
}

#[derive(Default, Deserialize)]
struct StatusWire {
    #[serde(default, deserialize_with = "or_default")]
    conditions: Vec<ConditionWire>,
}

#[derive(Deserialize)]
struct ConditionWire {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    status: String,
    #[serde(default, deserialize_with = "or_default")]
    reason: String,
}

impl From<ConditionsWire> for NetworkCondition {
    fn from(node: ConditionsWire) -> Self {
        let found = node
            .status
            .conditions
            .into_iter()
            .find(|condition| condition.kind == NETWORK_UNAVAILABLE);
        found.map_or_else(Self::default, |condition| Self {
            status: condition.status,
            reason: condition.reason,
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    creation_timestamp: Option<Time>,
    #[serde(default)]
    annotations: Option<Kept>,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    #[serde(rename = "podCIDR", default, deserialize_with = "or_default")]
    first: String,
    #[serde(rename = "podCIDRs", default, deserialize_with = "or_default")]
    all: Vec<String>,
}

impl From<Wire> for NodeRecord {
    fn from(Wire { metadata, spec }: Wire) -> Self {
        let first = if spec.first.is_empty() {
            Vec::new()
        } else {
            vec![spec.first]
        };
        Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            created: metadata
                .creation_timestamp
                .map_or(0, |time| time.0.as_second()),
            pod_cidrs: if spec.all.is_empty() { first } else { spec.all },
            annotations: metadata
                .annotations
                .map(|Kept(kept)| kept)
                .unwrap_or_default(),
        }
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The annotations that may be ours.
struct Kept(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeptVisitor)
    }
}

struct KeptVisitor;

impl<'de> Visitor<'de> for KeptVisitor {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept, A::Error> {
        let mut kept = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
                kept.push((name, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        kept.shrink_to_fit();
        Ok(Kept(kept))
    }
}
