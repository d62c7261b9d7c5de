//! The frame: panels below each other, in the order of what an operator asks first. Pure.

pub mod lines;
pub mod numbers;
mod palette;
pub mod panel;
mod panels;
pub mod sparkline;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Block, Paragraph, Widget},
};

pub use self::palette::Palette;
pub use self::panel::{AROUND, LEAST};
use self::{
    lines::{PanelLines, divided},
    panel::{Panel, cut},
};
use super::Board;

/// The lines that flows have while a screen has room for peers: two rows.
const FLOWS: u16 = AROUND + 2;
/// The most problems.
const PROBLEMS: u16 = 5;
/// The most rows of peers, of flows and of reasons in a frame that is printed.
pub const PRINTED: u16 = 12;

/// A board, drawn.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The board.
    pub board: &'a Board,
    /// The colours.
    pub palette: Palette,
    /// The keys, in the last line; empty in a frame that is printed.
    pub keys: &'a str,
    /// Rows of peers and of flows that are above the screen.
    pub offset: usize,
}

impl View<'_> {
    /// The lines of a frame that shows everything, up to twelve rows in each panel.
    pub fn height(&self) -> u16 {
        let [hooks, peers, flows, reasons] = self.wanted().map(|rows| rows.min(PRINTED) + AROUND);
        1 + hooks + peers + flows + reasons + self.problem_lines() + self.key_lines()
    }

    /// The number of rows of each panel.
    fn wanted(&self) -> [u16; 4] {
        let board = self.board;
        let reasons = board.drops.len().max(board.left.len());
        let ends = if board.shows_pods {
            board.pods.len()
        } else {
            board.peers.len()
        };
        [board.hooks.len(), ends, board.flows.len(), reasons]
            .map(|rows| u16::try_from(rows.max(1)).unwrap_or(u16::MAX))
    }

    fn problem_lines(&self) -> u16 {
        let lines = u16::try_from(self.board.problems.len()).unwrap_or(u16::MAX);
        if lines == 0 {
            0
        } else {
            lines.min(PROBLEMS) + 2
        }
    }

    fn key_lines(&self) -> u16 {
        u16::from(!self.keys.is_empty())
    }

    /// The lines of the panels in a frame of this height. Where not everything fits, peers get a
    /// third of it at most. The flows have the rest. Reasons come and go, and move nothing on a
    /// screen: they have a quarter of it, less where peers and flows would have no rows, and no
    /// panel without a row.
    fn heights(&self, height: u16) -> [u16; 4] {
        let [hooks, peers, _, mut reasons] = self.wanted().map(|rows| rows.saturating_add(AROUND));
        let most = if height >= self.height() {
            PRINTED + AROUND
        } else {
            (height / 3).max(LEAST)
        };
        if !self.keys.is_empty() {
            reasons = (height / 4).max(LEAST);
        }
        let room = height.saturating_sub(1 + self.problem_lines() + self.key_lines());
        let reasons = PanelLines {
            wanted: reasons.min(most),
            spared: LEAST + FLOWS,
            least: 0,
        };
        let peers = PanelLines {
            wanted: peers.min(most),
            spared: FLOWS,
            least: LEAST,
        };
        let ([hooks, reasons, peers], flows) =
            divided(room, [PanelLines::first(hooks), reasons, peers]);
        [hooks, peers, flows, reasons]
    }

    fn header(&self, area: Rect, buffer: &mut Buffer) {
        Paragraph::new(panels::header(self.board, self.palette)).render(area, buffer);
    }

    fn problems(&self, area: Rect, buffer: &mut Buffer) {
        let width = usize::from(area.width.saturating_sub(2));
        let problems = &self.board.problems;
        let lines = problems
            .iter()
            .take(usize::from(PROBLEMS))
            .map(|problem| self.palette.bad(cut(problem, width)));
        let title = match problems.len().saturating_sub(usize::from(PROBLEMS)) {
            0 => " problems ".to_owned(),
            more => format!(" problems ({more} more) "),
        };
        let block = Block::bordered().title(self.palette.title(title));
        Paragraph::new(lines.map(Into::into).collect::<Vec<_>>())
            .block(block)
            .render(area, buffer);
    }

    /// Draws a panel at its place on a screen of this width.
    fn panel(&self, panel: Panel<'_>, (area, screen): (Rect, u16), buffer: &mut Buffer) {
        panel.fitted(screen).render(self.palette, area, buffer);
    }
}

impl Widget for View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (board, palette) = (self.board, self.palette);
        let [hooks, peers, flows, reasons] = self.heights(area.height);
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
        self.header(next(1), buffer);
        let problems = next(self.problem_lines());
        if !problems.is_empty() && !board.problems.is_empty() {
            self.problems(problems, buffer);
        }
        self.panel(
            panels::hooks(board, palette),
            (next(hooks), area.width),
            buffer,
        );
        let ends = if board.shows_pods {
            panels::pods(board)
        } else {
            panels::peers(board, palette)
        };
        self.panel(ends.below(self.offset), (next(peers), area.width), buffer);
        self.panel(
            panels::flows(board, palette).below(self.offset),
            (next(flows), area.width),
            buffer,
        );
        let both = next(reasons);
        let half = both.width / 2;
        self.panel(
            panels::drops(board, palette),
            (
                Rect {
                    width: half,
                    ..both
                },
                area.width,
            ),
            buffer,
        );
        let right = Rect {
            x: both.x + half,
            width: both.width - half,
            ..both
        };
        self.panel(panels::left(board), (right, area.width), buffer);
        if !self.keys.is_empty() {
            Paragraph::new(palette.dim(self.keys)).render(next(1), buffer);
        }
    }
}
