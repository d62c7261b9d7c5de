//! A table with a title, on a screen of any width.

use std::net::IpAddr;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, Row, Table, Widget as _},
};

use super::{Palette, sparkline};

/// Lines of borders and header around the rows of a panel.
pub const AROUND: u16 = 3;
/// The fewest lines of a panel: one row.
pub const LEAST: u16 = AROUND + 1;
/// A screen of fewer columns is narrow: some tables leave columns out.
pub const WIDE: u16 = 100;
/// The fewest and the most columns of a history.
const HISTORY: [u16; 2] = [20, 60];
/// Blanks between two columns.
const SPACING: u16 = 2;
/// The mark of a text that is cut.
const CUT: &str = "\u{2026}";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct PanelColumn {
    /// Its heading.
    pub name: &'static str,
    /// Its width.
    pub width: Constraint,
    /// The content of its cells.
    pub kind: CellKind,
    /// A screen of fewer columns does without it.
    pub least_screen: u16,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// A text, at the left.
    Text,
    /// A number, at the right.
    Number,
    /// A [`sparkline`], as wide as the screen allows.
    History,
}

impl PanelColumn {
    /// A column of texts.
    pub const fn new(name: &'static str, width: Constraint) -> Self {
        Self {
            name,
            width,
            kind: CellKind::Text,
            least_screen: 0,
        }
    }

    /// A column of numbers, at its right.
    pub const fn number(name: &'static str, width: u16) -> Self {
        Self {
            kind: CellKind::Number,
            ..Self::new(name, Constraint::Length(width))
        }
    }

    /// The rates of ten minutes, on screens of at least this width.
    pub const fn history(least_screen: u16) -> Self {
        Self {
            kind: CellKind::History,
            least_screen,
            ..Self::new("10 MIN", Constraint::Length(HISTORY[0]))
        }
    }

    /// The same column, on wide screens only.
    #[must_use]
    pub const fn extra(self) -> Self {
        Self {
            least_screen: WIDE,
            ..self
        }
    }

    /// The column on a screen of this width, which has room for it.
    fn on_screen(self, width: u16) -> Self {
        let [least, most] = HISTORY;
        match self.kind {
            CellKind::History => {
                let columns = (width - self.least_screen).saturating_add(least).min(most);
                Self {
                    width: Constraint::Length(columns),
                    ..self
                }
            }
            CellKind::Text | CellKind::Number => self,
        }
    }

    /// The line of a cell of this width.
    fn line(&self, cell: &Span<'_>, width: u16) -> Line<'static> {
        let width = usize::from(width);
        let line = |text| Line::from(Span::styled(text, cell.style));
        match self.kind {
            CellKind::Text => line(cut(&cell.content, width)),
            CellKind::Number => line(cut(&cell.content, width)).right_aligned(),
            CellKind::History => line(sparkline::squeezed(&cell.content, width)),
        }
    }
}

/// A table with a title, and as many rows as there are.
pub struct Panel<'a> {
    /// The title.
    pub title: String,
    /// The columns.
    pub columns: Vec<PanelColumn>,
    /// The cells, row by row.
    pub rows: Vec<Vec<Span<'a>>>,
    /// Rows that are above the screen.
    pub offset: usize,
}

impl Panel<'_> {
    /// The panel on a screen of this width.
    #[must_use]
    pub fn fitted(mut self, width: u16) -> Self {
        let columns = self.columns.clone();
        let is_kept = |index: usize| {
            columns
                .get(index)
                .is_some_and(|column| width >= column.least_screen)
        };
        let kept = |row: Vec<_>| {
            let cells = row
                .into_iter()
                .enumerate()
                .filter(|(index, _)| is_kept(*index));
            cells.map(|(_, cell)| cell).collect()
        };
        self.rows = self.rows.into_iter().map(kept).collect();
        self.columns.retain(|column| width >= column.least_screen);
        self.columns
            .iter_mut()
            .for_each(|column| *column = column.on_screen(width));
        self
    }

    /// The panel without its first `offset` rows; drawing limits the offset so that the panel is
    /// full.
    #[must_use]
    pub fn below(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Draws it.
    pub fn render(self, palette: Palette, area: Rect, buffer: &mut Buffer) {
        let room = usize::from(area.height.saturating_sub(AROUND));
        let hidden = self.rows.len().saturating_sub(room);
        let offset = self.offset.min(hidden);
        let more = match hidden {
            0 => String::new(),
            hidden if offset == 0 => format!("({hidden} more) "),
            _ => format!("({}-{} of {}) ", offset + 1, offset + room, self.rows.len()),
        };
        let title = palette.title(format!(" {} {more}", self.title));
        let block = Block::bordered().border_style(palette.frame()).title(title);
        let constraints: Vec<_> = self.columns.iter().map(|column| column.width).collect();
        let inside = block.inner(area);
        let widths: Vec<u16> = Layout::horizontal(&constraints)
            .spacing(SPACING)
            .split(inside)
            .iter()
            .map(|part| part.width)
            .collect();
        let places = || self.columns.iter().zip(&widths);
        let head = places().map(|(column, width)| column.line(&palette.dim(column.name), *width));
        let head = Row::new(head.collect::<Vec<_>>());
        let cells = |row: &Vec<Span<'_>>| -> Vec<Line<'static>> {
            row.iter()
                .zip(places())
                .map(|(cell, (column, width))| column.line(cell, *width))
                .collect()
        };
        let rows: Vec<Row<'_>> = self
            .rows
            .iter()
            .skip(offset)
            .take(room)
            .map(|row| Row::new(cells(row)))
            .collect();
        let widths = widths.iter().map(|width| Constraint::Length(*width));
        Table::new(rows, widths)
            .header(head)
            .column_spacing(SPACING)
            .block(block)
            .render(area, buffer);
    }
}

/// A text of at most this width, with a mark where it was cut: a sentence at its end, a host name
/// in front of its domain, and names and addresses in the middle, because they differ at their
/// ends.
pub fn cut(text: &str, width: usize) -> String {
    // Names, numbers and addresses are ASCII; bars are one column for each character.
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    if text.contains(' ') {
        return parts(text, room, 0);
    }
    let is_address = text.contains(':') || text.parse::<IpAddr>().is_ok();
    let name = text
        .split('.')
        .next()
        .filter(|_| !is_address)
        .unwrap_or(text);
    if name.len() <= room && name.len() < text.len() {
        parts(name, room, 0)
    } else {
        parts(name, room - room / 2, room / 2)
    }
}

/// The first and the last characters of a text, with the mark between them.
fn parts(text: &str, first: usize, last: usize) -> String {
    let behind = text.chars().count().saturating_sub(last);
    text.chars()
        .take(first)
        .chain(CUT.chars())
        .chain(text.chars().skip(behind))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_has_a_mark() {
        let shown = |width| cut("a long problem", width);
        assert_eq!(
            (&*shown(14), &*shown(13)),
            ("a long problem", "a long probl\u{2026}")
        );
        assert_eq!((&*shown(1), &*shown(0)), ("\u{2026}", ""));
    }

    #[test]
    fn names_and_addresses_stay_distinct_when_they_are_cut() {
        for (text, width, shown) in [
            (
                "ip-10-0-12-34.eu-west-1.compute.internal",
                15,
                "ip-10-0-12-34\u{2026}",
            ),
            (
                "gke-main-default-pool-1a2b3c4d-x7k2",
                15,
                "gke-mai\u{2026}4d-x7k2",
            ),
            (
                "node-with-a-long-name-40.example.com",
                15,
                "node-wi\u{2026}name-40",
            ),
            (
                "[fd00:10:244:10::abcd:1234]:60009",
                24,
                "[fd00:10:244\u{2026}1234]:60009",
            ),
            ("10.244.101.2", 11, "10.24\u{2026}101.2"),
        ] {
            assert_eq!(cut(text, width), shown);
            assert_eq!(
                shown.chars().count().max(width - 1),
                shown.chars().count(),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_narrow_screen_leaves_extra_columns_out() {
        let panel = || Panel {
            title: "t".to_owned(),
            columns: vec![
                PanelColumn::new("A", Constraint::Fill(1)),
                PanelColumn::number("B", 4).extra(),
                PanelColumn::number("C", 4),
            ],
            rows: vec![vec![Span::raw("a"), Span::raw("b"), Span::raw("c")]],
            offset: 0,
        };
        let names = |width| {
            panel()
                .fitted(width)
                .columns
                .iter()
                .map(|column| column.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (names(WIDE), names(80)),
            (vec!["A", "B", "C"], vec!["A", "C"])
        );
        let cells: Vec<_> = panel().fitted(80).rows[0]
            .iter()
            .map(|cell| cell.content.clone())
            .collect();
        assert_eq!(cells, ["a", "c"]);
    }
}
