//! The document.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::sysctl_record::ChangedSysctl;
use serde::{Deserialize, Serialize};

use crate::{
    ChecksumOffloadStatus, CloudStatus, ConflictStatus, DeviceStatus, Dirty, EchoStatus,
    ExtensionStatus, FastStatus, FlowTableStatus, GuardStatus, InterfaceStatus, IpsecStatus,
    LeaseStatus, ListenerStatus, ModeStatus, NetworkStatus, NodeSettingStatus, PeerStatus,
    PrivilegesStatus, Problem, RejectedStatus, Repairs, StoreStatus, SysctlProblem, TrafficStatus,
    UdpStatus, UnreachableStatus,
};

/// The status of a node, as `flannel-agent status -o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the agent.
    pub version: String,
    /// Its process id; absent when no agent runs and only the pins were read.
    pub pid: Option<u32>,
    /// The node's time when it answered, in seconds since 1970 UTC; absent when no agent runs.
    #[serde(default)]
    pub time: Option<u64>,
    /// Packets flow and changes arrive: lease held, kernel reconciled, subnet.env written, store in
    /// sync.
    pub ready: bool,
    /// The agent's current activity, or the condition it waits for, in words.
    pub stage: String,
    /// The directory of its pinned BPF objects; absent when no agent runs.
    #[serde(default)]
    pub pin_root: Option<String>,
    /// The agent's privileges; absent when none runs.
    #[serde(default)]
    pub privileges: Option<PrivilegesStatus>,
    /// The datapath.
    pub mode: ModeStatus,
    /// The tables of known flows; absent without BPF.
    #[serde(default)]
    pub flow_table: Option<FlowTableStatus>,
    /// Mode `fast`, if it is active.
    #[serde(default)]
    pub fast: Option<FastStatus>,
    /// The guard; absent without a tunnel.
    #[serde(default)]
    pub guard: Option<GuardStatus>,
    /// Settings of this node by annotation.
    #[serde(default)]
    pub node_settings: Vec<NodeSettingStatus>,
    /// Packets that the programs dropped, for every reason; absent where the counters cannot be
    /// read. The command reads them, not the agent.
    #[serde(default)]
    pub drops: Option<u64>,
    /// Our lease.
    pub lease: Option<LeaseStatus>,
    /// The store.
    pub store: Option<StoreStatus>,
    /// The pod network; absent until the agent has its configuration.
    #[serde(default)]
    pub network: Option<NetworkStatus>,
    /// The external interface.
    pub interface: Option<InterfaceStatus>,
    /// The first tunnel device.
    pub device: Option<DeviceStatus>,
    /// The tunnel devices, one per address family that has one.
    pub devices: Vec<DeviceStatus>,
    /// Checksum offload of the vxlan devices; empty with another backend.
    #[serde(default)]
    pub checksum_offload: Vec<ChecksumOffloadStatus>,
    /// The traffic rules.
    #[serde(default)]
    pub traffic: Option<TrafficStatus>,
    /// The peers, by subnet.
    pub peers: Vec<PeerStatus>,
    /// The echo requests to peers; absent without an agent.
    #[serde(default)]
    pub echo: Option<EchoStatus>,
    /// The commands for peers; absent unless the backend is extension.
    #[serde(default)]
    pub extension: Option<ExtensionStatus>,
    /// The routes in the cloud; absent unless a cloud routes the packets.
    #[serde(default)]
    pub cloud: Option<CloudStatus>,
    /// The process that carries the packets; absent unless the backend is udp.
    #[serde(default)]
    pub udp: Option<UdpStatus>,
    /// The process that agrees on keys; absent unless the backend is ipsec.
    #[serde(default)]
    pub ipsec: Option<IpsecStatus>,
    /// Names of this node's pods, with their namespace, by address; empty unless the agent follows
    /// the pods for their annotation (`--pod-opt-out`).
    #[serde(default)]
    pub pod_names: BTreeMap<IpAddr, String>,
    /// Leases that the agent rejects: the first [`LISTED`].
    pub rejected: Vec<RejectedStatus>,
    /// The number of all such leases.
    #[serde(default)]
    pub rejected_total: u64,
    /// The number of rejected leases that claim what another node has.
    #[serde(default)]
    pub conflicts: ConflictStatus,
    /// Entries the kernel refused, each of which is tried again: the first [`LISTED`].
    pub dirty: Vec<Dirty>,
    /// The number of all such entries.
    #[serde(default)]
    pub dirty_total: u64,
    /// Repairs since the agent started: entries that another process removed or changed and the
    /// agent restored. Traffic rules have their own count.
    #[serde(default)]
    pub repairs: Repairs,
    /// The unreachable routes, one for each pod network.
    #[serde(default)]
    pub unreachable_routes: Vec<UnreachableStatus>,
    /// Sysctls of the host the agent changed, until `cleanup` sets them back.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<crate::schema::ChangedSysctl>"))]
    pub sysctls: Vec<ChangedSysctl>,
    /// Sysctls of the host that keep packets from pods, and that the agent could not set.
    #[serde(default)]
    pub sysctl_problems: Vec<SysctlProblem>,
    /// Addresses of the external interface that lie in a pod network, and the effect of that.
    #[serde(default)]
    pub addresses_in_pods: Vec<String>,
    /// Chains of the host's firewall that drop forwarded packets, such as `ip filter FORWARD`.
    #[serde(default)]
    pub closed_forward: Vec<String>,
    /// Prefixes of bridges of this node that are not in its subnet: pods with such addresses are
    /// not reached from other nodes.
    #[serde(default)]
    pub lost_subnets: Vec<String>,
    /// The reason why the node has no lease, or the machine that contests it; absent while all is
    /// well.
    #[serde(default)]
    pub lease_problem: Option<String>,
    /// The error of the last reconciliation, if it failed; while the agent starts, what the start
    /// waits for.
    pub error: Option<String>,
    /// The listeners for health checks and metrics.
    #[serde(default)]
    pub listeners: Vec<ListenerStatus>,
    /// All problems of the node. The rest of the document has the details.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// Entries that are listed of what others can make as many of as they like.
pub const LISTED: usize = 100;

/// The stage of an agent that has not brought the datapath up yet.
pub const STARTING: &str = "starting";

impl Status {
    /// The name of the document and its schema.
    pub const NAME: &'static str = "status";

    /// The version of the schema, raised when a field goes or changes its meaning.
    pub const SCHEMA_VERSION: u32 = 1;

    /// True if an agent runs and has no programs.
    pub fn runs_without_bpf(&self) -> bool {
        self.pid.is_some() && self.stage != STARTING && self.mode.attach.is_none()
    }

    /// Of a node whose agent does not run.
    pub fn without_agent(stage: &str, mode: ModeStatus) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: None,
            time: None,
            ready: false,
            stage: stage.to_owned(),
            pin_root: None,
            privileges: None,
            mode,
            flow_table: None,
            fast: None,
            guard: None,
            node_settings: Vec::new(),
            drops: None,
            lease: None,
            store: None,
            network: None,
            interface: None,
            device: None,
            devices: Vec::new(),
            checksum_offload: Vec::new(),
            traffic: None,
            peers: Vec::new(),
            echo: None,
            extension: None,
            cloud: None,
            udp: None,
            ipsec: None,
            pod_names: BTreeMap::new(),
            rejected: Vec::new(),
            rejected_total: 0,
            conflicts: ConflictStatus::default(),
            dirty: Vec::new(),
            dirty_total: 0,
            repairs: Repairs::default(),
            unreachable_routes: Vec::new(),
            sysctls: Vec::new(),
            sysctl_problems: Vec::new(),
            addresses_in_pods: Vec::new(),
            closed_forward: Vec::new(),
            lost_subnets: Vec::new(),
            lease_problem: None,
            error: None,
            listeners: Vec::new(),
            problems: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<Status>(Status::NAME, Status::SCHEMA_VERSION);
    }

    #[test]
    fn fuzz_status_document() {
        let seeds = [
            r#"{"version":"1","pid":7,"ready":true,"mode":{"wanted":"fast","now":"encap"},"peers":[],"lease":{"subnet":"10.5.1.0/24"}}"#,
            r#"{"ready":false,"problems":["a"],"dirty":[{"object":"route","error":"b"}],"conflicts":{},"pod_names":{"10.5.1.2":"a/b"}}"#,
        ];
        flannel_fuzz::run("status_document", &seeds.map(str::as_bytes), |input| {
            let Ok(status) = serde_json::from_slice::<Status>(input) else {
                return;
            };
            let text = serde_json::to_string(&status).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Status>(&text).ok(),
                Some(status),
                "what is written is read"
            );
        });
    }
}
