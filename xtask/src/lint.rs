//! `lint`: every check, also when one before it failed, and a summary.

use std::process::{Command, ExitCode};

use crate::{
    build::BPF_TARGET,
    setup::{Needs, Setup, toolchain::Toolchain},
    workspace::{self, Workspace},
};

/// A named command whose failure is a finding.
struct Check {
    name: &'static str,
    command: Command,
}

impl Check {
    fn new(name: &'static str, mut command: Command, args: &[&str]) -> Self {
        command.args(args);
        Self { name, command }
    }
}

/// Runs all checks, without the BPF crate's when `no_bpf` is set.
pub(crate) fn run(setup: &Setup<'_>, no_bpf: bool) -> anyhow::Result<ExitCode> {
    setup.machine(Needs::COMPILE)?;
    setup.lint_components()?;
    let mut checks = host_checks(setup.workspace());
    if !no_bpf {
        checks.extend(bpf_checks(setup.workspace(), &setup.bpf()?));
    }
    let mut results = Vec::new();
    for mut check in checks {
        println!("lint: {}", check.name);
        results.push((check.name, workspace::run(&mut check.command, check.name)));
    }
    println!();
    for (name, result) in &results {
        println!("lint: {name}: {}", if result.is_ok() { "ok" } else { "FAILED" });
    }
    let clean = results.iter().all(|(_, result)| result.is_ok());
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn host_checks(workspace: &Workspace) -> Vec<Check> {
    let mut clippy = workspace.cargo();
    clippy.args(["clippy", "--workspace", "--exclude=flannel-ebpf", "--all-targets"]).args(workspace::locked());
    let mut doc = workspace.cargo();
    doc.args(["doc", "--workspace", "--exclude=flannel-ebpf"])
        .args(workspace::locked())
        .env("RUSTDOCFLAGS", "-Dwarnings");
    vec![
        Check::new("format", workspace.cargo(), &["fmt", "--all", "--check"]),
        Check::new("clippy", clippy, &["--", "-Dwarnings"]),
        Check::new("documentation", doc, &["--no-deps", "--document-private-items"]),
    ]
}

/// The BPF crate alone: what it shares with the agent was checked above, by the host's clippy, and two
/// versions of clippy need not agree.
fn bpf_checks(workspace: &Workspace, toolchain: &Toolchain) -> Vec<Check> {
    let cargo = |verb: &str| {
        let mut cargo = toolchain.cargo(workspace, verb);
        cargo.args(["--profile=bpf", "--package=flannel-ebpf", "--target", BPF_TARGET, "--no-deps"]);
        cargo.args(workspace::locked()).env("RUSTDOCFLAGS", "-Dwarnings");
        cargo
    };
    vec![
        Check::new("clippy for BPF", cargo("clippy"), &["--", "-Dwarnings"]),
        Check::new("documentation for BPF", cargo("doc"), &["--document-private-items"]),
    ]
}
