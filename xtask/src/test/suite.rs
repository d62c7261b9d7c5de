//! One run of `cargo test`: its command line, and its output on the way to the terminal.

use std::{
    ffi::OsString,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{
    lines,
    tally::{OutputReader, Tally},
};
use crate::workspace::{self, Workspace};

/// A half of the tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suite {
    name: &'static str,
    selection: &'static [&'static str],
    harness: &'static [&'static str],
}

impl Suite {
    /// The workspace's default members.
    pub(super) const UNIT: Self = Self { name: "unit tests", selection: &[], harness: &[] };

    /// The test crate. Two tests at a time: each has namespaces of its own, and most of it is
    /// waiting.
    pub(super) const END_TO_END: Self =
        Self { name: "end-to-end suite", selection: &["--package=flannel-tests"], harness: &["--test-threads=2"] };

    /// Both halves use the dev profile, for its overflow checks, and so share one compilation.
    pub(super) fn cargo(&self, workspace: &Workspace, filter: &[OsString]) -> Command {
        let mut cargo = workspace.cargo();
        cargo.args(["test", "--no-fail-fast"]).args(workspace::locked()).args(self.selection);
        // A passing test's output has its `NOT RUN` line; without this flag the harness keeps it.
        cargo.args(["--", "--show-output"]).args(self.harness).args(filter);
        cargo
    }

    /// Runs it, lets its output through and adds up its results.
    pub(super) fn run(&self, cargo: &mut Command, tally: &mut Tally) -> anyhow::Result<()> {
        println!("test: {}", self.name);
        let mut child =
            cargo.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start the {}", self.name))?;
        let mut reader = OutputReader::default();
        lines::for_each(&mut child, |line| {
            if reader.read(line) {
                println!("{line}");
            }
        })
        .with_context(|| format!("cannot follow the {}", self.name))?;
        let status = child.wait().with_context(|| format!("cannot wait for the {}", self.name))?;
        let mut own = reader.finish();
        if !status.success() && own.is_success() {
            // It did not compile, or a test program died without a result.
            println!("test: the {} ended with {status}", self.name);
            own.fail();
        }
        tally.add(own);
        Ok(())
    }
}
