//! `demo`, `bench` and `cluster`: set up, build, then become the program of the test crate that
//! does the work.

use std::{
    convert::Infallible, ffi::OsString, os::unix::process::CommandExt as _, path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, ensure};

use crate::{
    build::{self, Built, Parts},
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
    /// Kubernetes.
    Cluster,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Bench => "bench",
            Self::Cluster => "cluster",
        }
    }
}

/// Sets up and builds, then becomes the program.
pub(crate) fn launch(
    setup: &Setup<'_>,
    program: Program,
    args: &[OsString],
) -> anyhow::Result<Infallible> {
    let name = program.name();
    ensure!(
        workspace::is_root(),
        "the {name} makes network namespaces and loads BPF programs: run it as root"
    );
    let built = match program {
        // The bench measures the shipped programs.
        Program::Bench => {
            setup.machine(Needs::COMPILE.and(Needs::LAB))?;
            let bpf = setup.bpf()?;
            build::build(
                setup.workspace(),
                Some(build::Bpf::release(&bpf)),
                Parts::AgentAndLab,
            )?
        }
        Program::Demo => {
            build::build_for_lab(setup, Needs::DEMO, &[build::AGENT, build::CONFINE, name])?
        }
        Program::Cluster => {
            build::build_for_lab(setup, Needs::LAB, &[build::AGENT, build::CONFINE, name])?
        }
    };
    become_program(setup, &built, program, args, &[])
}

/// Replaces this process by the program, so that an interrupt reaches the one that has a lab to
/// take down.
pub(crate) fn become_program(
    setup: &Setup<'_>,
    built: &Built,
    program: Program,
    args: &[OsString],
    variables: &[(&str, PathBuf)],
) -> anyhow::Result<Infallible> {
    let name = program.name();
    let mut command = setup.workspace().command(built.program(name));
    built.announce(&mut command);
    command
        .args(args)
        .envs(variables.iter().map(|(name, path)| (name, path)))
        .stdin(Stdio::inherit());
    Err(command.exec()).with_context(|| format!("cannot start the {name}"))
}
