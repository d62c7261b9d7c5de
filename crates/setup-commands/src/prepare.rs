//! `flannel-agent prepare`: what a node needs that an agent without `CAP_SYS_ADMIN`, and with a
//! read-only `/proc/sys`, cannot do for itself.
//!
//! It does what it can and says what it cannot. Neither is a failure: the kernel path carries the
//! packets of a node that could not be prepared, and an init container that fails would leave it
//! without any.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use flannel_claims::state_dir::StateDir;
use flannel_cleanup::connections;
use flannel_command::{PinOptions, StateOptions};
use flannel_datapath::kernel::bpffs;
use flannel_fast::ConntrackSysctls;
use flannel_host::{
    error_chain::chain,
    family::Family,
    sysctl_record::{Repair, SharedRecord},
};
use flannel_host_sysctls::HostSysctls;
use flannel_options::values::families;
use flannel_privileges as privileges;
use flannel_traffic::MasqueradeFamilies;

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
    /// Switch forwarding on for these address families where it is off, and record the values
    /// before: `true` for both, `ipv4` or `ipv6` for one, `false`
    #[arg(
        long,
        value_name = "BOOL|FAMILY",
        default_value = "ipv4",
        value_parser = families::parser(),
        hide_possible_values = true,
    )]
    set_forwarding: MasqueradeFamilies,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub fn run(options: &PrepareOptions) -> anyhow::Result<String> {
    privileges::check()?;
    Ok(mount(options) + &set_sysctls(options))
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
        Err(error) => format!(
            "warning: the kernel path serves this node: {}\n",
            chain(&error)
        ),
    }
}

/// Sets the sysctls; what was set.
fn set_sysctls(options: &PrepareOptions) -> String {
    let families: Vec<Family> = Family::BOTH
        .into_iter()
        .filter(|family| options.set_forwarding.has(*family))
        .collect();
    if !options.conntrack_liberal && families.is_empty() {
        return String::new();
    }
    let dir = &options.state.state_dir;
    let (_state, record, repair) = match open(dir) {
        Ok(opened) => opened,
        Err(error) => return format!("warning: no sysctl is set: {}\n", chain(&*error)),
    };
    let mut text = repair
        .map(|repair| format!("warning: {repair}\n"))
        .unwrap_or_default();
    let mut host = HostSysctls::new(Ok(record.clone()), true);
    for problem in host.prepare(&families) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "warning: {}", problem.text);
    }
    ConntrackSysctls::new(false, Some(record.clone()), record.networks()).set_back_released();
    if options.conntrack_liberal {
        text += &make_conntrack_liberal(record.clone());
    }
    for changed in record.changed() {
        let _ = writeln!(
            text,
            "{} is {}, {} before",
            changed.name, changed.set, changed.before
        );
    }
    text
}

/// Takes the state directory, and reads the record in it.
fn open(dir: &Path) -> anyhow::Result<(StateDir, SharedRecord, Option<Repair>)> {
    let state = StateDir::claim(dir, None)?;
    let loaded = SharedRecord::load_or_repair(dir);
    let (record, repair) = loaded.context("without a record of the values before none is set")?;
    Ok((state, record, repair))
}

/// Sets the sysctls of conntrack; a warning if that is not enough.
fn make_conntrack_liberal(record: SharedRecord) -> String {
    if !ConntrackSysctls::is_conntrack_loaded() {
        // The kernel loads the module for who asks for its table. Afterwards is too late: the agent
        // in a pod has a read-only /proc/sys. An error shows below, in what is missing.
        let _ = connections::alive_by_netlink(&[].into());
    }
    let obstacle = match ConntrackSysctls::new(true, Some(record), []).prepare() {
        Ok(obstacle) => obstacle.map(|obstacle| obstacle.to_string()),
        Err(error) => Some(chain(&error)),
    };
    obstacle
        .map(|why| format!("warning: mode fast leaves TCP to the kernel: {why}\n"))
        .unwrap_or_default()
}
