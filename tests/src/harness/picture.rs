//! Pictures of commands in docs/images, made from real output in colour.
//!
//! After a change of what a command prints, its test fails until the picture is made again: run it
//! with `FLANNEL_WRITE_DOCS=1`. Numbers, addresses and times may differ; what a test calls the form
//! of the output may not.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use anstyle_svg::{Term, WIN10_CONSOLE};
use anyhow::{Context as _, Result, ensure};

/// Columns of the pictures.
pub const COLUMNS: usize = 110;

/// The picture of this name.
#[derive(Clone, Copy, Debug)]
pub struct Picture(pub &'static str);

impl Picture {
    /// Returns true if pictures are made, not compared.
    pub fn are_written() -> bool {
        env::var_os("FLANNEL_WRITE_DOCS").is_some()
    }

    /// The text of the picture that is kept; empty without one.
    pub fn kept_text(self) -> String {
        fs::read_to_string(self.path())
            .map(|svg| text(&svg))
            .unwrap_or_default()
    }

    /// Compares the picture with output of now, or writes it.
    pub fn keep(self, output: &str, form: impl Fn(&str) -> BTreeSet<String>) -> Result<()> {
        let svg = Term::new()
            .palette(WIN10_CONSOLE)
            .render_svg(&folded(output.trim_end()));
        if Self::are_written() {
            return fs::write(self.path(), svg).context("cannot write the picture");
        }
        let Self(name) = self;
        let kept =
            fs::read_to_string(self.path()).with_context(|| format!("no picture of {name}"))?;
        ensure!(
            svg.contains("fg-green"),
            "the output of {name} has no colours"
        );
        let (is, was) = (form(&text(&svg)), form(&text(&kept)));
        ensure!(
            !is.is_empty() && is == was,
            "docs/images/{name}.svg is not what FLANNEL_WRITE_DOCS=1 makes of it: {is:?}, {was:?}"
        );
        Ok(())
    }

    fn path(self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../docs/images")
            .join(format!("{}.svg", self.0))
    }
}

/// The output as a terminal of [`COLUMNS`] columns shows it. Colours take no room.
fn folded(output: &str) -> String {
    let (mut folded, mut column, mut is_escape) = (String::new(), 0, false);
    for letter in output.chars() {
        is_escape |= letter == '\u{1b}';
        if letter == '\n' {
            column = 0;
        } else if !is_escape {
            if column == COLUMNS {
                folded.push('\n');
                column = 0;
            }
            column += 1;
        }
        is_escape &= letter != 'm';
        folded.push(letter);
    }
    folded
}

/// The lines of a picture, without markup.
fn text(svg: &str) -> String {
    let lines = svg
        .lines()
        .filter(|line| line.trim_start().starts_with("<tspan x="));
    let plain = |line: &str| {
        let parts = line
            .split('<')
            .map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts
            .collect::<String>()
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    };
    lines.map(|line| plain(line.trim_start()) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_text_of_its_output() {
        let output =
            "\u{1b}[36mready      \u{1b}[0m\u{1b}[32myes\u{1b}[0m\nSUBNET  WAY\n10.1.0.0/24  a <b>";
        assert_eq!(
            text(&Term::new().render_svg(output)),
            "ready      yes\nSUBNET  WAY\n10.1.0.0/24  a <b>\n"
        );
    }

    #[test]
    fn long_lines_are_folded_and_colours_take_no_room() {
        let wide = format!("\u{1b}[32m{}\u{1b}[0mb\nc", "a".repeat(COLUMNS));
        assert_eq!(
            folded(&wide),
            format!("\u{1b}[32m{}\u{1b}[0m\nb\nc", "a".repeat(COLUMNS))
        );
    }
}
