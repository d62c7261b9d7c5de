//! The fields of a Pod of this node that mode `fast` needs.

use std::net::IpAddr;

use serde::Deserialize;

use super::{FAST_PATH, Kept, PageMeta, or_default};
use crate::kube::prefix::AnnotationPrefix;

/// The fields of such a Pod that the agent reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
pub(in crate::kube) struct LocalPod {
    /// The name with its namespace: `default/db`.
    pub(in crate::kube) name: String,
    pub(in crate::kube) resource_version: String,
    /// The addresses in the pod network; empty once the Pod has ended, when others may have them.
    pub(in crate::kube) addresses: Vec<IpAddr>,
    annotations: Vec<(String, String)>,
}

/// The choice of a Pod for mode `fast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kube) enum FastPathChoice<'a> {
    /// Nothing, or to take part as all do.
    In,
    /// To stay out.
    Out,
    /// An annotation with any other value. The Pod stays out, because the kernel path is always
    /// correct.
    Unclear(&'a str),
}

impl LocalPod {
    /// Returns the choice that its annotation makes.
    pub(in crate::kube) fn fast_path_choice(
        &self,
        prefix: &AnnotationPrefix,
    ) -> FastPathChoice<'_> {
        let said = self
            .annotations
            .iter()
            .find(|(name, _)| prefix.suffix_of(name) == Some(FAST_PATH));
        match said.map(|(_, value)| value.as_str()) {
            None | Some("true") => FastPathChoice::In,
            Some("false") => FastPathChoice::Out,
            Some(other) => FastPathChoice::Unclear(other),
        }
    }
}

/// The Pods of our node.
#[derive(Debug, Deserialize)]
pub(in crate::kube) struct PodList {
    pub(in crate::kube) metadata: PageMeta,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::kube) items: Vec<LocalPod>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "or_default")]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    annotations: Option<Kept>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default, deserialize_with = "or_default")]
    host_network: bool,
}

#[derive(Default, Deserialize)]
struct WireStatus {
    #[serde(default, deserialize_with = "or_default")]
    phase: String,
    #[serde(rename = "podIP", default, deserialize_with = "or_default")]
    first: String,
    #[serde(rename = "podIPs", default, deserialize_with = "or_default")]
    all: Vec<WireAddress>,
}

#[derive(Deserialize)]
struct WireAddress {
    #[serde(default)]
    ip: String,
}

impl From<Wire> for LocalPod {
    fn from(
        Wire {
            metadata,
            spec,
            status,
        }: Wire,
    ) -> Self {
        let has_own =
            !spec.host_network && !["Succeeded", "Failed"].contains(&status.phase.as_str());
        let written = status
            .all
            .into_iter()
            .map(|address| address.ip)
            .chain([status.first]);
        Self {
            name: format!("{}/{}", metadata.namespace, metadata.name),
            resource_version: metadata.resource_version,
            addresses: written
                .filter(|_| has_own)
                .filter_map(|address| address.parse().ok())
                .collect(),
            annotations: metadata
                .annotations
                .map(|Kept(kept)| kept)
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotations: &Value, host_network: bool, phase: &str) -> LocalPod {
        let text = json!({
            "metadata": {
                "namespace": "default",
                "name": "db",
                "resourceVersion": "7",
                "annotations": annotations,
            },
            "spec": {
                "hostNetwork": host_network,
                "nodeName": "a",
                "containers": [{ "name": "x" }],
            },
            "status": {
                "phase": phase,
                "podIP": "10.5.1.2",
                "podIPs": [{ "ip": "10.5.1.2" }, { "ip": "fd00:5:1::2" }],
            },
        });
        serde_json::from_str(&text.to_string()).expect("a pod")
    }

    #[test]
    fn only_false_and_what_is_no_word_of_ours_opts_out() {
        let prefix = AnnotationPrefix::default();
        let said = |value: &str| {
            pod(
                &json!({ "flannel.alpha.coreos.com/fast-path": value, "x": "y" }),
                false,
                "Running",
            )
        };
        assert_eq!(said("true").fast_path_choice(&prefix), FastPathChoice::In);
        assert_eq!(said("false").fast_path_choice(&prefix), FastPathChoice::Out);
        assert_eq!(
            said("off").fast_path_choice(&prefix),
            FastPathChoice::Unclear("off")
        );
        let strangers = json!({ "other.com/fast-path": "false" });
        for none in [Value::Null, json!({}), strangers] {
            assert_eq!(
                pod(&none, false, "Running").fast_path_choice(&prefix),
                FastPathChoice::In,
                "{none}"
            );
        }
    }

    #[test]
    fn addresses_are_the_pod_s_own_and_only_while_it_has_them() {
        let count = |host_network, phase| pod(&Value::Null, host_network, phase).addresses.len();
        assert_eq!(
            [count(false, "Pending"), count(false, "Running")],
            [3, 3],
            "of both families, the first one twice"
        );
        assert_eq!(
            [
                count(true, "Running"),
                count(false, "Succeeded"),
                count(false, "Failed")
            ],
            [0; 3]
        );
        let bare: LocalPod =
            serde_json::from_str(r#"{"metadata":{"name":"x"},"spec":{},"status":null}"#)
                .expect("a pod");
        assert_eq!((bare.name.as_str(), bare.addresses.len()), ("/x", 0));
    }
}
