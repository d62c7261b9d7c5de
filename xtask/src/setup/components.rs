//! rustfmt and clippy of the user's own toolchain; rustup's minimal profile leaves them out.

use anyhow::{Context as _, bail};

use super::log::run_logged;
use crate::workspace::Workspace;

/// Cargo's verb and the component that brings it.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

/// Adds the components that do not answer.
pub(super) fn ensure(workspace: &Workspace) -> anyhow::Result<()> {
    let missing: Vec<&str> = COMPONENTS
        .iter()
        .filter(|(verb, _)| !answers(workspace, verb))
        .map(|(_, component)| *component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if workspace.find_command("rustup").is_none() {
        bail!(
            "this toolchain has no {}: install them next to cargo",
            missing.join(" and no ")
        );
    }
    println!(
        "set-up: rustup component add {} (what lint calls) ...",
        missing.join(" ")
    );
    run_logged(
        workspace,
        workspace
            .command("rustup")
            .args(["component", "add"])
            .args(&missing),
    )
    .context("cannot add components to the toolchain")
}

fn answers(workspace: &Workspace, verb: &str) -> bool {
    workspace
        .cargo()
        .args([verb, "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}
