//! The state of the node that explains what happens to a packet.

use std::net::IpAddr;

use flannel_backend_api::Carrier;
use flannel_common::{
    abi::{
        ecmp::EcmpPath,
        guard::{Checks, GuardMode},
        mode::ModeWord,
        node::{FamilyConfig, NodeConfig},
    },
    packet::addr::Mac,
};
use flannel_datapath::maps::peers::{PinnedPeer, family_config};
use flannel_flows::rows::FlowRow;
use flannel_host::family::Family;
use flannel_netlink::{Link, Neighbour, RouteAnswer};
use flannel_status::Status;

use super::{
    location::{LocalPod, Location},
    nat::{MasqueradeAnswer, ServiceAnswer},
    question::Question,
    trace::TraceReport,
    tried::Tried,
};

/// Everything that the explanation is based on.
pub(super) struct Snapshot {
    pub(super) question: Question,
    pub(super) source: Location,
    /// The packet's end after the translation of a Service; else as in the question.
    pub(super) onward: Onward,
    /// The place of that end.
    pub(super) destination: Location,
    /// The Service that the packet is for; none if its destination is a node or a pod.
    pub(super) service: Option<ServiceAnswer>,
    /// Masquerade of a packet that leaves the cluster; none for others.
    pub(super) masquerade: Option<MasqueradeAnswer>,
    /// True if `subnet.env` says that the agent masquerades.
    pub(super) masquerades: bool,
    /// The node's own data, from its pins or its agent.
    pub(super) config: Option<NodeConfig>,
    /// The pinned state, or the reason why it cannot be read.
    pub(super) node: Result<PinnedNode, String>,
    /// The kernel's route for the packet from this node, or the reason why it cannot be read.
    pub(super) route: Option<Result<RouteAnswer, String>>,
    /// The routing entry of a packet to a peer behind commands; none for others.
    pub(super) commands: Option<CommandsRoute>,
    /// The device that route leads to.
    pub(super) route_device: Option<String>,
    /// The state behind that route.
    pub(super) carrier: Option<Carrier>,
    /// The rules that may drop the packet; none for one that is not between a pod here and another
    /// node.
    pub(super) firewall: Option<FirewallAnswer>,
    /// The way to the peer at one end.
    pub(super) tunnel: Option<Tunnel>,
    /// The entries of mode `fast` for the flow: forward, then reverse.
    pub(super) flows: [Option<FlowRow>; 2],
    /// The verdicts of the programs on the packet, in the order in which it meets them.
    pub(super) tried: Result<Vec<Tried>, String>,
    /// The packets of the flow on their way through netfilter, if they were traced.
    pub(super) trace: Option<TraceReport>,
    pub(super) status: Option<Status>,
    pub(super) now_ns: u64,
    /// Seconds since 1970 UTC.
    pub(super) now_unix: u64,
}

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Onward {
    pub(super) address: IpAddr,
    /// The port after the translation of a Service; none without one.
    pub(super) port: Option<u16>,
    /// True if the kernel lately sent packets of the flow there.
    pub(super) is_learned: bool,
}

/// The node as its pins have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PinnedNode {
    pub(super) mode: ModeWord,
    pub(super) config: NodeConfig,
    /// The guard's active modes.
    pub(super) guard: Checks<GuardMode>,
}

/// The kernel's way to a peer.
pub(super) struct Tunnel {
    pub(super) peer: PinnedPeer,
    /// The tunnel device, if it is there.
    pub(super) device: Option<Link>,
    /// The Ethernet address behind the peer's gateway address on it.
    pub(super) neighbour: Option<Mac>,
    /// The VTEP to which the FDB sends frames for that address.
    pub(super) fdb: Option<IpAddr>,
    /// The route of outer packets, or why there is none.
    pub(super) outer: Result<RouteAnswer, String>,
    /// The external interface, if it is there.
    pub(super) external: Option<Link>,
    /// The devices of that route that exist.
    pub(super) outlets: Vec<Link>,
    /// The ECMP paths by interface index, where the kernel chooses among several next hops.
    pub(super) ecmp_paths: Vec<(u32, EcmpPath)>,
    /// The neighbour entry of the next hop on the underlay.
    pub(super) next_hop: Option<Neighbour>,
}

/// The route to a peer behind commands of the backend extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandsRoute {
    /// True for the default route of table `main`.
    pub(super) is_default: bool,
}

/// The rules that may drop a packet between a pod and another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FirewallAnswer {
    /// Chains that drop forwarded packets.
    pub(super) closed: Vec<String>,
    /// Chains with a rule that drops packets of the tunnel's port.
    pub(super) at_port: Vec<String>,
    /// The reasons why not all rules could be read.
    pub(super) errors: Vec<String>,
}

impl Snapshot {
    /// The pod at the beginning of the way.
    pub(super) const fn sender(&self) -> Option<&LocalPod> {
        match &self.source {
            Location::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// True if rules of a Service change the packet's destination.
    pub(super) const fn is_translated(&self) -> bool {
        self.onward.port.is_some()
    }

    /// The node's own data of the family asked about.
    pub(super) fn config(&self) -> Option<&FamilyConfig> {
        Some(family_config(
            self.config.as_ref()?,
            Family::of(self.question.destination),
        ))
    }
}
