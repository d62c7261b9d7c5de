//! Nodes, Pods and Services as the API server sends them, pruned while they are decoded.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// One page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub struct ListPage<T> {
    /// The place of the page in the list.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new", deserialize_with = "or_default")]
    pub items: Vec<T>,
}

/// The place of a page in its list.
#[derive(Debug, Default, Deserialize)]
pub struct ListMeta {
    /// Asks for the next page; empty on the last.
    #[serde(default, rename = "continue", deserialize_with = "or_default")]
    pub next: String,
}

/// Any object.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Meta {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The labels.
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(default, deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
    /// The objects that made it.
    #[serde(rename = "ownerReferences", default, deserialize_with = "or_default")]
    pub owners: Vec<Owner>,
    /// The time at which it was asked to go; empty while it is to stay.
    #[serde(rename = "deletionTimestamp", default, deserialize_with = "or_default")]
    pub deleted: String,
}

/// An object that made another.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Owner {
    /// Its kind, such as `DaemonSet`.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// An object whose content is not read.
#[derive(Clone, Debug, Deserialize)]
pub struct AnyObject {}

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeObject {
    /// Name, labels and annotations.
    pub metadata: Meta,
    /// The part that the cluster assigns.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// The part that the node reports.
    #[serde(default, deserialize_with = "or_default")]
    pub status: NodeState,
}

/// The part of a Node that the cluster assigns.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeSpec {
    /// The subnet of its pods.
    #[serde(rename = "podCIDR", default, deserialize_with = "or_default")]
    pub first: String,
    /// The subnets of its pods, one per family.
    #[serde(rename = "podCIDRs", default, deserialize_with = "or_default")]
    pub all: Vec<String>,
}

/// The part of a Node that it reports.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeState {
    /// Ready, NetworkUnavailable and others.
    #[serde(default, deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// Its addresses and names.
    #[serde(default, deserialize_with = "or_default")]
    pub addresses: Vec<NodeAddress>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Condition {
    /// The name, such as `Ready`.
    #[serde(rename = "type", default)]
    pub name: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The reason, in words.
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

/// An address of a Node, or a name.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `Hostname` or another.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The address.
    #[serde(default)]
    pub address: String,
}

/// All of them; the first, if there is one, where an old Kubernetes names no others.
fn all_or_first(all: &[String], first: &str) -> Vec<String> {
    if !all.is_empty() {
        all.to_vec()
    } else if first.is_empty() {
        Vec::new()
    } else {
        vec![first.to_owned()]
    }
}

impl NodeObject {
    /// The subnets of its pods.
    pub fn subnets(&self) -> Vec<String> {
        all_or_first(&self.spec.all, &self.spec.first)
    }

    /// The addresses at which other nodes reach it.
    pub fn internal_addresses(&self) -> impl Iterator<Item = &str> {
        let addresses = self
            .status
            .addresses
            .iter()
            .filter(|address| address.kind == "InternalIP");
        addresses.map(|address| address.address.as_str())
    }

    /// A condition, by its name.
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.name == name)
    }

    /// Returns true unless its label names another operating system.
    pub fn is_linux(&self) -> bool {
        self.metadata
            .labels
            .get("kubernetes.io/os")
            .is_none_or(|os| os == "linux")
    }

    /// The value of the annotation whose name ends so, with any prefix: the flag
    /// `--kube-annotation-prefix` of the agents is not known here.
    pub fn annotation(&self, suffix: &str) -> Option<&str> {
        let ends = |name: &&String| {
            // Not `node-public-ip` for `public-ip`.
            name.strip_suffix(suffix)
                .is_some_and(|prefix| prefix.ends_with(['/', '-']) && !prefix.ends_with("node-"))
        };
        self.metadata
            .annotations
            .iter()
            .find(|(name, _)| ends(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodObject {
    /// Name, labels and annotations.
    pub metadata: Meta,
    /// The part that its maker writes.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// The part that its node reports.
    #[serde(default, deserialize_with = "or_default")]
    pub status: PodState,
}

/// The part of a Pod that its maker writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The name of its node; empty until it has one.
    #[serde(default, deserialize_with = "or_default")]
    pub node_name: String,
    /// True if the pod is in the network of its node.
    #[serde(default, deserialize_with = "or_default")]
    pub host_network: bool,
    /// The containers.
    #[serde(default, deserialize_with = "or_default")]
    pub containers: Vec<ContainerSpec>,
}

/// A container of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ContainerSpec {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The image.
    #[serde(default, deserialize_with = "or_default")]
    pub image: String,
}

/// The part of a Pod that its node reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodState {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(default, deserialize_with = "or_default")]
    pub phase: String,
    /// The reason of a phase.
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
    /// Its first address.
    #[serde(rename = "podIP", default, deserialize_with = "or_default")]
    pub first: String,
    /// Its addresses, one per family.
    #[serde(rename = "podIPs", default, deserialize_with = "or_default")]
    pub all: Vec<PodAddress>,
    /// The state of each container.
    #[serde(default, deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerState>,
}

/// An address of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodAddress {
    /// The address.
    #[serde(default)]
    pub ip: String,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerState {
    /// Each state that it is in, with details; there is one.
    #[serde(default, deserialize_with = "or_default")]
    pub state: BTreeMap<String, StateDetail>,
}

/// The details of a container's state.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StateDetail {
    /// The reason, in one word.
    #[serde(default, deserialize_with = "or_default")]
    pub reason: String,
    /// The reason, in words.
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

impl PodObject {
    /// Its addresses.
    pub fn addresses(&self) -> Vec<String> {
        let all: Vec<String> = self
            .status
            .all
            .iter()
            .map(|address| address.ip.clone())
            .collect();
        if all.is_empty() && !self.status.first.is_empty() {
            vec![self.status.first.clone()]
        } else {
            all
        }
    }

    /// Returns true if every container runs, and the pod is to stay. Its containers run on for
    /// their grace period after it was deleted.
    pub fn is_running(&self) -> bool {
        if self.is_deleted() {
            return false;
        }
        let states = &self.status.container_statuses;
        self.status.phase == "Running"
            && states
                .iter()
                .all(|state| state.state.contains_key("running"))
    }

    /// Returns true if it was asked to go.
    pub fn is_deleted(&self) -> bool {
        !self.metadata.deleted.is_empty()
    }

    /// Describes why it does not run.
    pub fn problem(&self) -> String {
        if self.is_deleted() {
            return "it is being deleted".to_owned();
        }
        let details = self
            .status
            .container_statuses
            .iter()
            .flat_map(|state| &state.state);
        let details = details
            .filter(|(name, _)| *name != "running")
            .map(|(name, detail)| {
                let reason = if detail.reason.is_empty() {
                    name
                } else {
                    &detail.reason
                };
                if detail.message.is_empty() {
                    reason.clone()
                } else {
                    format!("{reason}: {}", detail.message.trim())
                }
            });
        let mut texts: Vec<String> = details.collect();
        texts.extend((!self.status.message.is_empty()).then(|| self.status.message.clone()));
        if texts.is_empty() {
            self.status.phase.clone()
        } else {
            texts.join("; ")
        }
    }
}

/// A Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceObject {
    /// Name, labels and annotations.
    pub metadata: Meta,
    /// Its addresses.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: ServiceSpec,
}

/// The addresses of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceSpec {
    /// The first.
    #[serde(rename = "clusterIP", default, deserialize_with = "or_default")]
    pub first: String,
    /// All, one per family; Kubernetes before 1.20 has none here.
    #[serde(rename = "clusterIPs", default, deserialize_with = "or_default")]
    pub all: Vec<String>,
}

impl ServiceObject {
    /// Its addresses.
    pub fn addresses(&self) -> Vec<String> {
        all_or_first(&self.spec.all, &self.spec.first)
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_does_not_start_says_why() {
        let pod = |state: serde_json::Value| -> PodObject {
            let status = json!({
                "phase": "Pending",
                "containerStatuses": [{ "ready": false, "state": state }],
            });
            serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status }))
                .expect("a pod")
        };
        let waiting =
            pod(json!({ "waiting": { "reason": "ErrImagePull", "message": "no such image" } }));
        assert!(!waiting.is_running());
        assert_eq!(waiting.problem(), "ErrImagePull: no such image");
        assert_eq!(pod(json!({ "terminated": {} })).problem(), "terminated");
        let bare: PodObject =
            serde_json::from_str(r#"{"metadata":{"name":"p"},"status":null}"#).expect("a pod");
        assert_eq!((bare.is_running(), bare.addresses().len()), (false, 0));
    }

    #[test]
    fn a_pod_that_is_being_deleted_does_not_run() {
        let pod = |deleted: Option<&str>| -> PodObject {
            let metadata = json!({ "name": "p", "deletionTimestamp": deleted });
            let status = json!({
                "phase": "Running",
                "containerStatuses": [{ "state": { "running": {} } }],
            });
            serde_json::from_value(json!({ "metadata": metadata, "status": status }))
                .expect("a pod")
        };
        assert!(pod(None).is_running());
        let leaving = pod(Some("2026-01-02T03:04:05Z"));
        assert!(!leaving.is_running());
        assert_eq!(leaving.problem(), "it is being deleted");
    }

    #[test]
    fn annotations_of_any_prefix_are_found() {
        let node = |name: &str| -> NodeObject {
            let metadata = json!({ "name": "a", "annotations": { name: "192.0.2.1" } });
            serde_json::from_value(json!({ "metadata": metadata })).expect("a node")
        };
        for name in [
            "flannel.alpha.coreos.com/public-ip",
            "example.com/flannel-public-ip",
        ] {
            assert_eq!(
                node(name).annotation("public-ip"),
                Some("192.0.2.1"),
                "{name}"
            );
        }
        for name in [
            "example.com/publicip",
            "flannel.alpha.coreos.com/node-public-ip",
        ] {
            assert_eq!(node(name).annotation("public-ip"), None, "{name}");
        }
    }
}
