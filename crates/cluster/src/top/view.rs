//! The frame: nodes, pairs, flows and problems below each other. Pure.

use flannel_top::view::{
    AROUND, LEAST, PRINTED, Palette,
    lines::{PanelLines, divided},
    numbers::{percent, rate},
    panel::{Panel, PanelColumn, WIDE},
    sparkline::sparkline,
};
use ratatui::{
    buffer::Buffer,
    layout::{
        Constraint::{Fill, Length},
        Rect,
    },
    text::{Line, Span},
    widgets::{Paragraph, Widget},
};

use super::{
    board::{ClusterBoard, DocumentState, NodeProblem, NodeRates},
    merge::{ClusterFlow, PairRates},
};

/// The most problems on a screen that does not have room for everything.
const PROBLEMS: u16 = 5;

/// A board, drawn.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// The board.
    pub board: &'a ClusterBoard,
    /// The colours.
    pub palette: Palette,
    /// The keys, in the last line; empty in a frame that is printed.
    pub keys: &'a str,
    /// Rows of nodes, pairs and flows that are above the screen.
    pub offset: usize,
}

impl ClusterView<'_> {
    /// The lines of a frame that shows all nodes, and up to twelve rows in each other panel.
    pub fn height(&self) -> u16 {
        let [nodes, pairs, flows, problems] = self.wanted();
        let printed = |height: u16| height.min(PRINTED + AROUND);
        nodes
            .saturating_add(printed(pairs) + printed(flows) + printed(problems))
            .saturating_add(1 + self.key_lines())
    }

    fn key_lines(&self) -> u16 {
        u16::from(!self.keys.is_empty())
    }

    /// The lines of the panels with all of their rows; no panel of problems without any.
    fn wanted(&self) -> [u16; 4] {
        let board = self.board;
        let lines = |rows: usize| {
            u16::try_from(rows.max(1))
                .unwrap_or(u16::MAX)
                .saturating_add(AROUND)
        };
        let problems = if board.problems.is_empty() {
            0
        } else {
            lines(board.problems.len())
        };
        [
            lines(board.nodes.len()),
            lines(board.pairs.len()),
            lines(board.flows.len()),
            problems,
        ]
    }

    /// The lines of the panels in a frame of this height. Where not everything fits, nodes get a
    /// third of it at most, pairs and problems a fifth. The flows have the rest.
    fn heights(&self, height: u16) -> [u16; 4] {
        let [mut nodes, mut pairs, _, mut problems] = self.wanted();
        if height < self.height() {
            nodes = nodes.min((height / 3).max(LEAST));
            pairs = pairs.min((height / 5).max(LEAST + 1));
            problems = problems.min((height / 5).max(LEAST)).min(PROBLEMS + AROUND);
        } else {
            [pairs, problems] = [pairs, problems].map(|lines| lines.min(PRINTED + AROUND));
        }
        let room = height.saturating_sub(1 + self.key_lines());
        let ([nodes, problems, pairs], flows) =
            divided(room, [nodes, problems, pairs].map(PanelLines::first));
        [nodes, pairs, flows, problems]
    }
}

impl Widget for ClusterView<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (board, palette) = (self.board, self.palette);
        let [nodes, pairs, flows, problems] = self.heights(area.height);
        let mut top = area.y;
        let mut next = |height: u16| {
            let place = Rect {
                y: top,
                height,
                ..area
            }
            .intersection(area);
            top = top.saturating_add(height);
            place
        };
        Paragraph::new(header(board, palette)).render(next(1), buffer);
        for (panel, height) in [
            (self::problems(board, palette), problems),
            (self::nodes(board, palette).below(self.offset), nodes),
            (self::pairs(board, palette).below(self.offset), pairs),
            (self::flows(board).below(self.offset), flows),
        ] {
            let place = next(height);
            if !place.is_empty() {
                panel.fitted(area.width).render(palette, place, buffer);
            }
        }
        if !self.keys.is_empty() {
            Paragraph::new(palette.dim(self.keys)).render(next(1), buffer);
        }
    }
}

fn header(board: &ClusterBoard, palette: Palette) -> Line<'_> {
    let number = |state| board.nodes.iter().filter(|row| row.state == state).count();
    let counted = |number: usize, text: &str| (number > 0).then(|| format!("   {number} {text}"));
    let mut spans = vec![palette.title(format!("{} nodes", board.nodes.len()))];
    spans.push(palette.good(format!("   {} live", number(DocumentState::Live))));
    spans.extend(
        counted(number(DocumentState::NoAnswer), "without an answer").map(|text| palette.bad(text)),
    );
    spans.extend(
        counted(number(DocumentState::Asked), "not answered yet").map(|text| palette.warn(text)),
    );
    spans.extend(counted(number(DocumentState::StockFlannel), "with stock flannel").map(Span::raw));
    let stale =
        |error: &String| palette.bad(format!("   the list of nodes is not up to date: {error}"));
    spans.extend(board.listing_error.as_ref().map(stale));
    Line::from(spans)
}

fn nodes(board: &ClusterBoard, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("NODE", Fill(1)),
        PanelColumn::new("MODE", Length(13)),
        PanelColumn::number("PKT/S", 7),
        PanelColumn::number("B/S", 7),
        PanelColumn::number("FAST", 6),
        PanelColumn::number("DROPS/S", 7),
        PanelColumn::number("PROBLEMS", 8),
        PanelColumn::history(WIDE),
    ];
    let rows = board.nodes.iter().map(|row| node(row, palette)).collect();
    Panel {
        title: "nodes".to_owned(),
        columns,
        rows,
        offset: 0,
    }
}

fn node(row: &NodeRates, palette: Palette) -> Vec<Span<'_>> {
    let mode = match row.state {
        DocumentState::Live => Span::raw(row.mode.as_deref().unwrap_or("-")),
        DocumentState::Asked => palette.warn("asked"),
        DocumentState::NoAnswer => palette.bad("no answer"),
        DocumentState::StockFlannel => Span::raw("stock flannel"),
    };
    let drops = rate(row.drops_per_second);
    let problems = row
        .problems
        .map_or_else(|| "-".to_owned(), |number| number.to_string());
    vec![
        row.node.as_str().into(),
        mode,
        rate(row.packets_per_second).into(),
        rate(row.bytes_per_second).into(),
        percent(row.fast_share).into(),
        if row.drops_per_second.is_some_and(|drops| drops > 0.0) {
            palette.bad(drops)
        } else {
            drops.into()
        },
        if row.problems.is_some_and(|number| number > 0) {
            palette.warn(problems)
        } else {
            problems.into()
        },
        sparkline(
            row.history
                .as_ref()
                .map_or(&[], |history| &history.packets_per_second),
        )
        .into(),
    ]
}

fn pairs(board: &ClusterBoard, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("FROM NODE", Fill(1)),
        PanelColumn::new("TO NODE", Fill(1)),
        PanelColumn::new("PATH", Length(6)),
        PanelColumn::number("FLOWS", 6),
        PanelColumn::number("PKT/S", 7),
    ];
    let rows = board.pairs.iter().map(|row| pair(row, palette)).collect();
    Panel {
        title: "pairs of nodes".to_owned(),
        columns,
        rows,
        offset: 0,
    }
}

fn pair(row: &PairRates, palette: Palette) -> Vec<Span<'_>> {
    let path = row.path.as_deref().unwrap_or("-");
    vec![
        row.node.as_str().into(),
        row.peer.as_str().into(),
        if path == "kernel" {
            palette.warn(path)
        } else {
            path.into()
        },
        row.flows
            .map_or_else(|| "-".to_owned(), |flows| flows.to_string())
            .into(),
        rate(row.packets_per_second).into(),
    ]
}

fn flows(board: &ClusterBoard) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("NODES", Fill(2)),
        PanelColumn::new("PROTO", Length(5)),
        PanelColumn::new("FROM", Fill(3)),
        PanelColumn::new("TO", Fill(3)),
        PanelColumn::new("LEAVES-TO", Fill(3)).extra(),
        PanelColumn::number("PKT/S", 7),
    ];
    let rows = board.flows.iter().map(flow).collect();
    Panel {
        title: "flows".to_owned(),
        columns,
        rows,
        offset: 0,
    }
}

fn flow(row: &ClusterFlow) -> Vec<Span<'_>> {
    let flow = &row.flow;
    vec![
        row.nodes.join(",").into(),
        flow.protocol.as_str().into(),
        flow.source.as_str().into(),
        flow.destination.as_str().into(),
        flow.translated.as_deref().unwrap_or("=").into(),
        rate(flow.packets_per_second).into(),
    ]
}

fn problems(board: &ClusterBoard, palette: Palette) -> Panel<'_> {
    let columns = vec![
        PanelColumn::new("NODE", Fill(1)),
        PanelColumn::new("PROBLEM", Fill(4)),
    ];
    let row = |problem: &NodeProblem| {
        vec![
            problem.node.clone().into(),
            palette.bad(problem.text.clone()),
        ]
    };
    Panel {
        title: "problems".to_owned(),
        columns,
        rows: board.problems.iter().map(row).collect(),
        offset: 0,
    }
}
