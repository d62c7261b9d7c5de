//! The process that holds a host's namespaces open.
//!
//! It reads a pipe from the lab and ends when the lab's process does, in whatever way. In a lasting
//! lab it sleeps in a session of its own instead.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};

use crate::{lab::Shared, lab::child::Process};

/// `/sys` first: the mount point of bpffs lies on it. The new sysfs shows the devices of this
/// network namespace.
const MOUNTS: &str = "mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf && \
    mount -t tmpfs -o mode=0755 tmpfs /run && ip link set lo up && echo ready && exec";

/// Starts a holder and waits until its namespaces are set up.
pub(super) fn start(lab: &Shared, name: &str) -> Result<Arc<Process>> {
    run(lab, name, command(lab.is_lasting()))
}

/// Starts a command that says that it is ready.
pub(super) fn run(lab: &Shared, name: &str, command: Command) -> Result<Arc<Process>> {
    let process = Process::start(lab, &format!("holder-{name}"), command)?;
    let stdout = process.child().stdout.take().context("the holder's output is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "ready\n" {
        bail!("the holder did not get ready; is this root, with CAP_SYS_ADMIN? It said {line:?}");
    }
    lab.own_holder(&process);
    Ok(process)
}

fn command(lasting: bool) -> Command {
    let unshare = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c"];
    let mut command = Command::new(if lasting { "setsid" } else { "env" });
    command.args(unshare).stdout(Stdio::piped());
    if lasting {
        command.arg(format!("{MOUNTS} sleep infinity")).stdin(Stdio::null());
    } else {
        command.arg(format!("{MOUNTS} cat")).stdin(Stdio::piped());
    }
    command
}
