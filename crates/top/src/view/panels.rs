//! The content of each panel.

use flannel_common::abi::program::Program;
use flannel_flows::history::{RateHistory, TrafficHistory};
use ratatui::{
    layout::Constraint::{Fill, Length},
    text::{Line, Span},
};

use super::{
    Palette,
    numbers::{bar, percent, rate, total},
    panel::{Panel, PanelColumn, WIDE},
    sparkline::sparkline,
};
use crate::{
    Board,
    board::{FlowRate, HookRate, PeerRate, PodRate, ReasonRate},
};

/// From this share on, the fast path carries what it can: one packet of each flow in two seconds
/// takes the kernel's.
const MOST: f64 = 0.9;
/// The narrowest screen with histories of peers.
const HISTORY: u16 = 140;

pub(super) fn header(board: &Board, palette: Palette) -> Line<'_> {
    let age = board
        .heartbeat_age
        .map_or_else(|| "never".to_owned(), |age| format!("{age:.1} s ago"));
    let heartbeat = if board.is_current {
        palette.good(format!("heartbeat {age}"))
    } else {
        palette.bad(format!(
            "heartbeat {age}: every packet takes the kernel's path"
        ))
    };
    let agent = if board.agent.is_empty() {
        String::new()
    } else {
        format!("   {}", board.agent)
    };
    Line::from(vec![
        palette.title(format!("mode {}", board.mode)),
        Span::raw("   "),
        heartbeat,
        Span::raw(agent),
    ])
}

pub(super) fn hooks(board: &Board, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("PACKETS", Length(18)),
        PanelColumn::new("PROGRAM", Length(13)),
        PanelColumn::number("PKT/S", 8),
        PanelColumn::number("B/S", 8),
        PanelColumn::new("FAST PATH", Fill(1)),
    ];
    let rows = board.hooks.iter().map(|row| hook(row, palette)).collect();
    Panel {
        title: "fast path".to_owned(),
        columns,
        rows,
        offset: 0,
    }
}

fn hook<'a>(row: &HookRate, palette: Palette) -> Vec<Span<'a>> {
    let share = format!("{} {}", bar(row.taken), percent(row.taken));
    let share = if row.taken.is_some_and(|share| share >= MOST) {
        palette.good(share)
    } else {
        palette.warn(share)
    };
    let name = match row.program {
        Program::ToTunnel => "into the tunnel",
        Program::FromUnderlay => "from other nodes",
        _ => "from pods",
    };
    vec![
        name.into(),
        row.program.name().into(),
        rate(row.packets).into(),
        rate(row.bytes).into(),
        share,
    ]
}

pub(super) fn peers(board: &Board, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("SUBNET", Fill(2)),
        PanelColumn::new("NODE", Fill(2)),
        PanelColumn::new("PATH", Length(6)),
        PanelColumn::number("FLOWS", 6),
        PanelColumn::number("TO PKT/S", 8),
        PanelColumn::number("FROM PKT/S", 10),
        PanelColumn::number("TO BIT/S", 8).extra(),
        PanelColumn::number("FROM BIT/S", 10).extra(),
        PanelColumn::history(HISTORY),
    ];
    let history = |row: &PeerRate| {
        history(board, |history| {
            history.peers.get(&row.peer.subnet.to_string())
        })
    };
    let rows = board
        .peers
        .iter()
        .map(|row| [peer(row, palette), vec![history(row)]].concat())
        .collect();
    Panel {
        title: format!(
            "{} by {}",
            counted(board.peers.len(), "peer"),
            board.sort.name()
        ),
        columns,
        rows,
        offset: 0,
    }
}

/// The line of one series, if the agent has it.
fn history<'a>(
    board: &Board,
    series: impl Fn(&TrafficHistory) -> Option<&RateHistory>,
) -> Span<'a> {
    let values = board
        .history
        .as_ref()
        .and_then(series)
        .map_or(&[][..], |history| &history.packets_per_second);
    sparkline(values).into()
}

fn peer<'a>(row: &PeerRate, palette: Palette) -> Vec<Span<'a>> {
    let way = if row.peer.way == "kernel" {
        palette.warn(row.peer.way)
    } else {
        palette.good(row.peer.way)
    };
    vec![
        row.peer.subnet.to_string().into(),
        row.peer.vtep.to_string().into(),
        way,
        row.flows.to_string().into(),
        rate(row.to.packets).into(),
        rate(row.from.packets).into(),
        rate(row.to.bits).into(),
        rate(row.from.bits).into(),
    ]
}

pub(super) fn pods(board: &Board) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("POD'S VETH", Fill(1)),
        PanelColumn::number("TO PKT/S", 8),
        PanelColumn::number("FROM PKT/S", 10),
        PanelColumn::number("TO BIT/S", 8),
        PanelColumn::number("FROM BIT/S", 10),
        PanelColumn::history(WIDE),
    ];
    let row = |row: &PodRate| -> Vec<Span<'_>> {
        let rates = [row.to.packets, row.from.packets, row.to.bits, row.from.bits];
        let cells = std::iter::once(row.pod.veth.clone())
            .chain(rates.map(rate))
            .map(Span::from);
        cells
            .chain([history(board, |history| history.pods.get(&row.pod.veth))])
            .collect()
    };
    Panel {
        title: format!(
            "{} by {}",
            counted(board.pods.len(), "pod"),
            board.sort.name()
        ),
        columns,
        rows: board.pods.iter().map(row).collect(),
        offset: 0,
    }
}

pub(super) fn flows(board: &Board, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("PROTO", Length(5)),
        PanelColumn::new("FROM", Fill(3)),
        PanelColumn::new("TO", Fill(3)),
        PanelColumn::new("LEAVES-TO", Fill(3)).extra(),
        PanelColumn::new("WAY", Length(6)),
        PanelColumn::number("PKT/S", 6),
        PanelColumn::number("BIT/S", 6).extra(),
        PanelColumn::new("STATE", Fill(2)),
    ];
    let rows = board.flows.iter().map(|row| flow(row, palette)).collect();
    Panel {
        title: format!(
            "{} by {}",
            counted(board.flows.len(), "flow"),
            board.sort.name()
        ),
        columns,
        rows,
        offset: 0,
    }
}

fn flow<'a>(row: &FlowRate, palette: Palette) -> Vec<Span<'a>> {
    let state = if row.state == "usable" {
        palette.good(row.state)
    } else {
        palette.warn(row.state)
    };
    vec![
        row.protocol.into(),
        row.source.to_string().into(),
        row.destination.to_string().into(),
        row.translated
            .map_or_else(|| "=".to_owned(), |end| end.to_string())
            .into(),
        row.way.name().into(),
        rate(row.packets).into(),
        rate(row.bits).into(),
        state,
    ]
}

pub(super) fn drops(board: &Board, palette: Palette) -> Panel<'_> {
    let paint = |row: &ReasonRate| {
        if row.packets.is_some_and(|rate| rate > 0.0) {
            palette.bad(row.reason.name())
        } else {
            Span::raw(row.reason.name())
        }
    };
    reasons("dropped", &board.drops, paint)
}

pub(super) fn left(board: &Board) -> Panel<'_> {
    reasons("left to the kernel", &board.left, |row| {
        Span::raw(row.reason.name())
    })
}

fn reasons<'a>(
    title: &str,
    rows: &'a [ReasonRate],
    paint: impl Fn(&ReasonRate) -> Span<'a>,
) -> Panel<'a> {
    let row = |row: &'a ReasonRate| {
        vec![
            row.program.name().into(),
            paint(row),
            rate(row.packets).into(),
            total(row.total).into(),
        ]
    };
    // The reasons of half a screen: a screen of 80 columns has no room for the totals.
    let columns = vec![
        PanelColumn::new("PROGRAM", Length(13)),
        PanelColumn::new("REASON", Fill(1)),
        PanelColumn::number("PKT/S", 6),
        PanelColumn::number("TOTAL", 7).extra(),
    ];
    Panel {
        title: title.to_owned(),
        columns,
        rows: rows.iter().map(row).collect(),
        offset: 0,
    }
}

fn counted(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}
