//! Checks by promtool, Prometheus' own checker.

use std::{
    io::{ErrorKind, Write as _},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::not_run;

/// Runs it, if it is there; it must be content.
pub(crate) fn promtool(what: &str, args: &[&str], input: &str) -> Result<()> {
    let spawned = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            not_run(
                what,
                "no promtool (package prometheus; `cargo xtask setup` unpacks it)",
            );
            return Ok(());
        }
        other => other?,
    };
    child
        .stdin
        .take()
        .context("no input")?
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    ensure!(
        output.status.success(),
        "{what}: promtool {args:?}:\n{said}"
    );
    Ok(())
}
