//! `docs/reference/diagnosis.md`.

use std::{
    env,
    fmt::Write as _,
    fs::File,
    io::{Read as _, Seek as _, Write as _},
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

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| fault | agent | `status` | `check` | `explain` | `cluster status` | /readyz |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for Row { fault, agent, cells } in rows {
        let cells: Vec<String> = cells.0.iter().map(|(_, cell)| cell.to_string()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {fault} | {agent} | {} |", cells.join(" | "));
    }
    text
}

/// Requires that the page has these rows under a heading, or writes them.
pub(super) fn expect(heading: &str, rows: &[Row]) -> Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/diagnosis.md");
    let writes = env::var_os("FLANNEL_WRITE_DOCS").is_some();
    let mut file = File::options().read(true).write(writes).open(&path).with_context(|| path.display().to_string())?;
    // The tests of other backends write at the same time.
    file.lock()?;
    let mut page = String::new();
    file.read_to_string(&mut page)?;
    let line = format!("\n## {heading}\n\n");
    let start = page.find(&line).with_context(|| format!("the page has no heading {heading}"))? + line.len();
    let end = page[start..].find("\n## ").map_or(page.len(), |length| start + length);
    let table = table(rows);
    if writes {
        let changed = format!("{}{table}{}", &page[..start], &page[end..]);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(changed.as_bytes())?;
        return Ok(());
    }
    ensure!(page[start..end] == table, "docs/reference/diagnosis.md is not what was seen with {heading}:\n{table}");
    Ok(())
}
