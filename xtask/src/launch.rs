//! `demo` and `bench`: set up, build, then become the program of the test crate that does the work.

use std::{convert::Infallible, ffi::OsString, os::unix::process::CommandExt as _, process::Stdio};

use anyhow::{Context as _, ensure};

use crate::{
    build::{self, Parts},
    setup::{Needs, Setup},
    workspace,
};

/// The programs of `flannel-tests`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// The three-node cluster.
    Demo,
    /// The measurements.
    Bench,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Bench => "bench",
        }
    }
}

/// Replaces this process by the program, so that an interrupt reaches the one that has a lab to
/// take down.
pub(crate) fn launch(setup: &Setup<'_>, program: Program, args: &[OsString]) -> anyhow::Result<Infallible> {
    let name = program.name();
    ensure!(workspace::is_root(), "the {name} makes network namespaces and loads BPF programs: run it as root");
    setup.machine(Needs::COMPILE.and(Needs::LAB))?;
    let workspace = setup.workspace();
    let built = build::build(workspace, Some(build::Bpf::release(&setup.bpf()?)), Parts::AgentAndLab)?;
    let mut command = workspace.command(built.program(name));
    built.announce(&mut command);
    command.args(args).stdin(Stdio::inherit());
    Err(command.exec()).with_context(|| format!("cannot start the {name}"))
}
