//! The chatter of set-up goes to a file; an error shows its end and names it.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::workspace::Workspace;

/// Lines of the log that an error message repeats.
const TAIL_LINES: usize = 12;

/// Runs a command with its output appended to `target/xtask/setup.log`.
///
/// # Errors
/// It could not be started or failed; the message has the end of the log and where the rest is.
pub(super) fn run_logged(workspace: &Workspace, command: &mut Command) -> anyhow::Result<()> {
    let path = workspace.logs()?.join("setup.log");
    let log = open(&path)?;
    command.stdout(log.try_clone().context("cannot share the log")?).stderr(log);
    let shown = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); the end of {}:\n{}", path.display(), tail(&path));
    }
    Ok(())
}

fn open(path: &PathBuf) -> anyhow::Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// The command as one would type it; `Command`'s own form includes the environment.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
