//! One run of `cargo test`: its command line, and its output on the way to the terminal.

use std::{
    ffi::OsString,
    iter,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::Context as _;

use super::{
    lines, minutes,
    subjects::KUBERNETES,
    tally::{OutputReader, RESULT, Tally},
};
use crate::{
    build::Built,
    workspace::{self, Workspace},
};

/// A half of the tests.
#[derive(Clone, Debug)]
pub(super) struct Suite {
    name: &'static str,
    /// Stands before each line of its output.
    prefix: &'static str,
    selection: Vec<String>,
    harness: &'static [&'static str],
}

impl Suite {
    /// The unit tests, with those that a bare `cargo test` leaves out because they need root or
    /// tools. Those of the verbs are apart: in one command, libraries would be built with the
    /// features of both, and once more for every other selection.
    pub(super) fn unit() -> [Self; 2] {
        let verbs = ["--package=xtask", "--bins"].map(str::to_owned).to_vec();
        let others = ["--workspace", "--exclude=xtask", "--exclude=flannel-tests", "--exclude=flannel-ebpf"];
        let others = others.into_iter().chain(["--lib", "--bins", "--test=*"]).map(str::to_owned).collect();
        [
            Self { name: "unit tests of the verbs", prefix: "", selection: verbs, harness: &[] },
            Self { name: "unit tests", prefix: "", selection: others, harness: &[] },
        ]
    }

    /// These subjects of the test crate, and with `lab` its own unit tests. Three tests at a time:
    /// each has namespaces of its own, and half of it is waiting.
    pub(super) fn end_to_end(subjects: &[String], lab: bool) -> Self {
        let mut selection = Self::selection(subjects);
        if lab {
            selection.extend(["--lib", "--bins"].map(str::to_owned));
        }
        Self { name: "end-to-end suite", prefix: "", selection, harness: &["--test-threads=3"] }
    }

    /// The subject `kubernetes`, to be run at the same time as others.
    pub(super) fn kubernetes() -> Self {
        let selection = Self::selection(&[KUBERNETES.to_owned()]);
        Self { name: "suite on Kubernetes", prefix: "kubernetes: ", selection, harness: &[] }
    }

    fn selection(subjects: &[String]) -> Vec<String> {
        // The name of each program starts with its folder.
        let programs = subjects.iter().map(|subject| format!("--test={subject}*"));
        iter::once("--package=flannel-tests".to_owned()).chain(programs).collect()
    }

    /// Both halves use the dev profile, for its overflow checks, and so share one compilation.
    pub(super) fn cargo(&self, workspace: &Workspace, filter: &[OsString]) -> Command {
        let mut cargo = self.command(workspace, "--no-fail-fast");
        // A passing test's output has its `NOT RUN` line; without this flag the harness keeps it.
        cargo.args(["--", "--show-output"]).args(self.harness).args(filter);
        cargo
    }

    fn command(&self, workspace: &Workspace, flag: &str) -> Command {
        let mut cargo = workspace.cargo();
        cargo.args(["test", flag]).args(workspace::locked()).args(&self.selection);
        cargo
    }

    /// Compiles it. What keeps it from compiling is shown, and counted when it is run.
    pub(super) fn compile(&self, workspace: &Workspace, built: &Built) {
        println!("build: the {}", self.name);
        let mut cargo = self.command(workspace, "--no-run");
        built.announce(&mut cargo);
        if let Err(error) = workspace::run(&mut cargo, self.name) {
            eprintln!("xtask: {error:#}");
        }
    }

    /// Runs it, lets its output through and adds up its results. Prints the time since `start`
    /// behind each program's result.
    pub(super) fn run(&self, cargo: &mut Command, start: Instant) -> anyhow::Result<Tally> {
        let so_far = || println!("{}test: {}, {} so far", self.prefix, self.name, minutes(start.elapsed()));
        so_far();
        let mut child =
            cargo.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start the {}", self.name))?;
        let mut reader = OutputReader::default();
        lines::for_each(&mut child, |line| {
            if reader.read(line) {
                println!("{}{line}", self.prefix);
            }
            if line.starts_with(RESULT) {
                so_far();
            }
        })
        .with_context(|| format!("cannot follow the {}", self.name))?;
        let status = child.wait().with_context(|| format!("cannot wait for the {}", self.name))?;
        let mut own = reader.finish();
        if !status.success() && own.is_success() {
            // It did not compile, or a test program died without a result.
            own.fail(format_args!("the {} ended with {status}", self.name));
        }
        Ok(own)
    }
}
