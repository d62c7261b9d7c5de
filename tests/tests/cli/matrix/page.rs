//! `docs/reference/diagnosis.md`.

use std::{
    env, fmt,
    fs::{self, File},
    io::{Read as _, Seek as _, Write as _},
    ops::Range,
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};

use super::cells::Cells;

/// A fault, and the answers.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) fault: &'static str,
    /// The state of the sending node's agent.
    pub(super) agent: &'static str,
    pub(super) cells: Cells,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<String> = self
            .cells
            .0
            .iter()
            .map(|(_, cell)| cell.to_string())
            .collect();
        write!(
            f,
            "| {} | {} | {} |",
            self.fault,
            self.agent,
            cells.join(" | ")
        )
    }
}

const HEAD: &str = "| fault | agent | `status` | `check` | `explain` | `cluster status` | /readyz \
    |\n\
    |---|---|---|---|---|---|---|\n";

fn writes() -> bool {
    env::var_os("FLANNEL_WRITE_DOCS").is_some()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/diagnosis.md")
}

/// The part of the page under a heading, by its place.
fn section(page: &str, heading: &str) -> Result<Range<usize>> {
    let line = format!("\n## {heading}\n\n");
    let start = page
        .find(&line)
        .with_context(|| format!("the page has no heading {heading}"))?
        + line.len();
    Ok(start
        ..page[start..]
            .find("\n## ")
            .map_or(page.len(), |length| start + length))
}

/// The rows of the page under a heading; empty while the page is written.
pub(super) fn known(heading: &str) -> Result<Vec<String>> {
    let page = fs::read_to_string(path())?;
    let rows = page[section(&page, heading)?]
        .lines()
        .skip(HEAD.lines().count());
    Ok(if writes() {
        Vec::new()
    } else {
        rows.map(str::to_owned).collect()
    })
}

/// Requires that the page has these rows under a heading, or writes them.
pub(super) fn expect(heading: &str, rows: &[Row]) -> Result<()> {
    let (path, writes) = (path(), writes());
    let mut file = File::options()
        .read(true)
        .write(writes)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    // The tests of other backends write at the same time.
    file.lock()?;
    let mut page = String::new();
    file.read_to_string(&mut page)?;
    let section = section(&page, heading)?;
    let lines: Vec<String> = rows.iter().map(|row| format!("{row}\n")).collect();
    let table = format!("{HEAD}{}", lines.concat());
    if writes {
        let changed = format!("{}{table}{}", &page[..section.start], &page[section.end..]);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(changed.as_bytes())?;
        return Ok(());
    }
    ensure!(
        page[section] == table,
        "docs/reference/diagnosis.md is not what was seen with {heading}:\n{table}"
    );
    Ok(())
}
