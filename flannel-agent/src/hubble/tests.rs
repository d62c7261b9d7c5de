//! Messages for events that are made here.

use std::{net::IpAddr, time::Duration};

use flannel_common::abi::{
    kernel_drop::KernelDrop,
    program::Program,
    reason::{Reason, Verdict},
};
use flannel_flows::{
    events::{Direction, FlowEvent, FlowEventKind, PacketOutcome},
    monitor::DeviceNames,
    rows::FlowWay,
};
use flannel_hubble::flow::{
    CiliumEventType, DropReason, Flow, Protocol, TraceObservationPoint, TraceReason,
};
use flannel_names::{AddressKind, AddressNames, ResolvedNames};

use super::{
    convert::{self, MessageContext},
    reasons::drop_reason,
};

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn event() -> FlowEvent {
    FlowEvent {
        time: Duration::from_millis(1_700_000_000_250),
        kind: FlowEventKind::New,
        outcome: Some(PacketOutcome::Program(Program::FromPod, Reason::TcpControl)),
        direction: Direction::Egress,
        protocol: 6,
        addresses: [address("10.244.1.5"), address("10.96.0.1")],
        ports: Some([40_000, 80]),
        translated: None,
        tcp_flags: Some(0x02),
        icmp: None,
        ifindex: 4_000_000,
        way: None,
        packets: 1,
        bytes: 74,
    }
}

fn names() -> ResolvedNames {
    let pod = AddressNames {
        kind: AddressKind::Pod,
        pod: Some("shop/web-1".to_owned()),
        node: Some("node-a".to_owned()),
        ..AddressNames::default()
    };
    let service = AddressNames {
        kind: AddressKind::Service,
        service: Some("shop/db".to_owned()),
        ..AddressNames::default()
    };
    ResolvedNames::from([
        (address("10.244.1.5"), pod),
        (address("10.96.0.1"), service),
    ])
}

fn flow(event: &FlowEvent) -> Flow {
    let (names, mut devices) = (names(), DeviceNames::default());
    convert::flow(
        event,
        MessageContext {
            node: "node-a",
            names: &names,
            devices: &mut devices,
        },
    )
}

#[test]
fn a_packet_has_names_ports_and_the_place_at_which_it_was_seen() {
    let flow = flow(&event());
    assert_eq!(
        (flow.node_name.as_str(), flow.is_reply),
        ("node-a", Some(false))
    );
    let time = flow.time.expect("a time");
    assert_eq!((time.seconds, time.nanos), (1_700_000_000, 250_000_000));
    let source = flow.source.expect("a source");
    assert_eq!(
        (source.namespace.as_str(), source.pod_name.as_str()),
        ("shop", "web-1")
    );
    assert_eq!(source.labels, ["k8s:io.kubernetes.pod.namespace=shop"]);
    assert!(source.identity > 65_535, "none that Cilium gives out");
    let service = flow.destination_service.expect("a service");
    assert_eq!(
        (service.namespace.as_str(), service.name.as_str()),
        ("shop", "db")
    );
    let Some(Protocol::Tcp(tcp)) = flow.l4.expect("a header").protocol else {
        panic!("not TCP")
    };
    assert_eq!(
        (
            tcp.source_port,
            tcp.destination_port,
            tcp.flags.expect("flags").syn
        ),
        (40_000, 80, true)
    );
    assert_eq!(
        flow.trace_observation_point,
        i32::from(TraceObservationPoint::FromEndpoint)
    );
    assert_eq!(
        flow.event_type.expect("a type"),
        CiliumEventType {
            r#type: 4,
            sub_type: 5
        }
    );
    assert_eq!(flow.trace_reason, i32::from(TraceReason::New));
    assert_eq!(flow.summary, "TCP Flags: SYN; kernel: tcp_control");
}

#[test]
fn a_replayed_flow_says_so_and_a_packet_into_a_pod_is_sub_type_zero() {
    let replayed = FlowEvent {
        kind: FlowEventKind::Active,
        outcome: None,
        way: Some(FlowWay::Pod),
        tcp_flags: None,
        packets: 9,
        bytes: 900,
        translated: Some((
            [address("192.168.1.11"), address("10.96.0.1")],
            [40_000, 80],
        )),
        ..event()
    };
    let flow = flow(&replayed);
    assert_eq!(flow.summary, "TCP; replayed: 9 packets, 900 bytes");
    assert_eq!(
        flow.event_type.expect("a type"),
        CiliumEventType {
            r#type: 4,
            sub_type: 0
        }
    );
    assert_eq!(
        flow.trace_observation_point,
        i32::from(TraceObservationPoint::ToEndpoint)
    );
    assert_eq!(flow.ip.expect("addresses").source_xlated, "192.168.1.11");
}

#[test]
fn a_drop_has_a_published_reason_and_our_own_in_words() {
    let outcome = Some(PacketOutcome::Program(
        Program::FromUnderlay,
        Reason::RefusedSource,
    ));
    let flow = flow(&FlowEvent {
        kind: FlowEventKind::Dropped,
        outcome,
        ..event()
    });
    assert_eq!(flow.verdict, 2);
    assert_eq!(
        flow.drop_reason_desc,
        i32::from(DropReason::InvalidSourceIp)
    );
    assert_eq!(
        flow.event_type.expect("a type"),
        CiliumEventType {
            r#type: 1,
            sub_type: 132
        }
    );
    assert_eq!(flow.summary, "TCP Flags: SYN; refused_source");
    assert_eq!(
        (flow.trace_observation_point, flow.trace_reason),
        (0, 0),
        "only of traces"
    );
}

#[test]
fn a_drop_by_a_rule_of_netfilter_is_a_denied_policy() {
    let outcome = Some(PacketOutcome::Kernel(KernelDrop::NetfilterDrop));
    let flow = flow(&FlowEvent {
        kind: FlowEventKind::Dropped,
        outcome,
        ..event()
    });
    assert_eq!(flow.verdict, 2);
    assert_eq!(
        flow.event_type.expect("a type"),
        CiliumEventType {
            r#type: 1,
            sub_type: 133
        }
    );
    assert_eq!(flow.drop_reason_desc, i32::from(DropReason::PolicyDenied));
    assert_eq!(flow.summary, "TCP Flags: SYN; netfilter_drop");
}

#[test]
fn every_reason_of_a_drop_and_no_other_has_one_of_cilium() {
    for reason in Reason::ALL {
        let is_translated =
            drop_reason(PacketOutcome::Program(Program::FromPod, reason)) != DropReason::Unknown;
        assert_eq!(
            is_translated,
            reason.verdict() == Verdict::Drop,
            "{}",
            reason.name()
        );
    }
}
