//! Events of flows as messages of Hubble.

use std::net::IpAddr;

use flannel_common::{
    abi::program::Program,
    packet::{PROTO_ICMP, PROTO_ICMPV6, PROTO_TCP, PROTO_UDP},
};
use flannel_flows::{
    events::{Direction, FlowEvent, FlowEventKind, PacketOutcome},
    monitor::DeviceNames,
    rows::FlowWay,
};
use flannel_hubble::flow::{
    CiliumEventType, DropReason, Emitter, Endpoint, Flow, FlowType, Icmp, Ip, IpVersion, Layer4,
    NetworkInterface, Ports, Protocol, Service, Tcp, TcpFlags, Timestamp, TraceObservationPoint,
    TraceReason, TrafficDirection, Verdict,
};
use flannel_names::{AddressKind, AddressNames, ResolvedNames};

use super::reasons::drop_reason;

/// Identities that Cilium reserves ([pkg/identity/numericidentity.go, Cilium
/// 1.19.4](https://github.com/cilium/cilium/blob/v1.19.4/pkg/identity/numericidentity.go)).
mod reserved {
    pub(super) const HOST: u32 = 1;
    pub(super) const WORLD: u32 = 2;
    pub(super) const REMOTE_NODE: u32 = 6;
}

/// The identity of a pod without a name, and the first of those that are made from names. Cilium
/// gives its own out from 256 to 65535.
const POD: u32 = 1 << 16;

/// The facts of the node that are in each message.
pub(super) struct MessageContext<'a> {
    pub(super) node: &'a str,
    pub(super) names: &'a ResolvedNames,
    pub(super) devices: &'a mut DeviceNames,
}

/// The message of an event.
pub(super) fn flow(event: &FlowEvent, context: MessageContext<'_>) -> Flow {
    let MessageContext {
        node,
        names,
        devices,
    } = context;
    let is_dropped = event.kind == FlowEventKind::Dropped;
    let dropped = event
        .outcome
        .filter(|_| is_dropped)
        .map_or(DropReason::Unknown, drop_reason);
    let point = observation_point(event);
    let [source, destination] = event.addresses.map(|address| names.get(&address));
    Flow {
        time: Some(Timestamp::since_1970(event.time)),
        verdict: (if is_dropped {
            Verdict::Dropped
        } else {
            Verdict::Forwarded
        })
        .into(),
        ip: Some(addresses(event)),
        l4: protocol(event).map(|protocol| Layer4 {
            protocol: Some(protocol),
        }),
        source: Some(endpoint(source)),
        destination: Some(endpoint(destination)),
        r#type: FlowType::L3L4.into(),
        node_name: node.to_owned(),
        source_names: host(source),
        destination_names: host(destination),
        event_type: Some(event_type(is_dropped.then_some(dropped), point)),
        source_service: service(source),
        destination_service: service(destination),
        traffic_direction: direction(event.direction).into(),
        trace_observation_point: if is_dropped { 0 } else { point.into() },
        drop_reason_desc: dropped.into(),
        is_reply: event.is_reply(),
        interface: Some(interface(event.ifindex, devices)),
        trace_reason: if is_dropped {
            0
        } else {
            trace_reason(event).into()
        },
        emitter: Some(Emitter {
            name: "Flannel".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }),
        summary: summary(event),
    }
}

fn addresses(event: &FlowEvent) -> Ip {
    let [source, destination] = event.addresses;
    let out = event
        .translated
        .map(|([out, _], _)| out)
        .filter(|out| *out != source);
    Ip {
        source: source.to_string(),
        destination: destination.to_string(),
        ip_version: (if source.is_ipv4() {
            IpVersion::V4
        } else {
            IpVersion::V6
        })
        .into(),
        source_xlated: out.map(|out: IpAddr| out.to_string()).unwrap_or_default(),
    }
}

fn protocol(event: &FlowEvent) -> Option<Protocol> {
    let [source_port, destination_port] = event.ports.unwrap_or_default().map(u32::from);
    let icmp = || {
        let [kind, code] = event.icmp.unwrap_or_default().map(u32::from);
        Icmp { r#type: kind, code }
    };
    match event.protocol {
        PROTO_TCP => {
            let flags = event.tcp_flags.map(TcpFlags::from_byte);
            Some(Protocol::Tcp(Tcp {
                source_port,
                destination_port,
                flags,
            }))
        }
        PROTO_UDP => Some(Protocol::Udp(Ports {
            source_port,
            destination_port,
        })),
        PROTO_ICMP => Some(Protocol::Icmpv4(icmp())),
        PROTO_ICMPV6 => Some(Protocol::Icmpv6(icmp())),
        _ => None,
    }
}

fn endpoint(names: Option<&AddressNames>) -> Endpoint {
    let Some(names) = names else {
        return Endpoint::default();
    };
    let (namespace, pod_name) = names
        .pod
        .as_deref()
        .and_then(|pod| pod.split_once('/'))
        .unwrap_or_default();
    let labels = match names.kind {
        AddressKind::Pod if !namespace.is_empty() => {
            vec![format!("k8s:io.kubernetes.pod.namespace={namespace}")]
        }
        AddressKind::Pod | AddressKind::Service => Vec::new(),
        AddressKind::Host => vec!["reserved:host".to_owned()],
        AddressKind::Node => vec!["reserved:remote-node".to_owned()],
        AddressKind::Outside => vec!["reserved:world".to_owned()],
    };
    Endpoint {
        identity: identity(names),
        namespace: namespace.to_owned(),
        labels,
        pod_name: pod_name.to_owned(),
    }
}

/// A reserved identity, or a number that is made of the name of the pod (FNV-1a, 24 bits): flannel
/// has no identities, and clients distinguish pods by them.
fn identity(names: &AddressNames) -> u32 {
    match names.kind {
        AddressKind::Host => reserved::HOST,
        AddressKind::Node => reserved::REMOTE_NODE,
        AddressKind::Outside | AddressKind::Service => reserved::WORLD,
        AddressKind::Pod => names.pod.as_ref().map_or(POD, |pod| {
            let hash = pod.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
            });
            (hash >> 8).max(POD + 1)
        }),
    }
}

fn host(names: Option<&AddressNames>) -> Vec<String> {
    let node = |names: &&AddressNames| matches!(names.kind, AddressKind::Host | AddressKind::Node);
    let of_node = names.filter(node).and_then(|names| names.node.clone());
    names
        .and_then(|names| names.host.clone())
        .or(of_node)
        .into_iter()
        .collect()
}

fn service(names: Option<&AddressNames>) -> Option<Service> {
    let (namespace, name) = names?.service.as_deref()?.split_once('/')?;
    Some(Service {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    })
}

const fn direction(direction: Direction) -> TrafficDirection {
    match direction {
        Direction::Ingress => TrafficDirection::Ingress,
        Direction::Egress => TrafficDirection::Egress,
    }
}

/// The place at which the program, or the replayed flow, saw the packet.
const fn observation_point(event: &FlowEvent) -> TraceObservationPoint {
    let program = match event.outcome {
        Some(PacketOutcome::Program(program, _)) => Some(program),
        Some(PacketOutcome::Kernel(_)) => return TraceObservationPoint::Unknown,
        None => None,
    };
    match (program, event.way) {
        (Some(Program::FromPod), _) => TraceObservationPoint::FromEndpoint,
        (Some(Program::ToTunnel | Program::ToL3Tunnel), _) | (None, Some(FlowWay::Tunnel)) => {
            TraceObservationPoint::ToOverlay
        }
        (Some(Program::FromUnderlay), _) => TraceObservationPoint::FromNetwork,
        (Some(Program::FromTunnel | Program::FromL3Tunnel), _) => {
            TraceObservationPoint::FromOverlay
        }
        (Some(Program::ToPod), _) | (None, Some(FlowWay::Pod)) => TraceObservationPoint::ToEndpoint,
        (Some(Program::ToUnderlay), _) | (None, Some(FlowWay::Direct | FlowWay::Outside)) => {
            TraceObservationPoint::ToNetwork
        }
        (None, None) => TraceObservationPoint::Unknown,
    }
}

/// The sub-type of a trace is the observation point, but for `TO_ENDPOINT`, which is 0 there.
fn event_type(dropped: Option<DropReason>, point: TraceObservationPoint) -> CiliumEventType {
    match dropped {
        Some(reason) => CiliumEventType {
            r#type: CiliumEventType::DROP,
            sub_type: reason.into(),
        },
        None if point == TraceObservationPoint::ToEndpoint => CiliumEventType {
            r#type: CiliumEventType::TRACE,
            sub_type: 0,
        },
        None => CiliumEventType {
            r#type: CiliumEventType::TRACE,
            sub_type: point.into(),
        },
    }
}

fn trace_reason(event: &FlowEvent) -> TraceReason {
    match (event.is_reply(), event.kind) {
        (Some(true), _) => TraceReason::Reply,
        (_, FlowEventKind::New) => TraceReason::New,
        _ => TraceReason::Established,
    }
}

fn interface(index: u32, devices: &mut DeviceNames) -> NetworkInterface {
    NetworkInterface {
        index,
        name: devices.get(index).unwrap_or_default().to_owned(),
    }
}

/// The flags of TCP or the protocol as Cilium writes them, and what became of the packet: the
/// program's reason, or `replayed` with the flow's packets so far.
fn summary(event: &FlowEvent) -> String {
    let packet = match (event.protocol, event.tcp_flags) {
        (PROTO_TCP, Some(flags)) => format!("TCP Flags: {}", flag_names(flags)),
        (PROTO_TCP, None) => "TCP".to_owned(),
        (PROTO_UDP, _) => "UDP".to_owned(),
        (PROTO_ICMP, _) => "ICMPv4".to_owned(),
        (PROTO_ICMPV6, _) => "ICMPv6".to_owned(),
        (number, _) => format!("protocol {number}"),
    };
    match event.outcome {
        Some(outcome) if event.kind == FlowEventKind::Dropped => {
            format!("{packet}; {}", outcome.reason_name())
        }
        Some(outcome) => format!("{packet}; kernel: {}", outcome.reason_name()),
        None => format!(
            "{packet}; replayed: {} packets, {} bytes",
            event.packets, event.bytes
        ),
    }
}

fn flag_names(flags: u8) -> String {
    const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let set = NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| flags & 1 << bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}
