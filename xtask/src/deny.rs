//! `deny`: licences, sources and versions of what the programs are built from, by cargo-deny and
//! `deny.toml`; and known vulnerabilities, where their database can be had.

use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::{
    setup::{Setup, subcommands::DENY},
    workspace::{self, Workspace},
};

/// Runs all checks. That of advisories is not run where their database cannot be fetched.
pub(crate) fn run(setup: &Setup<'_>) -> anyhow::Result<ExitCode> {
    let dir = setup.subcommand(DENY)?;
    let workspace = setup.workspace();
    let cargo = |args: &[&str]| deny(workspace, &dir, args);
    let mut results = vec![workspace::run(
        &mut cargo(&["check", "licenses", "bans", "sources"]),
        "cargo deny",
    )];
    let fetched = cargo(&["fetch", "db"])
        .output()
        .context("cannot run cargo deny")?;
    if fetched.status.success() {
        results.push(workspace::run(
            &mut cargo(&["check", "--disable-fetch", "advisories"]),
            "cargo deny",
        ));
    } else {
        println!(
            "NOT RUN: deny: advisories and yanked versions, because {}",
            reason(&fetched.stderr)
        );
    }
    let clean = results.iter().all(|result| {
        result
            .as_ref()
            .inspect_err(|error| eprintln!("deny: {error:#}"))
            .is_ok()
    });
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn deny(workspace: &Workspace, dir: &std::path::Path, args: &[&str]) -> Command {
    let mut cargo = workspace.cargo_with(dir);
    cargo.arg("deny").args(args);
    cargo
}

/// The last line of an error: the cause.
fn reason(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("the database of advisories cannot be fetched")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_that_says_something() {
        let stderr = b"[ERROR] failed to fetch advisory database\nfatal: Could not resolve host: \
            example.org\n\n";
        assert_eq!(reason(stderr), "fatal: Could not resolve host: example.org");
        assert_eq!(reason(b""), "the database of advisories cannot be fetched");
    }
}
