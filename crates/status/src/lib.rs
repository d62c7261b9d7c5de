//! The status of a node, as one document ([`Status`]): what `flannel-agent status` prints and the
//! agent's socket answers. The agent fills it in, and commands and metrics read it. It has types,
//! and finds the node's problems in them ([`Problem`]).
//!
//! The field names are an interface; they are added to and not changed.

#![forbid(unsafe_code)]

mod cloud;
mod device;
mod document;
mod echo;
mod extension;
mod fast;
mod guard;
mod ipsec;
mod kernel;
mod lease;
mod listener;
mod mode;
mod network;
mod peer;
mod problems;
#[cfg(test)]
mod schema;
mod traffic;
mod udp;
mod wireguard;

pub use self::{
    cloud::{ChangeCounts, CloudStatus, RequestCounts},
    device::{
        ChecksumOffloadStatus, DeviceStatus, InterfaceStatus, SysctlProblem, WireguardStatus,
    },
    document::{LISTED, STARTING, Status},
    echo::{EchoState, EchoStatus, PeerEchoStatus},
    extension::{ExtensionStatus, FailingCommand, UnroutedPeer},
    fast::{FastStatus, PodStatus},
    guard::{CheckStatus, GuardStatus, XdpStatus},
    ipsec::{IpsecPeerState, IpsecPeerStatus, IpsecStatus},
    kernel::{Dirty, Repairs, UnreachableStatus},
    lease::{Claim, ConflictStatus, LeaseStatus, RejectedStatus, StoreStatus},
    listener::ListenerStatus,
    mode::{FlowTableStatus, ModeSource, ModeStatus, NodeSettingStatus, PrivilegesStatus},
    network::NetworkStatus,
    peer::PeerStatus,
    problems::{Certainty, Problem, ProblemCode, Severity},
    traffic::TrafficStatus,
    udp::UdpStatus,
    wireguard::{PeerState, WireguardPeerStatus},
};
