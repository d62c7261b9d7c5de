//! The kinds of problems.

use flannel_host::words::count;
use serde::{Deserialize, Serialize};

/// The kind of a problem. The names are an interface: scripts and alerts compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The start waits for something.
    StartWaits,
    /// The node has no lease, or another machine contests it.
    Lease,
    /// The store is out of reach.
    Store,
    /// The kernel's state could not be read or compared.
    Reconcile,
    /// A sysctl of the host keeps packets from pods.
    HostSysctl,
    /// Another process has the address of a listener.
    Listener,
    /// The process of the backend udp does not run.
    UdpProcess,
    /// The process of the backend ipsec agrees on no keys.
    IpsecKeys,
    /// The kernel makes no IPsec associations.
    IpsecKernel,
    /// The traffic rules are not as asked for.
    TrafficRules,
    /// A firewall chain drops forwarded packets.
    ForwardDropped,
    /// An address of the external interface lies in the pod network.
    AddressInPods,
    /// A bridge of pods is outside of the node's subnet.
    LostSubnet,
    /// A setting by annotation is not followed.
    Setting,
    /// A setting by annotation waits for the agent's next start.
    SettingWaits,
    /// Another node claims this node's VTEP MAC.
    DuplicateMac,
    /// Another node claims this node's public key.
    DuplicateKey,
    /// Another node claims this node's subnet, or a part of it.
    DuplicateSubnet,
    /// The lease of another node is refused.
    RefusedLease,
    /// The kernel refused an entry.
    RefusedEntry,
    /// A command of the backend extension failed.
    Command,
    /// The kernel routes packets to a peer past what commands of the backend extension made.
    UnroutedPeer,
    /// The routes of the cloud cannot be kept.
    CloudRoute,
    /// The cloud's check of source and destination may drop packets.
    SourceCheck,
    /// A peer does not answer echo requests.
    SilentPeer,
    /// A peer makes no WireGuard handshake.
    NoHandshake,
    /// A peer has no IPsec associations.
    NoAssociations,
    /// The mode is lower than asked for.
    LoweredMode,
    /// A kind that this version does not know: the document is of a later one.
    #[serde(other)]
    Unknown,
}

/// The effect of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No packet is lost: a slower path, or metrics that cannot be read.
    Notice,
    /// Some packets are lost, or may be: those of a peer, a flow or an address.
    Warning,
    /// Packets of all pods are lost, or changes do not arrive. In most cases the node is not ready.
    Critical,
}

/// The certainty of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The agent saw it.
    #[default]
    Sure,
    /// The agent saw something that is likely to have this effect, and need not have it.
    Likely,
}

impl Severity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Notice, Self::Warning, Self::Critical];

    /// Its name in documents and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl ProblemCode {
    /// Every kind that an agent of this version reports.
    pub const ALL: [Self; 28] = [
        Self::StartWaits,
        Self::Lease,
        Self::Store,
        Self::Reconcile,
        Self::HostSysctl,
        Self::Listener,
        Self::UdpProcess,
        Self::IpsecKeys,
        Self::IpsecKernel,
        Self::TrafficRules,
        Self::ForwardDropped,
        Self::AddressInPods,
        Self::LostSubnet,
        Self::Setting,
        Self::SettingWaits,
        Self::DuplicateMac,
        Self::DuplicateKey,
        Self::DuplicateSubnet,
        Self::RefusedLease,
        Self::RefusedEntry,
        Self::Command,
        Self::UnroutedPeer,
        Self::CloudRoute,
        Self::SourceCheck,
        Self::SilentPeer,
        Self::NoHandshake,
        Self::NoAssociations,
        Self::LoweredMode,
    ];

    /// Its name in documents and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StartWaits => "start_waits",
            Self::Lease => "lease",
            Self::Store => "store",
            Self::Reconcile => "reconcile",
            Self::HostSysctl => "host_sysctl",
            Self::Listener => "listener",
            Self::UdpProcess => "udp_process",
            Self::IpsecKeys => "ipsec_keys",
            Self::IpsecKernel => "ipsec_kernel",
            Self::TrafficRules => "traffic_rules",
            Self::ForwardDropped => "forward_dropped",
            Self::AddressInPods => "address_in_pods",
            Self::LostSubnet => "lost_subnet",
            Self::Setting => "setting",
            Self::SettingWaits => "setting_waits",
            Self::DuplicateMac => "duplicate_mac",
            Self::DuplicateKey => "duplicate_key",
            Self::DuplicateSubnet => "duplicate_subnet",
            Self::RefusedLease => "refused_lease",
            Self::RefusedEntry => "refused_entry",
            Self::Command => "command",
            Self::UnroutedPeer => "unrouted_peer",
            Self::CloudRoute => "cloud_route",
            Self::SourceCheck => "source_check",
            Self::SilentPeer => "silent_peer",
            Self::NoHandshake => "no_handshake",
            Self::NoAssociations => "no_associations",
            Self::LoweredMode => "lowered_mode",
            Self::Unknown => "unknown",
        }
    }

    /// Its effect.
    pub const fn severity(self) -> Severity {
        match self {
            Self::LoweredMode | Self::Listener | Self::SettingWaits => Severity::Notice,
            Self::StartWaits
            | Self::Lease
            | Self::Store
            | Self::Reconcile
            | Self::HostSysctl
            | Self::UdpProcess
            | Self::IpsecKeys
            | Self::IpsecKernel => Severity::Critical,
            Self::Unknown
            | Self::TrafficRules
            | Self::Setting
            | Self::ForwardDropped
            | Self::AddressInPods
            | Self::LostSubnet
            | Self::DuplicateMac
            | Self::DuplicateKey
            | Self::DuplicateSubnet
            | Self::RefusedLease
            | Self::RefusedEntry
            | Self::Command
            | Self::UnroutedPeer
            | Self::CloudRoute
            | Self::SourceCheck
            | Self::SilentPeer
            | Self::NoHandshake
            | Self::NoAssociations => Severity::Warning,
        }
    }

    /// The certainty of such a problem. One that is only likely may cost nothing on this host.
    pub const fn certainty(self) -> Certainty {
        match self {
            Self::ForwardDropped | Self::SourceCheck | Self::UnroutedPeer => Certainty::Likely,
            _ => Certainty::Sure,
        }
    }

    /// The reason of the Kubernetes Event of such a problem; `None` if it makes none: because the
    /// API server is not reached then, because each node would write about one lease, or because
    /// the operator knows.
    pub const fn event(self) -> Option<&'static str> {
        Some(match self {
            Self::StartWaits
            | Self::Unknown
            | Self::Store
            | Self::RefusedLease
            | Self::SettingWaits => return None,
            Self::Lease => "LeaseContested",
            Self::Reconcile => "ReconcileFailed",
            Self::HostSysctl => "SysctlKeepsPacketsFromPods",
            Self::Listener => "ListenerAddressTaken",
            Self::UdpProcess => "TunnelProcessMissing",
            Self::IpsecKeys => "IpsecKeysMissing",
            Self::IpsecKernel => "IpsecNotSupported",
            Self::TrafficRules => "TrafficRulesFailed",
            Self::ForwardDropped => "ForwardedPacketsDropped",
            Self::AddressInPods => "NodeAddressInPodNetwork",
            Self::LostSubnet => "BridgeOutsideOfSubnet",
            Self::Setting => "NodeAnnotationRefused",
            Self::DuplicateMac => "DuplicateVtepMAC",
            Self::DuplicateKey => "DuplicateWireguardKey",
            Self::DuplicateSubnet => "OverlappingSubnet",
            Self::RefusedEntry => "KernelRefusedEntry",
            Self::Command => "ExtensionCommandFailed",
            Self::UnroutedPeer => "PeerWithoutRoute",
            Self::CloudRoute => "CloudRouteFailed",
            Self::SourceCheck => "CloudSourceCheck",
            Self::SilentPeer => "PeerSilent",
            Self::NoHandshake => "PeerWithoutHandshake",
            Self::NoAssociations => "PeerWithoutIpsecAssociations",
            Self::LoweredMode => "DatapathModeLowered",
        })
    }

    /// This many problems of the kind, in a few words.
    pub fn counted(self, number: u64) -> String {
        let (one, many) = match self {
            Self::StartWaits => return "the start waits".to_owned(),
            Self::Lease => return "no lease, or a contested one".to_owned(),
            Self::Store => return "the store is out of reach".to_owned(),
            Self::Reconcile => return "cannot reconcile".to_owned(),
            Self::UdpProcess => return "no tunnel process".to_owned(),
            Self::IpsecKeys => return "no keys are agreed on with peers".to_owned(),
            Self::IpsecKernel => return "the kernel has no ESP".to_owned(),
            Self::TrafficRules => return "traffic rules are not as asked for".to_owned(),
            Self::CloudRoute => return "routes of the cloud cannot be kept".to_owned(),
            Self::SourceCheck => return "the cloud may drop packets of pods".to_owned(),
            Self::Unknown => ("problem of another kind", "problems of other kinds"),
            Self::LoweredMode => return "a lower mode than asked for".to_owned(),
            Self::HostSysctl => (
                "sysctl that keeps packets from pods",
                "sysctls that keep packets from pods",
            ),
            Self::Listener => (
                "address that another process has",
                "addresses that other processes have",
            ),
            Self::ForwardDropped => (
                "chain that drops forwarded packets",
                "chains that drop forwarded packets",
            ),
            Self::AddressInPods => ("address in the pod network", "addresses in the pod network"),
            Self::LostSubnet => (
                "bridge outside of our subnet",
                "bridges outside of our subnet",
            ),
            Self::Setting => ("annotation not in force", "annotations not in force"),
            Self::SettingWaits => (
                "annotation that waits for the next start",
                "annotations that wait for the next start",
            ),
            Self::DuplicateMac => ("lease with our VTEP MAC", "leases with our VTEP MAC"),
            Self::DuplicateKey => ("lease with our public key", "leases with our public key"),
            Self::DuplicateSubnet => ("lease with our subnet", "leases with our subnet"),
            Self::RefusedLease => ("refused lease", "refused leases"),
            Self::RefusedEntry => (
                "entry refused by the kernel",
                "entries refused by the kernel",
            ),
            Self::UnroutedPeer => (
                "peer without a route of commands",
                "peers without a route of commands",
            ),
            Self::Command => (
                "peer with a command that failed",
                "peers with a command that failed",
            ),
            Self::SilentPeer => ("peer without an answer", "peers without an answer"),
            Self::NoHandshake => ("peer without a handshake", "peers without a handshake"),
            Self::NoAssociations => (
                "peer without IPsec associations",
                "peers without IPsec associations",
            ),
        };
        count(number, one, many)
    }
}
