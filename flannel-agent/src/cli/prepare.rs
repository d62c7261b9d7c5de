//! `flannel-agent prepare`: what a node needs that an agent without `CAP_SYS_ADMIN`, and with a
//! read-only `/proc/sys`, cannot do for itself.
//!
//! It does what it can and says what it cannot. Neither is a failure: the kernel path carries the
//! packets of a node that could not be prepared, and an init container that fails would leave it
//! without any.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use flannel_host::{error_chain::chain, sysctl_record::Record};

use super::{PinOptions, StateOptions};
use crate::{cleanup::connections, datapath::bpffs, fast::ConntrackSysctls, privileges, state_dir::StateDir};

/// The things to prepare, and their places.
#[derive(Debug, Args)]
pub struct PrepareOptions {
    /// Mount the bpf filesystem in this mount namespace instead of the command's own: that of the
    /// host, such as /host/proc/1/ns/mnt where the host's /proc is mounted on /host/proc. The pin
    /// root is a path there
    #[arg(long, value_name = "FILE")]
    mount_namespace: Option<PathBuf>,
    /// Set the sysctls of conntrack that mode `fast` needs, and record their values before
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    conntrack_liberal: bool,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) fn run(options: &PrepareOptions) -> anyhow::Result<String> {
    privileges::check()?;
    let mut text = mount(options);
    if options.conntrack_liberal {
        text += &set_sysctls(options)
            .unwrap_or_else(|error| format!("warning: mode fast leaves TCP to the kernel: {}\n", chain(&*error)));
    }
    Ok(text)
}

/// Mounts the bpf filesystem; what became of it.
fn mount(options: &PrepareOptions) -> String {
    let pins = options.pins.root();
    let root = pins.root();
    let mounted = match &options.mount_namespace {
        Some(namespace) => bpffs::ensure_mounted_in(namespace, root),
        None => bpffs::ensure_mounted(root),
    };
    match mounted {
        Ok(true) => format!("mounted a bpf filesystem for {}\n", root.display()),
        Ok(false) => format!("{} is on a bpf filesystem\n", root.display()),
        Err(error) => format!("warning: the kernel path serves this node: {}\n", chain(&error)),
    }
}

/// Sets the sysctls; what was set.
fn set_sysctls(options: &PrepareOptions) -> anyhow::Result<String> {
    let dir = &options.state.state_dir;
    let _state = StateDir::claim(dir, None)?;
    let (_, repair) = Record::load_or_repair(dir).context("without a record of the values before none is set")?;
    if !ConntrackSysctls::is_conntrack_loaded() {
        // The kernel loads the module for who asks for its table. Afterwards is too late: the agent
        // in a pod has a read-only /proc/sys. An error shows below, in what is missing.
        let _ = connections::alive_by_netlink(&[].into());
    }
    let mut sysctls = ConntrackSysctls::new(true, dir, []);
    let obstacle = sysctls.prepare()?;
    let mut text = repair.map(|repair| format!("warning: {repair}\n")).unwrap_or_default();
    // Writing to a string cannot fail.
    for changed in sysctls.changed() {
        let _ = writeln!(text, "{} is {}, {} before", changed.name, changed.set, changed.before);
    }
    if let Some(obstacle) = obstacle {
        let _ = writeln!(text, "warning: mode fast leaves TCP to the kernel: {obstacle}");
    }
    Ok(text)
}
