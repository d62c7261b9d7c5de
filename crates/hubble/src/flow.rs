//! Messages of package `flow`
//! ([flow.proto, Cilium
//! 1.19.4](https://github.com/cilium/cilium/blob/v1.19.4/api/v1/flow/flow.proto)).

use std::time::{Duration, SystemTime};

use prost::{Enumeration, Message, Oneof};

/// A moment: `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Timestamp {
    /// Seconds since 1970 UTC.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after that second, 0 to 999999999.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// The moment this long after 1970 UTC.
    pub fn since_1970(time: Duration) -> Self {
        Self {
            seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            nanos: time.subsec_nanos().cast_signed(),
        }
    }

    /// The present moment.
    pub fn now() -> Self {
        Self::since_1970(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        )
    }
}

/// A packet, or the packets of a flow within an interval.
#[derive(Clone, PartialEq, Message)]
pub struct Flow {
    /// The time of the packet.
    #[prost(message, optional, tag = "1")]
    pub time: Option<Timestamp>,
    /// The verdict.
    #[prost(enumeration = "Verdict", tag = "2")]
    pub verdict: i32,
    /// The addresses.
    #[prost(message, optional, tag = "5")]
    pub ip: Option<Ip>,
    /// The transport header.
    #[prost(message, optional, tag = "6")]
    pub l4: Option<Layer4>,
    /// The sender.
    #[prost(message, optional, tag = "8")]
    pub source: Option<Endpoint>,
    /// The receiver.
    #[prost(message, optional, tag = "9")]
    pub destination: Option<Endpoint>,
    /// The layer that was observed.
    #[prost(enumeration = "FlowType", tag = "10")]
    pub r#type: i32,
    /// Name of the node that observed it.
    #[prost(string, tag = "11")]
    pub node_name: String,
    /// Host names of the sender.
    #[prost(string, repeated, tag = "13")]
    pub source_names: Vec<String>,
    /// Host names of the receiver.
    #[prost(string, repeated, tag = "14")]
    pub destination_names: Vec<String>,
    /// The kind of event in Cilium.
    #[prost(message, optional, tag = "19")]
    pub event_type: Option<CiliumEventType>,
    /// The Service that has the source address.
    #[prost(message, optional, tag = "20")]
    pub source_service: Option<Service>,
    /// The Service that has the destination address.
    #[prost(message, optional, tag = "21")]
    pub destination_service: Option<Service>,
    /// The direction, seen from the pods of the node.
    #[prost(enumeration = "TrafficDirection", tag = "22")]
    pub traffic_direction: i32,
    /// The place of the observation.
    #[prost(enumeration = "TraceObservationPoint", tag = "24")]
    pub trace_observation_point: i32,
    /// The reason of a drop.
    #[prost(enumeration = "DropReason", tag = "25")]
    pub drop_reason_desc: i32,
    /// True for a packet of the answering end; absent if that is not known.
    #[prost(message, optional, tag = "26")]
    pub is_reply: Option<bool>,
    /// The device of the observation.
    #[prost(message, optional, tag = "28")]
    pub interface: Option<NetworkInterface>,
    /// The state of the connection.
    #[prost(enumeration = "TraceReason", tag = "36")]
    pub trace_reason: i32,
    /// The program that made the message.
    #[prost(message, optional, tag = "41")]
    pub emitter: Option<Emitter>,
    /// A description for people.
    #[prost(string, tag = "100000")]
    pub summary: String,
}

/// The program that made a message.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Emitter {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version, without a leading `v`.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// The layer of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum FlowType {
    /// Not known.
    Unknown = 0,
    /// Addresses and ports.
    L3L4 = 1,
}

/// The place of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TraceObservationPoint {
    /// Not known.
    Unknown = 0,
    /// To the kernel's network stack.
    ToStack = 3,
    /// To the tunnel device.
    ToOverlay = 4,
    /// From a pod.
    FromEndpoint = 5,
    /// From the tunnel device.
    FromOverlay = 9,
    /// From the external interface.
    FromNetwork = 10,
    /// To the external interface.
    ToNetwork = 11,
    /// To a pod.
    ToEndpoint = 101,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TraceReason {
    /// Not known.
    Unknown = 0,
    /// The first packet.
    New = 1,
    /// A later one.
    Established = 2,
    /// One of the answering end.
    Reply = 3,
}

/// The transport header.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Layer4 {
    /// The protocol.
    #[prost(oneof = "Protocol", tags = "1, 2, 3, 4, 5")]
    pub protocol: Option<Protocol>,
}

/// A transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub enum Protocol {
    /// TCP.
    #[prost(message, tag = "1")]
    Tcp(Tcp),
    /// UDP.
    #[prost(message, tag = "2")]
    Udp(Ports),
    /// ICMP.
    #[prost(message, tag = "3")]
    Icmpv4(Icmp),
    /// ICMPv6.
    #[prost(message, tag = "4")]
    Icmpv6(Icmp),
    /// SCTP.
    #[prost(message, tag = "5")]
    Sctp(Ports),
}

/// The ports of UDP and SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Ports {
    /// The source port.
    #[prost(uint32, tag = "1")]
    pub source_port: u32,
    /// The destination port.
    #[prost(uint32, tag = "2")]
    pub destination_port: u32,
}

/// The header of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Tcp {
    /// The source port.
    #[prost(uint32, tag = "1")]
    pub source_port: u32,
    /// The destination port.
    #[prost(uint32, tag = "2")]
    pub destination_port: u32,
    /// The flags; absent if no single packet was observed.
    #[prost(message, optional, tag = "3")]
    pub flags: Option<TcpFlags>,
}

/// The flags of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of the header")]
pub struct TcpFlags {
    /// FIN.
    #[prost(bool, tag = "1")]
    pub fin: bool,
    /// SYN.
    #[prost(bool, tag = "2")]
    pub syn: bool,
    /// RST.
    #[prost(bool, tag = "3")]
    pub rst: bool,
    /// PSH.
    #[prost(bool, tag = "4")]
    pub psh: bool,
    /// ACK.
    #[prost(bool, tag = "5")]
    pub ack: bool,
    /// URG.
    #[prost(bool, tag = "6")]
    pub urg: bool,
    /// ECE.
    #[prost(bool, tag = "7")]
    pub ece: bool,
    /// CWR.
    #[prost(bool, tag = "8")]
    pub cwr: bool,
}

impl TcpFlags {
    /// The flags of byte 13 of the header ([RFC 9293, section
    /// 3.1](https://www.rfc-editor.org/rfc/rfc9293#section-3.1)).
    pub const fn from_byte(byte: u8) -> Self {
        Self {
            fin: byte & 0x01 != 0,
            syn: byte & 0x02 != 0,
            rst: byte & 0x04 != 0,
            psh: byte & 0x08 != 0,
            ack: byte & 0x10 != 0,
            urg: byte & 0x20 != 0,
            ece: byte & 0x40 != 0,
            cwr: byte & 0x80 != 0,
        }
    }

    /// The flags in that byte.
    pub const fn to_byte(self) -> u8 {
        self.fin as u8
            | (self.syn as u8) << 1
            | (self.rst as u8) << 2
            | (self.psh as u8) << 3
            | (self.ack as u8) << 4
            | (self.urg as u8) << 5
            | (self.ece as u8) << 6
            | (self.cwr as u8) << 7
    }
}

/// Type and code of ICMP.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Icmp {
    /// The type.
    #[prost(uint32, tag = "1")]
    pub r#type: u32,
    /// The code.
    #[prost(uint32, tag = "2")]
    pub code: u32,
}

/// One end of a flow.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Endpoint {
    /// A number of Cilium's security identities.
    #[prost(uint32, tag = "2")]
    pub identity: u32,
    /// The namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Labels, as `source:key=value`.
    #[prost(string, repeated, tag = "4")]
    pub labels: Vec<String>,
    /// The name of the pod.
    #[prost(string, tag = "5")]
    pub pod_name: String,
}

/// The addresses of a packet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Ip {
    /// The source, before translation.
    #[prost(string, tag = "1")]
    pub source: String,
    /// The destination.
    #[prost(string, tag = "2")]
    pub destination: String,
    /// The version.
    #[prost(enumeration = "IpVersion", tag = "3")]
    pub ip_version: i32,
    /// The source after translation; empty if it is not translated.
    #[prost(string, tag = "5")]
    pub source_xlated: String,
}

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum IpVersion {
    /// Not IP.
    NotUsed = 0,
    /// IPv4.
    V4 = 1,
    /// IPv6.
    V6 = 2,
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Verdict {
    /// Not known.
    Unknown = 0,
    /// Passed on.
    Forwarded = 1,
    /// Dropped.
    Dropped = 2,
}

/// The reasons of drops that flannel's reasons are translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DropReason {
    /// Not dropped, or another reason.
    Unknown = 0,
    /// The source address is not the sender's.
    InvalidSourceIp = 132,
    /// A network policy.
    PolicyDenied = 133,
    /// The packet does not fit its connection.
    InvalidPacketDropped = 134,
    /// The packet could not be written.
    ErrorWritingToPacket = 141,
    /// The kernel found no route.
    FibLookupFailed = 169,
    /// A pod sent a tunnel packet.
    EncapsulationTrafficIsProhibited = 170,
    /// The sender is not known.
    UnknownSender = 172,
}

/// The direction of a flow, seen from the pods of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum TrafficDirection {
    /// Not known.
    Unknown = 0,
    /// To a pod.
    Ingress = 1,
    /// From a pod.
    Egress = 2,
}

/// The kind of an event in Cilium.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CiliumEventType {
    /// [`Self::DROP`] or [`Self::TRACE`].
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    /// A number of [`DropReason`], or of the observation point with 0 for `TO_ENDPOINT`.
    #[prost(int32, tag = "2")]
    pub sub_type: i32,
}

impl CiliumEventType {
    /// A drop (`MessageTypeDrop` in [pkg/monitor/api/types.go, Cilium
    /// 1.19.4](https://github.com/cilium/cilium/blob/v1.19.4/pkg/monitor/api/types.go)).
    pub const DROP: i32 = 1;
    /// A packet on its way (`MessageTypeTrace`, likewise).
    pub const TRACE: i32 = 4;
}

/// A Service of Kubernetes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Service {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NetworkInterface {
    /// The interface index.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// Flows that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LostEvent {
    /// The place where they were lost.
    #[prost(enumeration = "LostEventSource", tag = "1")]
    pub source: i32,
    /// Their number.
    #[prost(uint64, tag = "2")]
    pub num_events_lost: u64,
}

/// The place where flows are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum LostEventSource {
    /// Not known.
    Unknown = 0,
    /// Between the BPF programs and the agent.
    PerfEventRingBuffer = 1,
    /// In the ring of flows, before a client read them.
    HubbleRingBuffer = 3,
}

/// A filter of flows: all fields that are set must match, each by one of its values.
#[derive(Clone, PartialEq, Message)]
pub struct FlowFilter {
    /// Source addresses or prefixes.
    #[prost(string, repeated, tag = "1")]
    pub source_ip: Vec<String>,
    /// Prefixes of names of source pods.
    #[prost(string, repeated, tag = "2")]
    pub source_pod: Vec<String>,
    /// Destination addresses or prefixes.
    #[prost(string, repeated, tag = "3")]
    pub destination_ip: Vec<String>,
    /// Prefixes of names of destination pods.
    #[prost(string, repeated, tag = "4")]
    pub destination_pod: Vec<String>,
    /// Verdicts.
    #[prost(enumeration = "Verdict", repeated, tag = "5")]
    pub verdict: Vec<i32>,
    /// Kinds of events.
    #[prost(message, repeated, tag = "6")]
    pub event_type: Vec<EventTypeFilter>,
    /// Host names of the source.
    #[prost(string, repeated, tag = "7")]
    pub source_fqdn: Vec<String>,
    /// Host names of the destination.
    #[prost(string, repeated, tag = "8")]
    pub destination_fqdn: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "9")]
    pub http_status_code: Vec<String>,
    /// Label selectors of the source.
    #[prost(string, repeated, tag = "10")]
    pub source_label: Vec<String>,
    /// Label selectors of the destination.
    #[prost(string, repeated, tag = "11")]
    pub destination_label: Vec<String>,
    /// Protocols, such as `tcp`.
    #[prost(string, repeated, tag = "12")]
    pub protocol: Vec<String>,
    /// Source ports.
    #[prost(string, repeated, tag = "13")]
    pub source_port: Vec<String>,
    /// Destination ports.
    #[prost(string, repeated, tag = "14")]
    pub destination_port: Vec<String>,
    /// Packets of the answering end, or of the other.
    #[prost(bool, repeated, tag = "15")]
    pub reply: Vec<bool>,
    /// Prefixes of names of source Services.
    #[prost(string, repeated, tag = "16")]
    pub source_service: Vec<String>,
    /// Prefixes of names of destination Services.
    #[prost(string, repeated, tag = "17")]
    pub destination_service: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "18")]
    pub dns_query: Vec<String>,
    /// Identities of the source.
    #[prost(uint32, repeated, tag = "19")]
    pub source_identity: Vec<u32>,
    /// Identities of the destination.
    #[prost(uint32, repeated, tag = "20")]
    pub destination_identity: Vec<u32>,
    /// Not supported.
    #[prost(string, repeated, tag = "21")]
    pub http_method: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "22")]
    pub http_path: Vec<String>,
    /// Flags of TCP: all flags of one of them must be set.
    #[prost(message, repeated, tag = "23")]
    pub tcp_flags: Vec<TcpFlags>,
    /// Patterns of node names.
    #[prost(string, repeated, tag = "24")]
    pub node_name: Vec<String>,
    /// Versions of IP.
    #[prost(enumeration = "IpVersion", repeated, tag = "25")]
    pub ip_version: Vec<i32>,
    /// Not supported.
    #[prost(message, repeated, tag = "26")]
    pub source_workload: Vec<Unread>,
    /// Not supported.
    #[prost(message, repeated, tag = "27")]
    pub destination_workload: Vec<Unread>,
    /// Not supported.
    #[prost(string, repeated, tag = "28")]
    pub trace_id: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "29")]
    pub uuid: Vec<String>,
    /// Directions.
    #[prost(enumeration = "TrafficDirection", repeated, tag = "30")]
    pub traffic_direction: Vec<i32>,
    /// Not supported.
    #[prost(string, repeated, tag = "31")]
    pub http_url: Vec<String>,
    /// Not supported.
    #[prost(message, repeated, tag = "32")]
    pub http_header: Vec<Unread>,
    /// Reasons of drops.
    #[prost(enumeration = "DropReason", repeated, tag = "33")]
    pub drop_reason_desc: Vec<i32>,
    /// Source addresses or prefixes, after translation.
    #[prost(string, repeated, tag = "34")]
    pub source_ip_xlated: Vec<String>,
    /// Devices, by name or index.
    #[prost(message, repeated, tag = "35")]
    pub interface: Vec<NetworkInterface>,
    /// Not supported.
    #[prost(string, repeated, tag = "36")]
    pub node_labels: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "37")]
    pub source_cluster_name: Vec<String>,
    /// Not supported.
    #[prost(string, repeated, tag = "38")]
    pub destination_cluster_name: Vec<String>,
    /// Not supported.
    #[prost(uint64, repeated, tag = "39")]
    pub ip_trace_id: Vec<u64>,
    /// Not supported.
    #[prost(bool, repeated, tag = "40")]
    pub encrypted: Vec<bool>,
    /// Not supported.
    #[prost(message, optional, tag = "999")]
    pub experimental: Option<Unread>,
}

/// A message of which only the presence is read.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Unread {}

/// A filter of kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct EventTypeFilter {
    /// The kind, as [`CiliumEventType`].
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    /// True if the sub-type must match.
    #[prost(bool, tag = "2")]
    pub match_sub_type: bool,
    /// The sub-type.
    #[prost(int32, tag = "3")]
    pub sub_type: i32,
}
