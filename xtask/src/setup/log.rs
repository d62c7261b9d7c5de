//! The chatter of set-up goes to a file; an error shows its end and names it.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::workspace::Workspace;

/// Lines of the log that an error message repeats.
const TAIL_LINES: usize = 12;

/// The log of set-up: `target/xtask/setup.log`.
pub(super) fn path(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    Ok(workspace.logs()?.join("setup.log"))
}

/// Runs a command with its output appended to the log.
///
/// # Errors
/// It could not be started or failed; the message has the end of the log and where the rest is.
pub(super) fn run_logged(workspace: &Workspace, command: &mut Command) -> anyhow::Result<()> {
    let path = path(workspace)?;
    let log = open(&path)?;
    command
        .stdout(log.try_clone().context("cannot share the log")?)
        .stderr(log);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    require_success(command, status, &path)
}

/// Runs a command as [`run_logged`] does, and passes each line of its standard error to `observe`
/// as it comes.
pub(super) fn run_observed(
    workspace: &Workspace,
    command: &mut Command,
    mut observe: impl FnMut(&str),
) -> anyhow::Result<()> {
    let path = path(workspace)?;
    let mut log = open(&path)?;
    command
        .stdout(log.try_clone().context("cannot share the log")?)
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let messages = child.stderr.take().context("standard error is a pipe")?;
    for line in BufReader::new(messages).split(b'\n') {
        let line =
            line.with_context(|| format!("cannot read the messages of `{}`", shown(command)))?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}").with_context(|| format!("cannot write {}", path.display()))?;
        observe(&line);
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{}`", shown(command)))?;
    require_success(command, status, &path)
}

fn require_success(command: &Command, status: ExitStatus, log: &Path) -> anyhow::Result<()> {
    ensure!(
        status.success(),
        "`{}` failed ({status}); the end of {}:\n{}",
        shown(command),
        log.display(),
        tail(log)
    );
    Ok(())
}

fn open(path: &PathBuf) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// The command as one would type it; `Command`'s own form includes the environment.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn tail(path: &Path) -> String {
    let text = fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
