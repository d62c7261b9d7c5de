//! Messages of packages `observer` and `relay`
//! ([observer.proto](https://github.com/cilium/cilium/blob/v1.19.4/api/v1/observer/observer.proto),
//! [relay.proto](https://github.com/cilium/cilium/blob/v1.19.4/api/v1/relay/relay.proto), Cilium
//! 1.19.4).

use prost::{Enumeration, Message, Oneof, bytes::Bytes};

use crate::flow::{Flow, FlowFilter, LostEvent, Timestamp};

/// The request of `ServerStatus`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServerStatusRequest {}

/// The state of this server.
#[derive(Clone, PartialEq, Message)]
pub struct ServerStatusResponse {
    /// Flows in the ring.
    #[prost(uint64, tag = "1")]
    pub num_flows: u64,
    /// Flows that the ring holds.
    #[prost(uint64, tag = "2")]
    pub max_flows: u64,
    /// Flows since the agent started.
    #[prost(uint64, tag = "3")]
    pub seen_flows: u64,
    /// Nanoseconds since the server started.
    #[prost(uint64, tag = "4")]
    pub uptime_ns: u64,
    /// Nodes whose flows are seen: this one.
    #[prost(message, optional, tag = "5")]
    pub num_connected_nodes: Option<u32>,
    /// Nodes that cannot be reached.
    #[prost(message, optional, tag = "6")]
    pub num_unavailable_nodes: Option<u32>,
    /// The version of the agent.
    #[prost(string, tag = "8")]
    pub version: String,
    /// Flows a second within the last minute.
    #[prost(double, tag = "9")]
    pub flows_rate: f64,
}

/// The request of `GetFlows`.
#[derive(Clone, PartialEq, Message)]
pub struct GetFlowsRequest {
    /// The number of flows; 0 for all.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// True to send flows until the client ends.
    #[prost(bool, tag = "3")]
    pub follow: bool,
    /// Flows that match one of these are left out.
    #[prost(message, repeated, tag = "5")]
    pub blacklist: Vec<FlowFilter>,
    /// Only flows that match one of these; all if there is none.
    #[prost(message, repeated, tag = "6")]
    pub whitelist: Vec<FlowFilter>,
    /// Only flows from this moment on.
    #[prost(message, optional, tag = "7")]
    pub since: Option<Timestamp>,
    /// Only flows up to this moment.
    #[prost(message, optional, tag = "8")]
    pub until: Option<Timestamp>,
    /// True for the oldest flows in place of the newest.
    #[prost(bool, tag = "9")]
    pub first: bool,
}

/// A [`GetFlowsResponse`] whose flow is encoded already: an embedded message is bytes on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncodedResponse {
    /// The flow.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) flow: Option<Bytes>,
    /// The number of missing ones.
    #[prost(message, optional, tag = "3")]
    pub(crate) lost_events: Option<LostEvent>,
    /// Name of the node.
    #[prost(string, tag = "1000")]
    pub(crate) node_name: String,
    /// The time of the flow.
    #[prost(message, optional, tag = "1001")]
    pub(crate) time: Option<Timestamp>,
}

/// A flow, or the number of missing ones.
#[derive(Clone, PartialEq, Message)]
pub struct GetFlowsResponse {
    /// The content.
    #[prost(oneof = "Content", tags = "1, 3")]
    pub content: Option<Content>,
    /// Name of the node.
    #[prost(string, tag = "1000")]
    pub node_name: String,
    /// The time of the flow.
    #[prost(message, optional, tag = "1001")]
    pub time: Option<Timestamp>,
}

/// The content of a [`GetFlowsResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    /// A flow.
    #[prost(message, tag = "1")]
    Flow(Box<Flow>),
    /// The number of missing ones.
    #[prost(message, tag = "3")]
    LostEvents(LostEvent),
}

/// The request of `GetNodes`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetNodesRequest {}

/// The nodes of the cluster.
#[derive(Clone, PartialEq, Message)]
pub struct GetNodesResponse {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version of its agent.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Its address.
    #[prost(string, tag = "3")]
    pub address: String,
    /// The state of the connection to it.
    #[prost(enumeration = "NodeState", tag = "4")]
    pub state: i32,
    /// TLS.
    #[prost(message, optional, tag = "5")]
    pub tls: Option<Tls>,
    /// Nanoseconds since its server started.
    #[prost(uint64, tag = "6")]
    pub uptime_ns: u64,
    /// Flows in its ring.
    #[prost(uint64, tag = "7")]
    pub num_flows: u64,
    /// Flows that its ring holds.
    #[prost(uint64, tag = "8")]
    pub max_flows: u64,
    /// Flows since its agent started.
    #[prost(uint64, tag = "9")]
    pub seen_flows: u64,
}

/// The state of the connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum NodeState {
    /// This server does not connect to it.
    Unknown = 0,
    /// Its flows are seen.
    Connected = 1,
}

/// The use of TLS.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Tls {
    /// True if TLS is used.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
}

/// The request of `GetNamespaces`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetNamespacesRequest {}

/// Namespaces with flows.
#[derive(Clone, PartialEq, Message)]
pub struct GetNamespacesResponse {
    /// The namespaces, sorted.
    #[prost(message, repeated, tag = "1")]
    pub namespaces: Vec<Namespace>,
}

/// A namespace.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Namespace {
    /// The cluster; empty.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub namespace: String,
}
