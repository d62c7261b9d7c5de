//! The content of each panel.

use flannel_common::program::Program;
use ratatui::{
    layout::Constraint::{self, Fill, Length},
    text::{Line, Span},
    widgets::{Cell, Row},
};

use super::{
    Palette, Panel,
    numbers::{bar, percent, rate, total},
};
use crate::top::{
    Board,
    board::{FlowRate, HookRate, PeerRate, ReasonRate},
};

/// From this share on, the fast path carries what it can: one packet of each flow in two seconds
/// takes the kernel's.
const MOST: f64 = 0.9;

pub(super) fn header(board: &Board, palette: Palette) -> Line<'_> {
    let age = board.heartbeat_age.map_or_else(|| "never".to_owned(), |age| format!("{age:.1} s ago"));
    let heartbeat = if board.is_current {
        palette.good(format!("heartbeat {age}"))
    } else {
        palette.bad(format!("heartbeat {age}: every packet takes the kernel's path"))
    };
    let agent = if board.agent.is_empty() { String::new() } else { format!("   {}", board.agent) };
    Line::from(vec![palette.title(format!("mode {}", board.mode)), Span::raw("   "), heartbeat, Span::raw(agent)])
}

/// A cell with a number, at the right of its column.
fn number<'a>(text: String) -> Cell<'a> {
    Line::raw(text).right_aligned().into()
}

/// The heads of columns; those of numbers are at the right, as the numbers are.
fn head<'a>(palette: Palette, names: &[&'a str], numbers: &[&str]) -> Row<'a> {
    let cell = |name: &&'a str| -> Cell<'a> {
        let line = Line::from(palette.dim(*name));
        if numbers.contains(name) { line.right_aligned().into() } else { line.into() }
    };
    Row::new(names.iter().map(cell).collect::<Vec<_>>())
}

pub(super) fn hooks(board: &Board, palette: Palette) -> Panel<'_> {
    let head = head(palette, &["PACKETS", "PROGRAM", "PKT/S", "B/S", "FAST PATH"], &["PKT/S", "B/S"]);
    let widths = vec![Length(18), Length(13), Length(8), Length(8), Fill(1)];
    let rows = board.hooks.iter().map(|row| hook(row, palette)).collect();
    Panel { title: "fast path".to_owned(), head, widths, rows }
}

fn hook<'a>(row: &HookRate, palette: Palette) -> Row<'a> {
    let share = format!("{} {}", bar(row.taken), percent(row.taken));
    let share = if row.taken.is_some_and(|share| share >= MOST) { palette.good(share) } else { palette.warn(share) };
    let name = match row.program {
        Program::ToTunnel => "into the tunnel",
        Program::FromUnderlay => "from other nodes",
        _ => "from pods",
    };
    Row::new([
        Cell::from(name),
        row.program.name().into(),
        number(rate(row.packets)),
        number(rate(row.bytes)),
        Line::from(share).into(),
    ])
}

pub(super) fn peers(board: &Board, palette: Palette) -> Panel<'_> {
    let names = ["SUBNET", "NODE", "PATH", "FLOWS", "TO PKT/S", "FROM PKT/S", "REPLAYED"];
    let head = head(palette, &names, &names[3..]);
    let widths = vec![Fill(2), Fill(2), Length(6), Length(6), Length(8), Length(10), Length(9)];
    let rows = board.peers.iter().map(|row| peer(row, palette)).collect();
    Panel { title: format!("{} by {}", counted(board.peers.len(), "peer"), board.sort.name()), head, widths, rows }
}

fn peer<'a>(row: &PeerRate, palette: Palette) -> Row<'a> {
    let way = if row.peer.way == "kernel" { palette.warn(row.peer.way) } else { palette.good(row.peer.way) };
    Row::new([
        Cell::from(row.peer.subnet.to_string()),
        row.peer.vtep.to_string().into(),
        Line::from(way).into(),
        number(row.flows.to_string()),
        number(rate(row.to)),
        number(rate(row.from)),
        number(total(row.total)),
    ])
}

pub(super) fn flows(board: &Board, palette: Palette) -> Panel<'_> {
    let names = ["PROTO", "FROM", "TO", "LEAVES-TO", "WAY", "PKT/S", "REPLAYED", "STATE"];
    let head = head(palette, &names, &["PKT/S", "REPLAYED"]);
    let widths = vec![Length(5), Fill(3), Fill(3), Fill(3), Length(6), Length(6), Length(8), Fill(2)];
    let rows = board.flows.iter().map(|row| flow(row, palette)).collect();
    Panel { title: format!("{} by {}", counted(board.flows.len(), "flow"), board.sort.name()), head, widths, rows }
}

fn flow<'a>(row: &FlowRate, palette: Palette) -> Row<'a> {
    let state = if row.state == "usable" { palette.good(row.state) } else { palette.warn(row.state) };
    Row::new([
        Cell::from(row.protocol),
        row.source.to_string().into(),
        row.destination.to_string().into(),
        row.translated.map_or_else(|| "=".to_owned(), |end| end.to_string()).into(),
        row.way.into(),
        number(rate(row.packets)),
        number(total(row.total)),
        Line::from(state).into(),
    ])
}

pub(super) fn drops(board: &Board, palette: Palette) -> Panel<'_> {
    let paint = |row: &ReasonRate| {
        if row.packets.is_some_and(|rate| rate > 0.0) {
            palette.bad(row.reason.name())
        } else {
            Span::raw(row.reason.name())
        }
    };
    reasons("dropped", &board.drops, palette, paint)
}

pub(super) fn left(board: &Board, palette: Palette) -> Panel<'_> {
    reasons("left to the kernel", &board.left, palette, |row| Span::raw(row.reason.name()))
}

fn reasons<'a>(
    title: &str,
    rows: &'a [ReasonRate],
    palette: Palette,
    paint: impl Fn(&ReasonRate) -> Span<'a>,
) -> Panel<'a> {
    let names = ["PROGRAM", "REASON", "PKT/S", "TOTAL"];
    let row = |row: &'a ReasonRate| {
        let cells = [
            Cell::from(row.program.name()),
            Line::from(paint(row)).into(),
            number(rate(row.packets)),
            number(total(row.total)),
        ];
        Row::new(cells)
    };
    let widths: Vec<Constraint> = vec![Length(13), Fill(1), Length(6), Length(7)];
    Panel {
        title: title.to_owned(),
        head: head(palette, &names, &names[2..]),
        widths,
        rows: rows.iter().map(row).collect(),
    }
}

fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
