//! The status of a node, as one document: what `flannel-agent status` prints and the agent's socket
//! answers.
//!
//! The field names are an interface; they are added to and not changed.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::sysctl_record::ChangedSysctl;
use serde::{Deserialize, Serialize};

use crate::{
    cloud::CloudStatus,
    datapath::policy::ModeSource,
    echo::status::{EchoStatus, PeerEchoStatus},
    extension::ExtensionStatus,
    host_sysctls::SysctlProblem,
    ipsec::{IpsecPeerStatus, IpsecStatus},
    offload::ChecksumOffloadStatus,
    reconcile::status::{Dirty, Repairs, UnreachableStatus},
    traffic::status::TrafficStatus,
    udp::UdpStatus,
    wireguard::WireguardPeerStatus,
};

/// The document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the agent.
    pub version: String,
    /// Its process id; absent when no agent runs and only the pins were read.
    pub pid: Option<u32>,
    /// Packets flow and changes arrive: lease held, kernel reconciled, subnet.env written, store in
    /// sync.
    pub ready: bool,
    /// The agent's current activity, or the condition it waits for, in words.
    pub stage: String,
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
    pub sysctls: Vec<ChangedSysctl>,
    /// Sysctls of the host that keep packets from pods, and that the agent could not set.
    #[serde(default)]
    pub sysctl_problems: Vec<SysctlProblem>,
    /// Addresses of the external interface that lie in a pod network, and the effect of that.
    #[serde(default)]
    pub addresses_in_pods: Vec<String>,
    /// Prefixes of bridges of this node that are not in its subnet: pods with such addresses are
    /// not reached from other nodes.
    #[serde(default)]
    pub lost_subnets: Vec<String>,
    /// The reason why the node has no lease, or the machine that contests it; absent while all is
    /// well.
    #[serde(default)]
    pub lease_problem: Option<String>,
    /// The error of the last reconciliation, if it failed.
    pub error: Option<String>,
}

/// Entries that are listed of what others can make as many of as they like.
pub const LISTED: usize = 100;

/// The stage of an agent that has not brought the datapath up yet.
pub const STARTING: &str = "starting";

impl Status {
    /// True if an agent runs and has no programs.
    pub fn runs_without_bpf(&self) -> bool {
        self.pid.is_some() && self.stage != STARTING && self.mode.attach.is_none()
    }

    /// Of a node whose agent does not run.
    pub fn without_agent(stage: &str, mode: ModeStatus) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: None,
            ready: false,
            stage: stage.to_owned(),
            privileges: None,
            mode,
            flow_table: None,
            fast: None,
            guard: None,
            node_settings: Vec::new(),
            drops: None,
            lease: None,
            store: None,
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
            lost_subnets: Vec::new(),
            lease_problem: None,
            error: None,
        }
    }
}

/// A setting of this node by annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSettingStatus {
    /// The name of the annotation.
    pub annotation: String,
    /// Its value, in quotes.
    pub value: String,
    /// True if the agent follows it. A choice by `datapath set` and `guard set` takes precedence.
    pub in_force: bool,
    /// The reason why the setting does not apply, or applies only until the next start.
    pub reason: Option<String>,
}

/// The agent's privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivilegesStatus {
    /// The effective capabilities, such as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// Neither it nor what it runs can gain more.
    pub no_new_privileges: bool,
    /// A seccomp profile filters its system calls.
    pub seccomp: bool,
}

/// The datapath mode and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeStatus {
    /// The active mode: `kernel`, `encap` or `fast`.
    pub effective: String,
    /// The mode asked for.
    pub wanted: String,
    /// The setting that asked for it.
    pub source: ModeSource,
    /// The reason why the active mode is not the requested one.
    pub reason: Option<String>,
    /// The attach type of the programs: `tcx` or `clsact`; absent without BPF.
    pub attach: Option<String>,
}

/// The tables of known flows, one of each family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTableStatus {
    /// The capacity of each, in flows.
    pub flows: u32,
    /// The reason for this capacity.
    pub reason: String,
}

/// Mode `fast`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// The check that tunnel packets come from peers.
    pub outer: CheckStatus,
    /// The check that packets from peers come from their subnets.
    pub inner: CheckStatus,
    /// The outer check at the driver; absent where it is not asked for, or no agent says so.
    #[serde(default)]
    pub xdp: Option<XdpStatus>,
}

/// The guard at the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpStatus {
    /// True if the program is attached.
    pub attached: bool,
    /// The reason why it is not.
    pub reason: Option<String>,
}

/// One check of the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckStatus {
    /// The active mode: `off`, `audit` or `enforce`.
    pub effective: String,
    /// The mode asked for.
    pub wanted: String,
    /// True if it was asked for at run time, by `flannel-agent guard set`.
    pub chosen_at_run_time: bool,
    /// The reason why the active mode is not the requested one.
    pub reason: Option<String>,
    /// Packets that failed the check and were dropped; a second old at most.
    pub refused: u64,
    /// Packets that failed the check and passed, because it was not enforced.
    pub passed: u64,
}

/// Our lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// Our subnet; the IPv4 one if there are two.
    pub subnet: String,
    /// The address peers send to, of the same family.
    pub public_ip: String,
    /// Our IPv6 subnet, where IPv6 is on.
    pub ipv6_subnet: Option<String>,
    /// The address peers send IPv6 to.
    pub public_ipv6: Option<String>,
    /// True if we hold it right now.
    pub held: bool,
    /// When the store drops it unless it is renewed, in seconds since 1970 UTC; absent for a
    /// reservation, and for a subnet that was assigned.
    pub expires_at: Option<u64>,
    /// True if the cluster assigned the subnet to this node for good, as Kubernetes does.
    #[serde(default)]
    pub assigned: bool,
}

/// The store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// The addresses of the store.
    pub endpoints: Vec<String>,
    /// True if we see its changes.
    pub in_sync: bool,
    /// The reason why we do not.
    pub reason: Option<String>,
    /// Since when it is so, in seconds since 1970 UTC; absent while the agent starts.
    pub since: Option<u64>,
    /// The time of the last known change of any lease, likewise; absent until the first.
    pub last_change: Option<u64>,
}

/// The external interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its address; the IPv4 one if there are two.
    pub address: String,
    /// The address peers send to, of the same family.
    pub public_ip: String,
    /// Its IPv6 address, where IPv6 is on.
    pub ipv6_address: Option<String>,
    /// The address peers send IPv6 to.
    pub public_ipv6: Option<String>,
}

/// A tunnel device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// Its Ethernet address, the `VtepMAC` of our lease; `-` if it has none.
    pub mac: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The family of the addresses it carries.
    pub family: String,
    /// It takes outer UDP over IPv6 without a checksum, which is how the programs of peers send it.
    pub zero_checksum_v6: bool,
    /// A WireGuard device's own settings; absent for a device of another kind.
    #[serde(default)]
    pub wireguard: Option<WireguardStatus>,
}

/// A WireGuard device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireguardStatus {
    /// Our public key.
    pub public_key: String,
    /// Its UDP port.
    pub port: u16,
    /// The party that encrypts: `kernel` or `process`.
    pub implementation: String,
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The name of its Node in Kubernetes; absent with etcd, whose leases have no names.
    #[serde(default)]
    pub node: Option<String>,
    /// Its subnet.
    pub subnet: String,
    /// Its public IP.
    pub public_ip: String,
    /// Its `VtepMAC`; `-` where the backend has none.
    pub vtep_mac: String,
    /// The path of packets to it: `direct` (a route, no tunnel), `tunnel` (the programs may
    /// encapsulate), `kernel` (the vxlan device in every mode), `wireguard` (the WireGuard device),
    /// `ipsec` (IPsec policies of the kernel), `ipip` (the ipip device), `udp` (datagrams of a
    /// process), `extension` (commands), `cloud` (the cloud's route tables), `none` (no path).
    pub way: String,
    /// The reason why the programs may not encapsulate or the path is missing; with several next
    /// hops, the note that the kernel chooses.
    pub reason: Option<String>,
    /// Its answers to echo requests; absent if it is not sent any.
    #[serde(default)]
    pub echo: Option<PeerEchoStatus>,
    /// Its WireGuard device as ours last saw it; absent with another backend.
    #[serde(default)]
    pub wireguard: Option<WireguardPeerStatus>,
    /// Its IPsec tunnel; absent with another backend.
    #[serde(default)]
    pub ipsec: Option<IpsecPeerStatus>,
}

/// Leases refused because another node has what they claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictStatus {
    /// Its VTEP MAC.
    pub mac: usize,
    /// Its public key.
    #[serde(default)]
    pub key: usize,
    /// Its subnet, or a part of it.
    pub subnet: usize,
    /// Its public address: 1 while another machine with ours contests our lease in etcd.
    #[serde(default)]
    pub address: usize,
}

/// A lease that the agent rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedStatus {
    /// Its key, cut.
    pub key: String,
    /// The reason why it is rejected.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_status_document() {
        let seeds = [
            r#"{"version":"1","pid":7,"ready":true,"mode":{"wanted":"fast","now":"encap"},"peers":[],"lease":{"subnet":"10.5.1.0/24"}}"#,
            r#"{"ready":false,"problems":["a"],"dirty":[{"object":"route","error":"b"}],"conflicts":{},"pod_names":{"10.5.1.2":"a/b"}}"#,
        ];
        flannel_fuzz::run("status_document", &seeds.map(str::as_bytes), |input| {
            let Ok(status) = serde_json::from_slice::<Status>(input) else { return };
            let text = serde_json::to_string(&status).expect("JSON");
            assert_eq!(serde_json::from_str::<Status>(&text).ok(), Some(status), "what is written is read");
        });
    }
}
