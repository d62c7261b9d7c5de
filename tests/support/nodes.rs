//! Nodes as an API server has them.

use serde_json::{Value, json};

/// A Node with a subnet and without a lease.
pub(crate) fn new_node(name: &str, subnet: &str) -> Value {
    let meta = json!({ "name": name, "uid": name, "creationTimestamp": "2026-01-02T03:04:05Z" });
    let spec = json!({ "podCIDR": subnet, "podCIDRs": [subnet] });
    json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": spec })
}

/// A Node of 16 KiB, as a busy cluster has it, that takes part in a network of the backend vxlan.
pub(crate) struct LargeNode {
    pub(crate) name: String,
    /// Its pod CIDR.
    pub(crate) subnet: String,
    pub(crate) public_ip: String,
    pub(crate) mac: String,
    /// Any number: another one is a heartbeat, which changes the Node and not its lease.
    pub(crate) heartbeat: u32,
}

impl LargeNode {
    /// As the API server has it.
    pub(crate) fn json(&self) -> Value {
        let Self {
            name,
            subnet,
            public_ip,
            mac,
            heartbeat,
        } = self;
        let prefix = "flannel.alpha.coreos.com/";
        let names = |i| {
            [
                format!("registry.example/team/image-{i}@sha256:{i:064x}"),
                format!("registry.example/team/image-{i}:v1"),
            ]
        };
        let images: Vec<_> = (0..50)
            .map(|i| json!({ "names": names(i), "sizeBytes": i }))
            .collect();
        let fields = json!({ "f:metadata": { "f:annotations": { "f:text": "x".repeat(4096) } } });
        let annotations = json!({
            format!("{prefix}kube-subnet-manager"): "true",
            format!("{prefix}backend-type"): "vxlan",
            format!("{prefix}backend-data"): format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#),
            format!("{prefix}public-ip"): public_ip,
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            "example.com/notes": "x".repeat(3584),
        });
        json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": "2026-01-02T03:04:05Z",
                "annotations": annotations,
                "managedFields": [{ "manager": "kubelet", "fieldsV1": fields }],
            },
            "spec": {
                "podCIDR": subnet,
                "podCIDRs": [subnet],
                "providerID": format!("cloud:///zone/{name}"),
            },
            "status": {
                "images": images,
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": heartbeat,
                }],
            },
        })
    }
}
