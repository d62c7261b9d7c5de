//! Nodes of an imagined cluster, and the answers of their agents.

use flannel_status::{LeaseStatus, ModeStatus, NetworkStatus, PeerStatus, Status};
use serde_json::{Value, json};

use crate::members::AgentPods;

/// The time at which the nodes are asked.
pub const NOW: u64 = 1_000_000;

/// A Node, as the API server sends it.
pub fn node_json(index: usize) -> Value {
    let metadata = json!({ "name": format!("n{index}"), "annotations": {
        "flannel.alpha.coreos.com/public-ip": format!("192.0.2.{index}"),
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/backend-data": format!(
            "{{\"VNI\":1,\"VtepMAC\":\"{}\"}}",
            mac(index),
        ),
    } });
    let spec = json!({ "podCIDR": format!("10.244.{index}.0/24") });
    json!({ "metadata": metadata, "spec": spec })
}

/// The agents' pods of an unchanged manifest.
pub fn agent_pods() -> AgentPods {
    AgentPods {
        namespace: "kube-flannel".to_owned(),
        selector: "app=flannel".to_owned(),
    }
}

/// The MAC address of a node's tunnel device.
pub fn mac(index: usize) -> String {
    format!("02:00:00:00:00:{index:02x}")
}

fn peer(index: usize) -> PeerStatus {
    PeerStatus {
        node: Some(format!("n{index}")),
        subnet: format!("10.244.{index}.0/24"),
        public_ip: format!("192.0.2.{index}"),
        vtep_mac: mac(index),
        way: "tunnel".to_owned(),
        ..PeerStatus::default()
    }
}

/// The answer of a node's agent, in a cluster of `number` nodes.
pub fn answer(index: usize, number: usize) -> Status {
    let text = "fast".to_owned();
    let mode = ModeStatus {
        effective: text.clone(),
        wanted: text,
        ..ModeStatus::default()
    };
    let lease = LeaseStatus {
        subnet: format!("10.244.{index}.0/24"),
        public_ip: format!("192.0.2.{index}"),
        held: true,
        assigned: true,
        ..LeaseStatus::default()
    };
    let network = NetworkStatus {
        networks: vec!["10.244.0.0/16".to_owned()],
        backend: "vxlan".to_owned(),
        vni: Some(1),
        port: Some(8472),
        mtu: Some(1450),
    };
    Status {
        pid: Some(1),
        ready: true,
        time: Some(NOW),
        lease: Some(lease),
        network: Some(network),
        peers: (1..=number)
            .filter(|other| *other != index)
            .map(peer)
            .collect(),
        ..Status::without_agent("running", mode)
    }
}
