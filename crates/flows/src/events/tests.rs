//! Events from rows and packets that are made here.

use std::{
    mem::offset_of,
    net::SocketAddr,
    time::{Duration, Instant},
};

use flannel_common::{
    abi::{
        kernel_drop::KernelDrop,
        monitor::{Event, HEADERS_LEN, KERNEL},
        program::Program,
        reason::{Reason, Verdict},
    },
    packet::{ETHERTYPE_IPV4, PROTO_UDP},
};

use super::{
    event::{Direction, FlowEvent, FlowEventKind, PacketOutcome},
    packets::{self, PacketEvents, REMEMBERED},
    table::TableEvents,
    waiting::{PATIENCE, WAITING, Waiting},
    *,
};
use crate::rows::{FlowRow, FlowWay};

fn row(source: &str, destination: &str, packets: u64) -> FlowRow {
    let end = |text: &str| text.parse::<SocketAddr>().expect("an address and a port");
    FlowRow {
        protocol: "tcp",
        source: end(source),
        destination: end(destination),
        device: 3,
        out_source: end(source),
        out_destination: end(destination),
        out_device: 4,
        way: FlowWay::Tunnel,
        packets,
        bytes: packets * 100,
        first_seen_ms: 4_500,
        last_seen_ms: 100,
        age_ms: None,
        expires_in_ms: None,
        mirror_expires_in_ms: None,
        needs_mirror: true,
        mtu: 1450,
        tos: 0,
        ttl: 64,
        flow_label: 0,
        state: "usable",
        why: None,
        generation: 1,
    }
}

const WALL: Duration = Duration::from_secs(1_000);
const WEB: &str = "10.244.1.5:40000";
const DB: &str = "10.244.2.2:5432";

fn packet(reason: Reason, port: u16, flags: u8) -> FlowEvent {
    let mut event = FlowEvent::of_row(&row(WEB, DB, 1), FlowEventKind::New, WALL);
    event.ports = Some([port, 5432]);
    event.outcome = Some(PacketOutcome::Program(Program::FromPod, reason));
    event.tcp_flags = Some(flags);
    event.translated = None;
    if reason.verdict() == Verdict::Drop {
        event.kind = FlowEventKind::Dropped;
    }
    event
}

#[test]
fn a_table_has_events_for_what_is_new_goes_on_and_ended() {
    let (mut table, start) = (TableEvents::new(true), Instant::now());
    let read = |table: &mut TableEvents, rows: &[FlowRow], later: Duration| {
        table.begin();
        let now = start + later;
        let mut events: Vec<_> = rows
            .iter()
            .filter_map(|row| table.observe(row.clone(), now, WALL))
            .collect();
        events.extend(table.finish(WALL));
        events
            .iter()
            .map(|event| (event.kind, event.packets))
            .collect::<Vec<_>>()
    };
    let old = |packets| row(WEB, DB, packets);
    let second = Duration::from_secs(1);
    assert_eq!(
        read(&mut table, &[old(5)], Duration::ZERO),
        [(FlowEventKind::Active, 5)],
        "it was there before"
    );
    let new = row("10.244.1.6:40000", DB, 2);
    assert_eq!(
        read(&mut table, &[old(9), new.clone()], second),
        [(FlowEventKind::New, 2)]
    );
    assert_eq!(
        read(&mut table, &[old(9), new.clone()], INTERVAL),
        [(FlowEventKind::Active, 9)],
        "only with packets"
    );
    assert_eq!(
        read(&mut table, &[old(10), new.clone()], INTERVAL + second),
        [],
        "one event in an interval"
    );
    assert_eq!(
        read(&mut table, &[old(11)], INTERVAL + 2 * second),
        [(FlowEventKind::Ended, 2)]
    );
    assert_eq!(
        read(&mut table, &[old(11), new], INTERVAL + 3 * second),
        [(FlowEventKind::New, 2)]
    );
}

#[test]
fn packets_of_a_flow_within_an_interval_are_one_event() {
    let (mut events, start) = (PacketEvents::default(), Instant::now());
    let mut kind =
        |event: FlowEvent, later| events.admit(event, start + later).map(|event| event.kind);
    let (ack, fin) = (0x10, 0x11);
    assert_eq!(
        kind(packet(Reason::Sampled, 40_000, ack), Duration::ZERO),
        Some(FlowEventKind::New)
    );
    assert_eq!(
        kind(packet(Reason::Refreshing, 40_000, ack), Duration::ZERO),
        None,
        "of the same flow"
    );
    assert_eq!(
        kind(packet(Reason::TcpControl, 40_000, fin), Duration::ZERO),
        Some(FlowEventKind::New),
        "its end"
    );
    assert_eq!(
        kind(packet(Reason::Sampled, 40_001, ack), Duration::ZERO),
        Some(FlowEventKind::New),
        "another port"
    );
    assert_eq!(
        kind(packet(Reason::ForgedClose, 40_000, ack), Duration::ZERO),
        Some(FlowEventKind::Dropped)
    );
    assert_eq!(
        kind(packet(Reason::ForgedClose, 40_000, ack), Duration::ZERO),
        None
    );
    assert_eq!(
        kind(packet(Reason::Sampled, 40_000, ack), INTERVAL),
        Some(FlowEventKind::Active)
    );
}

#[test]
fn a_flood_of_flows_is_not_remembered_without_end() {
    let (mut events, start) = (PacketEvents::default(), Instant::now());
    let ports = u16::try_from(REMEMBERED).expect("few");
    for port in 0..=ports {
        assert!(
            events
                .admit(packet(Reason::Sampled, port, 0x10), start)
                .is_some()
        );
    }
    let again = events.admit(packet(Reason::Sampled, ports, 0x10), start);
    assert!(
        again.is_some(),
        "a flow that is not remembered has an event for each packet"
    );
    assert!(
        events
            .admit(packet(Reason::Sampled, 0, 0x10), start)
            .is_none()
    );
    let later = start + 3 * INTERVAL;
    assert!(
        events
            .admit(packet(Reason::Sampled, ports, 0x10), later)
            .is_some()
    );
    assert!(
        events
            .admit(packet(Reason::Sampled, ports, 0x10), later)
            .is_none(),
        "there is room again"
    );
}

#[test]
fn every_drop_is_reported_and_no_replayed_packet() {
    let reported = packets::reasons();
    for reason in Reason::ALL
        .into_iter()
        .filter(|reason| reason.verdict() == Verdict::Drop)
    {
        assert!(reported.has(reason), "{}", reason.name());
    }
    assert!(!reported.has(Reason::Replayed) && !reported.has(Reason::NotTunnel));
    assert!(
        reported.has(Reason::Encapsulated)
            && reported.has(Reason::TunnelGood)
            && reported.has(Reason::ModeKernel)
    );
}

#[test]
fn the_answering_end_is_known_by_flags_translation_and_ports() {
    let of = |ports: [u16; 2], flags: Option<u8>| {
        let event = FlowEvent {
            ports: Some(ports),
            tcp_flags: flags,
            ..packet(Reason::Sampled, 1, 0)
        };
        event.is_reply()
    };
    assert_eq!(
        [of([80, 80], Some(0x02)), of([80, 80], Some(0x12))],
        [Some(false), Some(true)]
    );
    assert_eq!(
        [of([40_000, 80], Some(0x10)), of([80, 40_000], None)],
        [Some(false), Some(true)]
    );
    assert_eq!(
        [of([80, 443], Some(0x10)), of([40_000, 50_000], None)],
        [None, None]
    );
    let mut service = FlowEvent::of_row(
        &row("10.244.1.5:40000", "10.96.0.1:50000", 1),
        FlowEventKind::New,
        WALL,
    );
    assert_eq!(service.is_reply(), None);
    service.translated = Some((
        [
            service.addresses[0],
            DB.parse::<SocketAddr>().expect("an end").ip(),
        ],
        [40_000, 5432],
    ));
    assert_eq!(
        service.is_reply(),
        Some(false),
        "its destination is translated"
    );
    let icmp = |kind| {
        let event = packet(Reason::OtherTransport, 1, 0);
        FlowEvent {
            protocol: 1,
            ports: None,
            tcp_flags: None,
            icmp: Some([kind, 0]),
            ..event
        }
        .is_reply()
    };
    assert_eq!([icmp(8), icmp(0), icmp(3)], [Some(false), Some(true), None]);
}

#[test]
fn the_time_of_a_row_is_that_of_its_last_packet() {
    let event = FlowEvent::of_row(&row(WEB, DB, 1), FlowEventKind::Active, WALL);
    assert_eq!(event.time, WALL.saturating_sub(Duration::from_millis(100)));
    assert_eq!(
        (event.direction, event.is_reply()),
        (Direction::Egress, Some(false))
    );
}

#[test]
fn events_wait_for_names_in_their_order_and_not_for_long() {
    let (mut waiting, start) = (Waiting::default(), Instant::now());
    let of = |port| packet(Reason::Sampled, port, 0x10);
    let due = |waiting: &mut Waiting, complete, at| {
        waiting
            .due(complete, at)
            .map(|event| event.ports.expect("ports")[0])
            .collect::<Vec<_>>()
    };
    waiting.extend(vec![of(1), of(2)], start);
    assert_eq!(
        waiting.addresses(),
        [WEB, DB].map(|end| end.parse::<SocketAddr>().expect("an end").ip())
    );
    assert_eq!(due(&mut waiting, false, start), [0; 0]);
    waiting.extend(vec![of(3)], start + PATIENCE);
    assert_eq!(due(&mut waiting, false, start + PATIENCE), [1, 2]);
    assert_eq!(due(&mut waiting, true, start + PATIENCE), [3]);
    waiting.extend((0..=WAITING).map(|_| of(4)).collect(), start);
    assert_eq!(
        due(&mut waiting, false, start),
        [4],
        "a flood does not wait"
    );
}

/// Bytes in front of the frame.
const GAP: usize = 2;

/// An event of a packet that the kernel dropped, as the program writes it: UDP over IPv4.
fn kernel_drop(program: u8, reason: u8) -> Vec<u8> {
    let mut item = vec![0; Event::LEN + GAP + HEADERS_LEN as usize];
    let words = [
        (offset_of!(Event, ifindex), 7_u32),
        (offset_of!(Event, len), 60),
    ];
    for (at, word) in words {
        item[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, len) in [
        (offset_of!(Event, inner_at), GAP),
        (offset_of!(Event, captured), GAP + HEADERS_LEN as usize),
    ] {
        item[at..at + 2].copy_from_slice(&u16::try_from(len).expect("small").to_ne_bytes());
    }
    (
        item[offset_of!(Event, program)],
        item[offset_of!(Event, reason)],
    ) = (program, reason);
    item[offset_of!(Event, is_inbound)] = 1;
    let frame = &mut item[Event::LEN + GAP..];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV4);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, PROTO_UDP]);
    frame[26..34].copy_from_slice(&[10, 244, 2, 2, 10, 244, 1, 5]);
    frame[34..38].copy_from_slice(&[0, 53, 0x9c, 0x40]);
    item
}

#[test]
fn a_packet_that_the_kernel_drops_is_an_event_with_its_reason() {
    let (mut events, now) = (PacketEvents::default(), Instant::now());
    let item = kernel_drop(KERNEL, KernelDrop::NetfilterDrop as u8);
    let event = events.observe(&item, WALL, now).expect("an event");
    assert_eq!(
        (event.kind, event.outcome),
        (
            FlowEventKind::Dropped,
            Some(PacketOutcome::Kernel(KernelDrop::NetfilterDrop))
        )
    );
    assert_eq!(
        (event.direction, event.ifindex, event.bytes),
        (Direction::Ingress, 7, 60)
    );
    assert_eq!(
        (event.addresses[0].to_string(), event.ports),
        ("10.244.2.2".to_owned(), Some([53, 40_000]))
    );
    assert_eq!(
        events.observe(&item, WALL, now),
        None,
        "one event in an interval"
    );
    let other = kernel_drop(KERNEL, KernelDrop::NoRouteIn as u8);
    assert!(
        events.observe(&other, WALL, now).is_some(),
        "for another reason"
    );
    assert_eq!(events.observe(&kernel_drop(KERNEL, 0), WALL, now), None);
    assert_eq!(
        events.observe(&kernel_drop(KERNEL - 1, 1), WALL, now),
        None,
        "no program has this number"
    );
    for len in 0..item.len() {
        assert_eq!(
            PacketEvents::default().observe(&item[..len], WALL, now),
            None,
            "{len} bytes"
        );
    }
}
