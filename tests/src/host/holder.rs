//! The process that holds a host's namespaces open.
//!
//! It reads a pipe from the lab and ends when the lab's process ends for any reason. In a lasting
//! lab it sleeps in its own session instead.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};

use crate::{lab::Shared, lab::child::Process};

/// Settings of the kernel that a new namespace takes from the machine, with the defaults of the
/// kernel (`ipv4_devconf` in [net/ipv4/devinet.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/devinet.c), `ipv6_devconf` in
/// [net/ipv6/addrconf.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/addrconf.c)).
const SETTINGS: &str = "for scope in all default lo; do cd /proc/sys/net/ipv4/conf/$scope && \
    for name in rp_filter log_martians arp_filter arp_ignore arp_announce; do echo 0 >$name; done \
    && \
    for name in accept_redirects send_redirects accept_source_route; do echo 1 >$name; done && \
    cd /proc/sys/net/ipv6/conf/$scope && echo 0 >disable_ipv6 && echo 1 >accept_ra || exit; done; \
    cd /";

/// The mounts of the machine below `/sys` go first, such as the bpf filesystem and the cgroups of
/// systemd: a node would list them as its mounts, below the new ones. The mount point of bpffs lies
/// on the new sysfs, which shows the devices of this network namespace.
const MOUNTS: &str = "{ ! mountpoint -q /sys || umount --recursive --lazy /sys; } && \
    mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf && \
    mount -t tmpfs -o mode=0755 tmpfs /run && ip link set lo up && echo ready && exec";

/// Starts a holder and waits until its namespaces are set up.
pub(super) fn start(lab: &Shared, name: &str) -> Result<Arc<Process>> {
    run(lab, name, command(lab.is_lasting()))
}

/// Starts a command that says that it is ready.
pub(super) fn run(lab: &Shared, name: &str, command: Command) -> Result<Arc<Process>> {
    let process = Process::start(lab, &format!("holder-{name}"), command)?;
    let stdout = process
        .child()
        .stdout
        .take()
        .context("the holder's output is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "ready\n" {
        bail!("the holder did not get ready; is this root, with CAP_SYS_ADMIN? It said {line:?}");
    }
    lab.own_holder(&process);
    Ok(process)
}

fn command(lasting: bool) -> Command {
    let unshare = [
        "unshare",
        "--net",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
    ];
    let mut command = Command::new(if lasting { "setsid" } else { "env" });
    command.args(unshare).stdout(Stdio::piped());
    if lasting {
        command
            .arg(format!("{SETTINGS}; {MOUNTS} sleep infinity"))
            .stdin(Stdio::null());
    } else {
        command
            .arg(format!("{SETTINGS}; {MOUNTS} cat"))
            .stdin(Stdio::piped());
    }
    command
}
