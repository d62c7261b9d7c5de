//! Processes in the network namespaces of a lab that no guard knows: an agent leaves one running
//! where a process is its WireGuard device.

use std::{fs, path::Path, sync::Arc};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::child::Process;

/// Returns the ids of the processes in the namespaces of these holders, except the holders.
pub(super) fn of(holders: &[Arc<Process>]) -> Vec<u32> {
    let known: Vec<u32> = holders.iter().map(|holder| holder.pid()).collect();
    let own = namespace(std::process::id());
    let theirs: Vec<_> = known
        .iter()
        .filter_map(|pid| namespace(*pid))
        .filter(|it| Some(it) != own.as_ref())
        .collect();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_stray =
        |pid: &u32| !known.contains(pid) && namespace(*pid).is_some_and(|it| theirs.contains(&it));
    pids.filter(is_stray).collect()
}

/// Ends them.
pub(super) fn end(holders: &[Arc<Process>]) {
    for pid in of(holders) {
        // One that has ended already is as good.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// `net:[4026531840]`.
fn namespace(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/net")).ok()
}
