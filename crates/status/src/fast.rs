//! Mode `fast` and the pods that take part.

use serde::{Deserialize, Serialize};

/// Mode `fast`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FastStatus {
    /// The reason why TCP flows take the kernel's path; absent where they are learned.
    pub tcp_reason: Option<String>,
    /// The error of the last look at the pods, if it failed.
    pub error: Option<String>,
    /// The reason why pod annotations, by which pods opt out, cannot be read now.
    #[serde(default)]
    pub annotations: Option<String>,
    /// Chains with rules that judge, count, copy or log packets one by one, of which they see one
    /// in two seconds of a known flow. Chains of NAT are left out.
    #[serde(default)]
    pub rules: Vec<String>,
    /// The reason why the firewall's rules are not known; then `rules` says nothing.
    #[serde(default)]
    pub rules_error: Option<String>,
    /// True if flows with hosts outside the pod networks are learned.
    #[serde(default)]
    pub outside: bool,
    /// The reason why they are not, although `--fast-scope` asks for it and packets from other
    /// nodes are put into pods.
    #[serde(default)]
    pub outside_reason: Option<String>,
    /// The reason why the tunnel device takes off the outer headers of packets that cannot be
    /// replayed, although packets from other nodes are put into pods; absent where the programs do.
    #[serde(default)]
    pub decapsulation_reason: Option<String>,
    /// Reasons for which packets from other nodes are not put straight into pods; empty where they
    /// are.
    #[serde(default)]
    pub underlay_reasons: Vec<String>,
    /// The pods of this node, by the interface index of their veth.
    pub pods: Vec<PodStatus>,
}

/// A pod as mode `fast` sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PodStatus {
    /// The name of the host side of its veth.
    pub veth: String,
    /// Its interface index.
    pub index: u32,
    /// The pod's own Ethernet address; absent where the pod is left alone.
    pub mac: Option<String>,
    /// Its packets may be replayed.
    pub sends: bool,
    /// Packets to it may be.
    pub receives: bool,
    /// The reasons why either is not so, each once.
    pub reasons: Vec<String>,
    /// Merged packets (GSO) to it may be.
    #[serde(default)]
    pub merged: bool,
    /// The reason for which they may not, where other packets to it may be.
    #[serde(default)]
    pub merged_reason: Option<String>,
}
