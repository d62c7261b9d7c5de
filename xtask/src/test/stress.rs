//! Load on this machine, so that tests prove that they fail by faults and not by load.
//!
//! Fifteen processes: busy loops, writers that wait for the disk, and streams over the loopback
//! device of a network namespace. All of them end with this program.

use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::workspace::Workspace;

/// Busy loops.
const LOOPS: usize = 9;
const LOOP: &str = "while :; do :; done";
/// Writers of 64 MiB at a time, each to its file, which are removed as soon as they are open.
const WRITERS: usize = 3;
const WRITE: &str = "exec 3>\"$0-$$\" && rm \"$0-$$\" && \
    while :; do dd if=/dev/zero of=/proc/self/fd/3 bs=1M count=64 conv=fsync,notrunc status=none; \
    done";
/// Streams.
const STREAMS: usize = 3;
const STREAM: &str = "ip link set lo up && { iperf3 -s >/dev/null & } && \
    while :; do iperf3 -c 127.0.0.1 -t 30 >/dev/null 2>&1 || sleep 1; done";

/// The load, for as long as this value lives.
#[derive(Debug)]
pub(super) struct Stress(Vec<Child>);

impl Stress {
    /// Starts it.
    pub(super) fn start(workspace: &Workspace) -> anyhow::Result<Self> {
        let mut stress = Self(Vec::new());
        let file = workspace.logs()?.join("stress");
        for _ in 0..LOOPS {
            stress.add(shell(workspace, &["sh", "-c", LOOP]))?;
        }
        for _ in 0..WRITERS {
            let mut writer = shell(workspace, &["sh", "-c", WRITE]);
            writer.arg(&file);
            stress.add(writer)?;
        }
        for _ in 0..STREAMS {
            let namespaces = ["unshare", "--net", "--pid", "--fork", "--kill-child"];
            stress.add(shell(
                workspace,
                &[&namespaces[..], &["sh", "-c", STREAM]].concat(),
            ))?;
        }
        println!("stress: {LOOPS} busy loops, {WRITERS} writers, {STREAMS} streams");
        Ok(stress)
    }

    fn add(&mut self, mut command: Command) -> anyhow::Result<()> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.0
            .push(child.with_context(|| format!("cannot start {command:?}"))?);
        Ok(())
    }
}

fn shell(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = workspace.command("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(words);
    command
}

impl Drop for Stress {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is as good.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_outlives_the_load() {
        let workspace = Workspace::new().expect("the project");
        let mut stress = Stress(Vec::new());
        stress
            .add(shell(&workspace, &["sh", "-c", LOOP]))
            .expect("a shell");
        let pid = stress.0[0].id();
        drop(stress);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
