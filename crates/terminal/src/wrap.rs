//! Lines as wide as the terminal: a longer one goes on in the column of its last cell.

use std::borrow::Cow;

use terminal_size::{Width, terminal_size_of};
use textwrap::{Options, WordSeparator, WordSplitter};

use crate::color::width;

/// A cell that has less room stays on one line: columns of some characters cannot be read.
const LEAST: usize = 24;

/// Wraps the lines of a text that standard output has no room for. Files and pipes take them whole.
pub fn to_terminal(text: String) -> String {
    match columns() {
        Some(columns) => to_width(&text, columns),
        None => text,
    }
}

/// The columns of the terminal at standard output; `None` for a file or a pipe.
pub fn columns() -> Option<usize> {
    terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| columns.into())
}

/// Wraps the lines that are wider.
fn to_width(text: &str, columns: usize) -> String {
    text.split_inclusive('\n')
        .map(|line| wrapped(line, columns))
        .collect()
}

fn wrapped(line: &str, columns: usize) -> Cow<'_, str> {
    let start = last_cell(line);
    let (before, cell) = line.split_at(start);
    let indent = width(before);
    if width(line.trim_end()) <= columns || indent + LEAST > columns {
        return Cow::Borrowed(line);
    }
    // Names, addresses and paths are not cut.
    let options = Options::new(columns - indent).word_splitter(WordSplitter::NoHyphenation);
    let options = options
        .word_separator(WordSeparator::AsciiSpace)
        .break_words(false);
    let parts = textwrap::wrap(cell.trim_end_matches('\n'), options);
    let end = if line.ends_with('\n') { "\n" } else { "" };
    Cow::Owned(format!(
        "{before}{}{end}",
        parts.join(&format!("\n{}", " ".repeat(indent)))
    ))
}

/// The begin of the last cell of a line: after its last two blanks.
fn last_cell(line: &str) -> usize {
    line.trim_end().rfind("  ").map_or(0, |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cell_goes_on_in_its_column() {
        let line = "  1. ok    device        the device makes room for headers of the tunnel\n";
        let expected = [
            "  1. ok    device        the device makes room for\n",
            "                         headers of the tunnel\n",
        ];
        assert_eq!(to_width(line, 50), expected.concat());
        assert_eq!(to_width(line, 200), line);
    }

    #[test]
    fn long_words_and_narrow_columns_are_not_cut() {
        let line = "problems   /var/lib/flannel/a/path/of/more/than/one/line is in use\n";
        assert!(to_width(line, 40).contains("/var/lib/flannel/a/path/of/more/than/one/line\n"));
        let row = "n1    yes    fast    0.1.0    a cell near the edge\n";
        assert_eq!(to_width(row, 45), row);
    }

    #[test]
    fn colours_take_no_room() {
        let line = "\u{1b}[1m\u{1b}[31mone two three four five six seven eight\u{1b}[0m\n";
        let lines: Vec<usize> = to_width(line, 30).lines().map(width).collect();
        assert_eq!(lines, [27, 11]);
    }
}
