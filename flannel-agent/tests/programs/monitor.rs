//! Events that the programs write for a monitor: the packet as it is, only what the filter wants,
//! and nothing without a monitor.

use std::{net::IpAddr, time::Instant};

use aya::maps::{Array, Map, MapData};
use flannel_common::abi::{
    maps::MONITOR_DEADLINE,
    mode::Mode,
    monitor::{
        EVENTS_BYTES, Event, Filter, HEADERS_LEN, Missed, Network, OUTER_MAX, ReasonSet,
        SNAPLEN_MAX,
    },
    program::Program::{self, FromPod, FromTunnel, FromUnderlay, ToPod, ToTunnel, ToUnderlay},
    reason::Reason,
};
use flannel_datapath::{
    DatapathError, PinRoot, Subnets,
    kernel::clock,
    load,
    monitor::{MonitorMaps, MonitorSettings},
};
use flannel_flows::monitor::{Seen, packet::PacketAddresses};

use crate::{
    bench::{Bench, on_bench},
    packets::{self, BOTH, LO, Net, V4, V6},
};

/// Everything, and more of it than a test makes.
pub(crate) const ALL: MonitorSettings = MonitorSettings {
    filter: Filter {
        reasons: ReasonSet::ALL,
        programs: u32::MAX,
        sample: 1,
        source: Network {
            addr: flannel_common::packet::addr::Addr::NONE,
            mask: flannel_common::packet::addr::Addr::NONE,
        },
        destination: Network {
            addr: flannel_common::packet::addr::Addr::NONE,
            mask: flannel_common::packet::addr::Addr::NONE,
        },
    },
    rate: 100_000,
    snaplen: SNAPLEN_MAX,
};

const fn only(filter: Filter) -> MonitorSettings {
    MonitorSettings { filter, ..ALL }
}

/// An event, on its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportedEvent {
    pub(crate) program: Program,
    pub(crate) reason: Reason,
    pub(crate) frame: Vec<u8>,
    pub(crate) len: u32,
    pub(crate) gso_size: Option<u32>,
    pub(crate) outer: Option<[IpAddr; 2]>,
}

pub(crate) fn start(bench: &Bench, wanted: &MonitorSettings) -> MonitorMaps {
    let mut maps = MonitorMaps::claim(bench.pins()).expect("no monitor is there");
    maps.start(wanted).expect("the maps can be written");
    maps
}

/// Returns the events since the last call and renews the monitor deadline, because a test may be
/// slow.
pub(crate) fn reported(monitor: &mut MonitorMaps, snaplen: u32) -> Vec<ReportedEvent> {
    let mut all = Vec::new();
    while let Some(item) = monitor.next_event() {
        let seen = Seen::read(&item, snaplen as usize).expect("an event of these programs");
        assert_eq!(seen.ifindex(), LO);
        all.push(ReportedEvent {
            program: seen.program,
            reason: seen.reason,
            frame: seen.frame().to_vec(),
            len: seen.frame_len(),
            gso_size: seen.gso_size(),
            outer: seen.outer().map(
                |PacketAddresses {
                     source,
                     destination,
                 }| [source, destination],
            ),
        });
    }
    monitor.renew().expect("the lease can be written");
    all
}

/// A whole frame that was not cut.
pub(crate) fn whole(
    program: Program,
    reason: Reason,
    frame: &[u8],
    outer: Option<[IpAddr; 2]>,
) -> ReportedEvent {
    let len = u32::try_from(frame.len()).expect("small");
    ReportedEvent {
        program,
        reason,
        frame: frame.to_vec(),
        len,
        gso_size: None,
        outer,
    }
}

fn vtep(net: Net) -> (IpAddr, IpAddr) {
    (net.our_vtep, net.peer_vtep)
}

fn lease(pins: &PinRoot) -> Array<MapData, u64> {
    let map = MapData::from_pin(pins.map(MONITOR_DEADLINE))
        .and_then(Map::from_map_data)
        .expect("it is pinned");
    Array::try_from(map).expect("an array of one word")
}

#[test]
fn without_a_reader_nothing_is_reported() {
    on_bench(|bench| {
        let mut monitor = MonitorMaps::claim(bench.pins()).expect("no monitor is there");
        bench.run(ToTunnel, &V4.inner_to_peer(100));
        monitor.start(&ALL).expect("the maps can be written");
        drop(monitor);
        bench.run(ToTunnel, &V4.inner_to_peer(100));
        let mut monitor = MonitorMaps::claim(bench.pins()).expect("the last one is gone");
        assert!(monitor.next_event().is_none());
        assert_eq!(lease(bench.pins()).get(&0, 0).expect("it can be read"), 0);
    });
}

#[test]
fn every_program_reports_the_packet_it_saw() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        for net in BOTH {
            let frame = net.inner_to_peer(100);
            for (program, reason) in [
                (FromPod, Reason::ModeKernel),
                (ToPod, Reason::ModeKernel),
                (FromTunnel, Reason::ModeKernel),
                (ToTunnel, Reason::PathUnseen),
                (FromUnderlay, Reason::NotTunnel),
                (ToUnderlay, Reason::NotTunnel),
            ] {
                bench.run(program, &frame).passed(reason, &frame);
                assert_eq!(
                    reported(&mut monitor, SNAPLEN_MAX),
                    [whole(program, reason, &frame, None)]
                );
            }
        }
        let arp = [
            packets::ethernet(packets::OUR_MAC, packets::PEER_MAC, 0x0806),
            vec![7; 28],
        ]
        .concat();
        bench.run(FromUnderlay, &arp);
        assert_eq!(
            reported(&mut monitor, SNAPLEN_MAX),
            [whole(FromUnderlay, Reason::NotTunnel, &arp, None)]
        );
    });
}

#[test]
fn of_a_tunnel_packet_the_inner_frame_is_reported() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        for net in BOTH {
            let (ours, peers) = vtep(net);
            let tunnelled = net.tunnel_from_peer(net.peer_pod);
            bench.run(FromUnderlay, &tunnelled);
            let inner = &tunnelled[net.at().inner..];
            let expected = whole(FromUnderlay, Reason::TunnelGood, inner, Some([peers, ours]));
            assert_eq!(reported(&mut monitor, SNAPLEN_MAX), [expected]);

            let frame = net.inner_to_peer(1000);
            bench.validate_path(net, 1000);
            let expected = whole(ToUnderlay, Reason::PathSeen, &frame, Some([ours, peers]));
            assert_eq!(reported(&mut monitor, SNAPLEN_MAX), [expected]);

            assert_eq!(bench.run(ToTunnel, &frame).reasons, [Reason::Encapsulated]);
            let expected = whole(ToTunnel, Reason::Encapsulated, &frame, Some([ours, peers]));
            assert_eq!(reported(&mut monitor, SNAPLEN_MAX), [expected]);
        }
    });
}

/// A pod may speak VXLAN itself.
#[test]
fn only_on_the_underlay_is_a_tunnel_packet_ours() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        for net in BOTH {
            let nested = net.tunnel_from_peer(net.peer_pod);
            bench.run(FromPod, &nested);
            assert_eq!(
                reported(&mut monitor, SNAPLEN_MAX),
                [whole(FromPod, Reason::ModeKernel, &nested, None)]
            );
        }
    });
}

#[test]
fn packets_that_are_yet_to_be_cut_say_so() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        bench.run_with(ToTunnel, &V4.inner_tcp_to_peer(3000), 1000);
        assert_eq!(
            reported(&mut monitor, SNAPLEN_MAX)
                .pop()
                .expect("an event")
                .gso_size,
            Some(1000)
        );
    });
}

#[test]
fn of_a_long_packet_the_first_bytes_are_reported() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 1300);
            let frame = net.inner_to_peer(1300);
            for snaplen in [0, 1, 74, 128, SNAPLEN_MAX] {
                let mut monitor = start(bench, &MonitorSettings { snaplen, ..ALL });
                bench.run(ToTunnel, &frame);
                let [
                    ReportedEvent {
                        frame: kept,
                        len,
                        outer,
                        ..
                    },
                ] = &reported(&mut monitor, snaplen)[..]
                else {
                    panic!("one event")
                };
                assert_eq!(kept, &frame[..frame.len().min(snaplen as usize)]);
                assert_eq!(
                    (*len as usize, *outer),
                    (frame.len(), Some([net.our_vtep, net.peer_vtep]))
                );
                bench.run(ToTunnel, &frame);
                let item = monitor.next_event().expect("an event");
                let most = Event::LEN + (OUTER_MAX + snaplen.max(HEADERS_LEN)) as usize;
                assert!(
                    item.len() <= most,
                    "{} bytes for a snaplen of {snaplen}",
                    item.len()
                );
                let named = Seen::read(&item, snaplen as usize)
                    .expect("an event")
                    .packet()
                    .to_string();
                let expected = format!(
                    "{}.4000 > {}.53: UDP, length 1300",
                    net.our_pod, net.peer_pod
                );
                assert!(named.contains(&expected), "{named}");
            }
        }
    });
}

/// Filters, and the programs and families whose packets pass them.
fn filters() -> Vec<(Filter, Vec<(Program, Net)>)> {
    let network = |addr: IpAddr, len| Network::new(addr, len);
    let inside = [network(V4.peer_pod, 24), network(V6.peer_pod, 64)];
    let by_reason = Filter {
        reasons: ReasonSet::default().with(Reason::PathUnseen),
        ..ALL.filter
    };
    let by_program = Filter {
        programs: 1 << ToTunnel as u32,
        ..ALL.filter
    };
    let to = inside.map(|destination| Filter {
        destination,
        ..ALL.filter
    });
    let from = |source| Filter {
        source,
        ..ALL.filter
    };
    let any = network("0.0.0.0".parse().expect("an address"), 0);
    vec![
        (by_reason, vec![(ToTunnel, V4), (ToTunnel, V6)]),
        (by_program, vec![(ToTunnel, V4), (ToTunnel, V6)]),
        (to[0], vec![(ToTunnel, V4)]),
        (to[1], vec![(ToTunnel, V6)]),
        (from(inside[0]), vec![(FromUnderlay, V4)]),
        (from(inside[1]), vec![(FromUnderlay, V6)]),
        // The outer source does not count, nor does what has no address.
        (from(network(V4.peer_vtep, 32)), vec![]),
        (from(any), vec![(ToTunnel, V4), (FromUnderlay, V4)]),
    ]
}

/// The programs and Ethertypes that a monitor with this filter reports, in order.
fn passing(bench: &mut Bench, filter: Filter) -> Vec<(Program, u16)> {
    let mut monitor = start(bench, &only(filter));
    let mut seen = Vec::new();
    for net in BOTH {
        for (program, packet) in [
            (ToTunnel, net.inner_to_peer(10)),
            (FromUnderlay, net.tunnel_from_peer(net.peer_pod)),
        ] {
            bench.run(program, &packet);
            seen.extend(
                reported(&mut monitor, 0)
                    .iter()
                    .map(|event| (event.program, net.ethertype)),
            );
        }
    }
    let arp = packets::ethernet(packets::OUR_MAC, packets::PEER_MAC, 0x0806);
    bench.run(FromUnderlay, &[arp, vec![7; 28]].concat());
    seen.extend(
        reported(&mut monitor, 0)
            .iter()
            .map(|event| (event.program, 0x0806)),
    );
    seen.sort_unstable();
    seen
}

#[test]
fn the_filter_looks_at_program_reason_and_inner_addresses() {
    on_bench(|bench| {
        for (filter, expected) in filters() {
            let seen = passing(bench, filter);
            let mut expected: Vec<_> = expected
                .into_iter()
                .map(|(program, net)| (program, net.ethertype))
                .collect();
            if filter == ALL.filter {
                expected.push((FromUnderlay, 0x0806));
            }
            expected.sort_unstable();
            assert_eq!(seen, expected, "{filter:?}");
        }
    });
}

#[test]
fn one_in_so_many_is_reported() {
    on_bench(|bench| {
        let mut monitor = start(
            bench,
            &only(Filter {
                sample: 8,
                ..ALL.filter
            }),
        );
        let packet = V4.tunnel_from_peer(V4.peer_pod);
        let mut count = 0;
        for _ in 0..40 {
            bench.repeat(FromUnderlay, &packet, 100);
            count += reported(&mut monitor, 0).len();
        }
        // 500 are meant, and the spread is 21.
        assert!((350..650).contains(&count), "{count} of 4000");
        assert_eq!(monitor.missed().expect("counters"), Missed::default());
    });
}

#[test]
fn no_more_a_second_than_asked_for() {
    on_bench(|bench| {
        let rate = 200;
        let began = Instant::now();
        let mut monitor = start(bench, &MonitorSettings { rate, ..ALL });
        let packet = V4.tunnel_from_peer(V4.peer_pod);
        bench.repeat(FromUnderlay, &packet, 20_000);
        let count = reported(&mut monitor, 0).len() as u64;
        // The limit allows a burst of a tenth of a second's packets, and the rate during the run.
        let allowed =
            u128::from(rate) / 10 + 1 + began.elapsed().as_millis() * u128::from(rate) / 1000;
        assert!(
            count >= u64::from(rate) / 10 && u128::from(count) <= allowed,
            "{count} of {allowed}"
        );
        assert_eq!(
            monitor.missed().expect("counters"),
            Missed {
                limited: 20_000 - count,
                lost: 0
            }
        );
    });
}

#[test]
fn what_finds_no_room_is_counted() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        let packet = V4.tunnel_from_peer(V4.peer_pod);
        let runs = 2 * EVENTS_BYTES / u32::try_from(packet.len() + Event::LEN).expect("small");
        bench.repeat(FromUnderlay, &packet, runs);
        let Missed { limited, lost } = monitor.missed().expect("counters");
        let count = reported(&mut monitor, 0).len() as u64;
        assert!(lost > 0, "there was room for all");
        assert_eq!(count + lost + limited, u64::from(runs));
        bench.run(FromUnderlay, &packet);
        assert_eq!(reported(&mut monitor, 0).len(), 1, "there is room again");
    });
}

#[test]
fn a_monitor_that_says_nothing_more_gets_nothing_more() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        let mut lease = lease(bench.pins());
        // As if the monitor had been killed more than a lease ago; and as if the word was read
        // while it was written.
        for until in [clock::now_ns() - 1, u64::MAX] {
            lease.set(0, until, 0).expect("it can be written");
            bench.run(ToTunnel, &V4.inner_to_peer(10));
            assert!(monitor.next_event().is_none(), "told after {until}");
            assert_eq!(
                lease.get(&0, 0).expect("it can be read"),
                0,
                "the next packet pays nothing"
            );
        }
        monitor.renew().expect("the lease can be written");
        bench.run(ToTunnel, &V4.inner_to_peer(10));
        assert_eq!(reported(&mut monitor, 0).len(), 1, "it lives");
    });
}

#[test]
fn one_monitor_at_a_time() {
    on_bench(|bench| {
        let first = start(bench, &ALL);
        let Err(error @ DatapathError::MonitorTaken { .. }) = MonitorMaps::claim(bench.pins())
        else {
            panic!("two monitors");
        };
        assert!(
            error.to_string().starts_with("a monitor already runs"),
            "{error}"
        );
        bench.run(ToTunnel, &V4.inner_to_peer(10));
        let mut first = first;
        assert_eq!(
            reported(&mut first, 0).len(),
            1,
            "the second took nothing from the first"
        );
    });
}

#[test]
fn a_monitor_notices_maps_made_again() {
    on_bench(|bench| {
        let monitor = start(bench, &ALL);
        assert!(!monitor.are_replaced(bench.pins()));
        std::fs::remove_file(bench.pins().map(flannel_common::abi::maps::EVENTS))
            .expect("it is pinned");
        assert!(monitor.are_replaced(bench.pins()));
    });
}

/// An agent that is started while a monitor runs takes the lease back; the monitor's next word
/// gives it again.
#[test]
fn another_load_keeps_the_monitor() {
    on_bench(|bench| {
        let mut monitor = start(bench, &ALL);
        let subnets = u64::from(packets::SUBNETS);
        load(
            bench.pins(),
            &Program::ALL,
            Subnets {
                v4: subnets,
                v6: subnets,
            },
            None,
        )
        .expect("the kernel takes the object");
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        assert!(!monitor.are_replaced(bench.pins()));
        monitor.renew().expect("the lease can be written");
        bench.run(ToTunnel, &V4.inner_to_peer(10));
        assert_eq!(reported(&mut monitor, 0).len(), 1);
    });
}
