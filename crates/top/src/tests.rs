//! Samples through comparison and drawing.

use std::collections::BTreeMap;

use flannel_common::abi::{
    mode::Mode, program::Program, reason::Reason, stats::Counter, traffic::PeerTraffic,
};
use flannel_flows::{
    history::{RateHistory, TrafficHistory},
    pod_traffic::PodTraffic,
    rows::FlowWay,
};
use ratatui::{Terminal, backend::TestBackend, style::Color};

use super::{
    Board, SortKey, TopSample, View,
    board::TrafficRate,
    document::TopDocument,
    sample::{CountedFlow, CountedPod, PeerPlace},
    view::Palette,
};

const SECOND: u64 = 1_000_000_000;

fn flow(source: &str, destination: &str, out: &str, way: FlowWay, packets: u64) -> CountedFlow {
    let end = |text: &str| text.parse().expect("an address and a port");
    let (source, destination, out_destination) = (end(source), end(destination), end(out));
    CountedFlow {
        protocol: "tcp",
        source,
        destination,
        device: 3,
        out_destination,
        way,
        packets,
        bytes: packets * 1000,
        state: "usable",
    }
}

fn peer(number: u8, way: &'static str) -> PeerPlace {
    let subnet = format!("10.244.{number}.0/24").parse().expect("a prefix");
    PeerPlace {
        subnet,
        vtep: [192, 168, 1, number].into(),
        way,
        traffic: None,
    }
}

/// Of each packet that a peer gets it sends two, which are smaller.
fn traffic(packets: u64) -> PeerTraffic {
    let sent = Counter {
        packets,
        bytes: packets * 1000,
    };
    PeerTraffic {
        sent,
        received: Counter {
            packets: packets * 2,
            bytes: packets * 200,
        },
    }
}

fn pod(veth: &str, packets: u64) -> CountedPod {
    let PeerTraffic { sent, received } = traffic(packets);
    CountedPod {
        veth: veth.to_owned(),
        traffic: PodTraffic {
            to: sent,
            from: received,
        },
    }
}

/// A node with two peers: `packets` of each flow, and as many of each counter.
fn sample(second: u64, packets: u64) -> TopSample {
    let counters = [
        (Program::FromPod, Reason::Replayed),
        (Program::FromUnderlay, Reason::NotTunnel),
        (Program::FromUnderlay, Reason::RefusedVtep),
        (Program::ToUnderlay, Reason::PathSeen),
    ];
    let counted = Counter {
        packets,
        bytes: packets * 100,
    };
    let mut counters = BTreeMap::from(counters.map(|key| (key, counted)));
    counters.insert(
        (Program::FromPod, Reason::Refreshing),
        Counter {
            packets: packets / 10,
            bytes: packets * 10,
        },
    );
    TopSample {
        now_ns: second * SECOND,
        mode: Mode::Fast,
        heartbeat_age_ns: Some(SECOND / 2),
        is_current: true,
        counters,
        peers: vec![
            PeerPlace {
                traffic: Some(traffic(packets)),
                ..peer(2, "tunnel")
            },
            PeerPlace {
                traffic: Some(traffic(packets / 10)),
                ..peer(3, "kernel")
            },
        ],
        pods: vec![pod("veth1", packets / 10), pod("veth2", packets)],
        flows: vec![
            flow(
                "10.244.1.5:40000",
                "10.96.0.1:80",
                "10.244.2.2:8080",
                FlowWay::Tunnel,
                packets,
            ),
            flow(
                "10.244.2.2:8080",
                "10.244.1.5:40000",
                "10.244.1.5:40000",
                FlowWay::Pod,
                packets / 2,
            ),
            flow(
                "10.244.1.6:40001",
                "10.244.1.7:80",
                "10.244.1.7:80",
                FlowWay::Pod,
                packets * 2,
            ),
        ],
    }
}

fn board() -> Board {
    Board::new(Some(&sample(1, 1000)), &sample(3, 3000), SortKey::Rate)
}

/// The lines of a frame, and the backend for its colours.
fn draw(view: View<'_>, width: u16, height: u16) -> (Vec<String>, TestBackend) {
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal
        .draw(|frame| frame.render_widget(view, frame.area()))
        .expect("drawn");
    let backend = terminal.backend().clone();
    let symbols: Vec<_> = backend
        .buffer()
        .content
        .iter()
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    (
        symbols
            .chunks(usize::from(width))
            .map(<[&str]>::concat)
            .collect(),
        backend,
    )
}

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in {lines:#?}"))
}

#[test]
fn rates_are_differences_over_time() {
    let board = board();
    let pods = &board.hooks[0];
    assert_eq!(
        (pods.program, pods.packets, pods.bytes),
        (Program::FromPod, Some(1100.0), Some(110_000.0))
    );
    assert_eq!(pods.taken, Some(2000.0 / 2200.0));
    let nodes = &board.hooks[2];
    assert_eq!(
        (nodes.packets, nodes.taken),
        (Some(1000.0), Some(0.0)),
        "without the host's own traffic"
    );
    let first = &board.peers[0];
    assert_eq!(
        (first.peer.subnet.to_string().as_str(), first.flows),
        ("10.244.2.0/24", 2),
        "by its translated end"
    );
    assert_eq!(
        (first.replayed_to, first.replayed_from),
        (Some(1000.0), Some(500.0))
    );
    assert_eq!(board.peers[1].replayed_to, Some(0.0));
    let rates = |of: TrafficRate| (of.packets, of.bits);
    assert_eq!(
        [first.to, first.from].map(rates),
        [(Some(1000.0), Some(8e6)), (Some(2000.0), Some(1.6e6))]
    );
    assert_eq!(
        rates(board.peers[1].to),
        (Some(100.0), Some(800_000.0)),
        "of a path without programs too"
    );
    let pods: Vec<_> = board
        .pods
        .iter()
        .map(|row| (row.pod.veth.as_str(), row.to.packets, row.from.packets))
        .collect();
    assert_eq!(
        pods,
        [
            ("veth2", Some(1000.0), Some(2000.0)),
            ("veth1", Some(100.0), Some(200.0))
        ]
    );
    assert_eq!(board.flows[0].bits, Some(1.6e7));
    let rates: Vec<_> = board.flows.iter().map(|flow| flow.packets).collect();
    assert_eq!(rates, [Some(2000.0), Some(1000.0), Some(500.0)]);
}

#[test]
fn one_sample_has_totals_and_no_rates() {
    let board = Board::new(None, &sample(1, 1000), SortKey::Rate);
    assert_eq!((board.hooks[0].packets, board.hooks[0].taken), (None, None));
    assert_eq!(
        (
            board.peers[0].to,
            board.flows[0].packets,
            board.flows[0].total
        ),
        (TrafficRate::default(), None, 2000)
    );
}

/// A flow that is learned again counts from zero, and so do the counters of new maps.
#[test]
fn a_counter_that_became_smaller_counts_from_zero() {
    let board = Board::new(Some(&sample(1, 3000)), &sample(2, 500), SortKey::Rate);
    assert_eq!(board.hooks[0].packets, Some(550.0));
    assert_eq!(board.flows[0].packets, Some(1000.0));
}

/// 0 would be wrong. A peer that appears between two samples has no rate yet.
#[test]
fn what_the_programs_do_not_count_has_no_rate() {
    let encap = |second, packets| TopSample {
        mode: Mode::Encap,
        flows: Vec::new(),
        ..sample(second, packets)
    };
    let uncounted = |second| TopSample {
        peers: vec![peer(2, "direct")],
        ..encap(second, 10)
    };
    let board = Board::new(Some(&uncounted(1)), &uncounted(2), SortKey::Rate);
    assert_eq!(
        (board.peers[0].to, board.peers[0].replayed_to),
        (TrafficRate::default(), None)
    );
    let board = Board::new(Some(&uncounted(1)), &encap(2, 20), SortKey::Rate);
    assert_eq!(board.peers[0].to, TrafficRate::default(), "new");
    let board = Board::new(Some(&encap(1, 10)), &encap(2, 20), SortKey::Rate);
    assert_eq!(
        (board.peers[0].to.packets, board.peers[0].replayed_to),
        (Some(10.0), None)
    );
}

#[test]
fn drops_and_packets_left_to_the_kernel_are_apart() {
    let board = board();
    let names = |rows: &[super::board::ReasonRate]| {
        rows.iter().map(|row| row.reason.name()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&board.drops), names(&board.left)),
        (vec!["refused_vtep"], vec!["refreshing"])
    );
    let idle = Board::new(Some(&sample(1, 1000)), &sample(2, 1000), SortKey::Rate);
    assert_eq!(
        (idle.drops.len(), idle.left.len()),
        (1, 0),
        "drops stay, the rest is shown while it happens"
    );
}

#[test]
fn the_order_is_the_one_asked_for() {
    let mut board = board();
    let first = |board: &Board| board.flows[0].source.to_string();
    assert_eq!(first(&board), "10.244.1.6:40001");
    board.order(SortKey::Address);
    assert_eq!(
        (first(&board), board.peers[0].peer.subnet.to_string()),
        ("10.244.1.5:40000".into(), "10.244.2.0/24".into())
    );
    assert_eq!(SortKey::Rate.next().next().next(), SortKey::Rate);
}

#[test]
fn a_document_is_read_as_it_was_written_and_has_the_first_rows() {
    let document = TopDocument::new(&board(), 7, Some(1));
    assert_eq!((document.peers.len(), document.flows.len()), (1, 1));
    assert_eq!(document.flows[0].source, "10.244.1.6:40001", "the busiest");
    let text = serde_json::to_string(&document).expect("JSON");
    let read: TopDocument = serde_json::from_str(&text).expect("a document");
    assert_eq!(
        (read.peers, read.flows, read.drops),
        (document.peers, document.flows, document.drops)
    );
    assert_eq!(TopDocument::new(&board(), 7, None).flows.len(), 3);
}

#[test]
fn a_frame_shows_every_panel() {
    let mut board = board();
    board.agent = "no agent answers".to_owned();
    board.problems = vec!["refused lease: nonsense".to_owned()];
    let view = View {
        board: &board,
        palette: Palette { on: true },
        keys: "q quit",
        offset: 0,
    };
    let (lines, backend) = draw(view, 110, 40);
    assert!(
        lines[0].starts_with("mode fast   heartbeat 0.5 s ago   no agent answers"),
        "{lines:#?}"
    );
    let words = |part: &str| {
        line(&lines, part)
            .trim_matches(['│', ' '])
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words("from pods").join(" "),
        "from pods from_pod 1.1 k 110 k █████████░ 91 %"
    );
    assert_eq!(
        words("192.168.1.2 ").join(" "),
        "10.244.2.0/24 192.168.1.2 tunnel 2 1.0 k 2.0 k 8.0 M 1.6 M"
    );
    assert_eq!(
        words("10.96.0.1")[..5].join(" "),
        "tcp 10.244.1.5:40000 10.96.0.1:80 10.244.2.2:8080 tunnel"
    );
    assert!(
        line(&lines, "refused_vtep").contains("refreshing"),
        "both are in one row"
    );
    for part in [
        " problems ",
        "refused lease: nonsense",
        " 2 peers by rate ",
        " 3 flows by rate ",
        "q quit",
    ] {
        line(&lines, part);
    }
    let red: String = backend
        .buffer()
        .content
        .iter()
        .filter(|cell| cell.fg == Color::Red)
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    assert_eq!(red.trim(), "refused lease: nonsenserefused_vtep");
}

#[test]
fn pods_are_drawn_in_place_of_peers() {
    let mut board = board();
    board.shows_pods = true;
    let view = View {
        board: &board,
        palette: Palette { on: false },
        keys: "q quit",
        offset: 0,
    };
    for width in [80, 110] {
        let (lines, _) = draw(view, width, 24);
        let words: Vec<_> = line(&lines, "veth2")
            .trim_matches(['│', ' '])
            .split_whitespace()
            .collect();
        assert_eq!(
            words,
            ["veth2", "1.0", "k", "2.0", "k", "8.0", "M", "1.6", "M"]
        );
        assert!(
            line(&lines, " 2 pods by rate ").contains('─')
                && !lines.concat().contains("192.168.1.2")
        );
    }
}

/// The first peer and the first pod had packets in the last half of ten minutes.
fn with_history() -> Board {
    let points = |rate: u64| (1..=30).map(|point| Some(point * rate)).collect();
    let rates = |rate| RateHistory {
        packets_per_second: points(rate),
        bits_per_second: points(rate * 8000),
    };
    let history = TrafficHistory {
        node: rates(3),
        peers: [("10.244.2.0/24".to_owned(), rates(2))].into(),
        pods: [("veth2".to_owned(), rates(1))].into(),
    };
    Board {
        history: Some(history),
        ..board()
    }
}

#[test]
fn a_wide_screen_has_the_last_ten_minutes_of_peers_and_pods() {
    let mut board = with_history();
    let mut blocks = |shows_pods: bool, width: u16| {
        board.shows_pods = shows_pods;
        let view = View {
            board: &board,
            palette: Palette { on: false },
            keys: "q quit",
            offset: 0,
        };
        let lines = draw(view, width, 30).0;
        let row = line(&lines, if shows_pods { "veth2" } else { "10.244.2.0/24" });
        let count = row
            .chars()
            .filter(|symbol| ('\u{2581}'..='\u{2588}').contains(symbol))
            .count();
        (lines.iter().any(|line| line.contains("10 MIN")), count)
    };
    assert_eq!(
        [80, 139, 140].map(|width| blocks(false, width)),
        [(false, 0), (false, 0), (true, 10)]
    );
    assert_eq!(
        [200, 300].map(|width| blocks(false, width)),
        [(true, 30); 2],
        "no block where nothing is known"
    );
    assert_eq!(
        [99, 100, 140].map(|width| blocks(true, width)),
        [(false, 0), (true, 10), (true, 30)]
    );
    let document = TopDocument::new(&board, 7, None);
    assert_eq!(
        document
            .history
            .map(|history| history.packets_per_second[29]),
        Some(Some(90))
    );
}

#[test]
fn without_colours_no_cell_has_any() {
    let board = board();
    let (_, backend) = draw(
        View {
            board: &board,
            palette: Palette { on: false },
            keys: "",
            offset: 0,
        },
        100,
        30,
    );
    assert!(
        backend
            .buffer()
            .content
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.modifier.is_empty())
    );
}

/// From nothing at all to a wall, and what does not fit is counted.
#[test]
fn a_frame_of_any_size_is_drawn() {
    let mut busy = sample(3, 3000);
    busy.flows = (1..=40)
        .map(|port| {
            flow(
                &format!("10.244.1.5:{port}"),
                "10.244.2.2:80",
                "10.244.2.2:80",
                FlowWay::Tunnel,
                port,
            )
        })
        .collect();
    busy.peers = (2..=41).map(|number| peer(number, "tunnel")).collect();
    let board = Board::new(Some(&sample(1, 1000)), &busy, SortKey::Rate);
    let view = View {
        board: &board,
        palette: Palette { on: true },
        keys: "q quit",
        offset: 0,
    };
    let history = with_history();
    let wide = View {
        board: &history,
        ..view
    };
    for (width, height) in [(1, 1), (10, 3), (80, 10), (80, 24), (141, 3), (200, 100)] {
        draw(view, width, height);
        draw(wide, width, height);
    }
    let (lines, _) = draw(view, 80, 24);
    assert!(
        line(&lines, "40 flows by rate (").contains(" more)") && lines[23].starts_with("q quit"),
        "{lines:#?}"
    );
    let printed = View { keys: "", ..view };
    let (whole, _) = draw(printed, 110, printed.height());
    assert!(
        line(&whole, "40 flows").contains("(28 more)")
            && line(&whole, "40 peers").contains("(28 more)"),
        "{whole:#?}"
    );
}

#[test]
fn problems_leave_room_for_peers_and_flows() {
    let with = |problems: usize| {
        let mut board = board();
        board.problems = vec!["a peer that does not answer ".repeat(4); problems];
        let view = View {
            board: &board,
            palette: Palette { on: true },
            keys: "q quit",
            offset: 0,
        };
        draw(view, 80, 24).0
    };
    for problems in 0..=7 {
        let lines = with(problems);
        assert!(
            line(&lines, "10.244.2.0/24").contains("192.168.1.2"),
            "{problems}: {lines:#?}"
        );
        line(&lines, "10.244.1.5:40000");
        assert!(lines[23].starts_with("q quit"), "{problems}: {lines:#?}");
        let shown = lines
            .iter()
            .filter(|line| line.starts_with("│a peer that"))
            .collect::<Vec<_>>();
        assert!(
            shown.len() == problems.min(5) && shown.iter().all(|line| line.ends_with("…│")),
            "{shown:#?}"
        );
    }
    assert!(
        line(&with(1), "PROGRAM        REASON").contains("PKT/S"),
        "reasons have a row beside one problem"
    );
    line(&with(7), " problems (2 more) ");
}

#[test]
fn rows_scroll_to_the_last_and_no_further() {
    let mut busy = sample(3, 3000);
    busy.flows = (1..=40)
        .map(|port| {
            flow(
                &format!("10.244.1.5:{port}"),
                "10.244.2.2:80",
                "10.244.2.2:80",
                FlowWay::Tunnel,
                1,
            )
        })
        .collect();
    let board = Board::new(Some(&sample(1, 1000)), &busy, SortKey::Address);
    let view = View {
        board: &board,
        palette: Palette { on: false },
        keys: "q quit",
        offset: 0,
    };
    let shown = |offset| draw(View { offset, ..view }, 110, 40).0;
    line(&shown(0), " 10.244.1.5:1 ");
    let below = shown(5);
    line(&below, "40 flows by address (6-");
    line(&below, " 10.244.1.5:6 ");
    let last = shown(1_000);
    line(&last, " of 40) ");
    line(&last, " 10.244.1.5:40 ");
}

#[test]
fn a_filter_keeps_the_rows_that_have_its_text() {
    let kept = |text: &str| {
        let mut board = board();
        board.retain(text);
        (board.peers.len(), board.flows.len())
    };
    assert_eq!(
        (kept(""), kept("10.96.0.1"), kept("kernel")),
        ((2, 3), (0, 1), (1, 0))
    );
    assert_eq!(kept("nothing"), (0, 0));
}
