//! A host that is a whole machine: namespaces of processes, names and cgroups too, and its own
//! directories where programs of a node keep their files.
//!
//! When its first process ends, the kernel ends all others, in whatever session they are.

use std::{
    fs,
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result};

use super::{cgroups::Cgroups, holder};
use crate::lab::{Shared, child::Process};

const SCRIPT: &str = include_str!("machine.sh");

/// The first process of a machine, and its cgroups.
#[derive(Debug)]
pub(super) struct Machine {
    holder: Arc<Process>,
    pid: u32,
    cgroups: Cgroups,
}

impl Machine {
    /// Starts one, and waits until its namespaces are set up.
    pub(super) fn start(lab: &Shared, name: &str) -> Result<Self> {
        let cgroups = Cgroups::make(lab.record(), name)?;
        let state = lab.record().large_files(name)?;
        let mut command = command(&cgroups, lab.is_lasting());
        command
            .env("HOST", name)
            .env("STATE", state)
            .env("CGROUPS", cgroups.mounts());
        let holder = holder::run(lab, name, command)?;
        let pid = only_child(holder.pid())?;
        Ok(Self {
            holder,
            pid,
            cgroups,
        })
    }

    pub(super) fn holder(&self) -> &Process {
        &self.holder
    }

    /// The process id of the first process, as seen from outside.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The command line that joins the machine. The process that entered its namespaces stays, and
    /// takes the command with it.
    pub(super) fn enter_argv(&self) -> Vec<String> {
        let mut line = self.cgroups.join();
        let pid = self.pid.to_string();
        line.extend(
            [
                "nsenter", "-t", &pid, "-n", "-m", "-p", "-u", "-i", "-C", "--",
            ]
            .map(str::to_owned),
        );
        line.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        line
    }
}

fn command(cgroups: &Cgroups, lasting: bool) -> Command {
    let mut command = Command::new(if lasting { "setsid" } else { "env" });
    command
        .args(cgroups.enter_roots())
        .args(["unshare", "--cgroup", "--"])
        .args(cgroups.join());
    command.args([
        "unshare",
        "--net",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--uts",
        "--ipc",
    ]);
    command.args(["--fork", "--kill-child", "sh", "-c", SCRIPT]);
    command.stdout(Stdio::piped()).stdin(if lasting {
        Stdio::null()
    } else {
        Stdio::piped()
    });
    command.env("KEEPER", if lasting { "sleep infinity" } else { "cat" });
    command
}

fn only_child(pid: u32) -> Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim()
        .parse()
        .with_context(|| format!("{path}: {text:?}"))
}
