//! The mode of a node, its source, and the privileges of the agent.

use serde::{Deserialize, Serialize};

/// The agent's privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PrivilegesStatus {
    /// The effective capabilities, such as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// Neither it nor what it runs can gain more.
    pub no_new_privileges: bool,
    /// A seccomp profile filters its system calls.
    pub seccomp: bool,
}

/// A setting of this node by annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeSettingStatus {
    /// The name of the annotation.
    pub annotation: String,
    /// Its value, in quotes.
    pub value: String,
    /// True if the agent follows it. A choice by `datapath set` and `guard set` takes precedence.
    pub in_force: bool,
    /// True if it is valid and waits for the agent's next start.
    #[serde(default)]
    pub waits: bool,
    /// The reason why the setting does not apply, or applies only until the next start.
    pub reason: Option<String>,
}

/// The datapath mode and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModeStatus {
    /// The active mode: `kernel`, `encap` or `fast`.
    #[cfg_attr(test, schemars(with = "crate::schema::ModeName"))]
    pub effective: String,
    /// The mode asked for.
    #[cfg_attr(test, schemars(with = "crate::schema::ModeName"))]
    pub wanted: String,
    /// The setting that asked for it.
    pub source: ModeSource,
    /// The reason why the active mode is not the requested one.
    pub reason: Option<String>,
    /// The attach type of the programs: `tcx` or `clsact`; absent without BPF.
    #[cfg_attr(test, schemars(with = "Option<crate::schema::AttachName>"))]
    pub attach: Option<String>,
}

/// The tables of known flows, one of each family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowTableStatus {
    /// The capacity of each, in flows.
    pub flows: u32,
    /// The reason for this capacity.
    pub reason: String,
}

/// The source of the requested mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ModeSource {
    /// `flannel-agent datapath set`.
    RunTime,
    /// The annotation `node-datapath` of the Node.
    NodeAnnotation,
    /// `--datapath` or `FLANNELD_DATAPATH`.
    Flag,
    /// `Backend.Datapath`.
    NetworkConfig,
    /// No source requests a mode.
    #[default]
    Default,
}

impl ModeSource {
    /// The name in every output for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunTime => "run-time",
            Self::NodeAnnotation => "node-annotation",
            Self::Flag => "flag",
            Self::NetworkConfig => "network-config",
            Self::Default => "default",
        }
    }
}
