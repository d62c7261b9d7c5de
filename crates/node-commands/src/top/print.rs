//! A frame as lines of text, with colours as escape sequences where the frame has them.

use std::{
    env,
    fmt::Write as _,
    io::{self, Write as _},
};

use anyhow::Context as _;
use clap::builder::styling::{AnsiColor, Effects, Style};
use ratatui::{
    buffer::{Buffer, Cell},
    layout::Rect,
    style::{Color, Modifier},
    widgets::Widget,
};

/// Columns where nothing says otherwise, and the fewest.
const COLUMNS: u16 = 110;
const FEWEST: u16 = 80;

/// The frame of this height, as wide as the variable COLUMNS says.
pub fn text(view: impl Widget, height: u16) -> String {
    let columns = env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(COLUMNS)
        .max(FEWEST);
    let area = Rect::new(0, 0, columns, height);
    let mut buffer = Buffer::empty(area);
    view.render(area, &mut buffer);
    buffer
        .content
        .chunks(usize::from(columns))
        .map(|cells| line(cells) + "\n")
        .collect()
}

/// Prints a part of the output at once. Returns false if the reader is gone.
pub fn is_read(text: &str) -> anyhow::Result<bool> {
    match io::stdout()
        .write_all(text.as_bytes())
        .and_then(|()| io::stdout().flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written
            .context("cannot write to standard output")
            .map(|()| true),
    }
}

/// One line, without blanks at its end.
fn line(cells: &[Cell]) -> String {
    let end = cells
        .iter()
        .rposition(|cell| cell.symbol() != " ")
        .map_or(0, |last| last + 1);
    let mut text = String::new();
    for run in cells[..end].chunk_by(|one, other| style(one) == style(other)) {
        let style = style(&run[0]);
        let symbols: String = run.iter().map(Cell::symbol).collect();
        // Writing to a string cannot fail.
        let _ = write!(text, "{style}{symbols}{style:#}");
    }
    text
}

fn style(cell: &Cell) -> Style {
    let color = match cell.fg {
        Color::Green => Some(AnsiColor::Green),
        Color::Yellow => Some(AnsiColor::Yellow),
        Color::Red => Some(AnsiColor::Red),
        Color::Cyan => Some(AnsiColor::Cyan),
        _ => None,
    };
    let effects = if cell.modifier.contains(Modifier::BOLD) {
        Effects::BOLD
    } else {
        Effects::new()
    };
    Style::new()
        .fg_color(color.map(Into::into))
        .effects(effects)
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style as CellStyle;

    use super::*;

    #[test]
    fn a_line_has_colours_in_runs_and_no_blanks_at_its_end() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, "mode fast", CellStyle::new());
        assert_eq!(line(&buffer.content), "mode fast");
        buffer.set_string(5, 0, "fast", CellStyle::new().fg(Color::Green));
        assert_eq!(line(&buffer.content), "mode \u{1b}[32mfast\u{1b}[0m");
    }
}
