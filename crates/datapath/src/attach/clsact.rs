//! cls_bpf filters on a clsact qdisc, for kernels before TCX (or when asked for).
//!
//! A filter is ours when priority and handle are: a fixed priority, and a handle with the VNI in
//! it, or zero without one. Filters of others, also on the same qdisc, are never touched. A qdisc
//! that we had to add is recorded in the state directory, so that `cleanup` removes no qdisc that
//! existed before.
//!
//! The kernel stops a device's queues for about a millisecond while it adds (or removes) a clsact
//! qdisc, and drops the packets that are sent during that time (`dev_deactivate()`, called by
//! `qdisc_graft()` in [net/sched/sch_api.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/sched/sch_api.c)). That happens once per
//! device, before the first attachment; changing filters loses no packets.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use aya::programs::{
    ProgramError, SchedClassifier, TcAttachType,
    tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact},
};
use flannel_host::file;
use flannel_netlink::device_name;

use crate::{
    DatapathError, Hook,
    attach::filters::{self, FilterId},
};

/// Priority of our filters: late, so that filters of others come first.
pub const PRIORITY: u16 = 0xbf10;

/// High byte of our handles; the VNI is in the other three, or zero.
const HANDLE: u32 = 0x4600_0000;

/// The handle of our filters for a VNI, or for zero without a tunnel.
pub const fn handle(vni: u32) -> u32 {
    HANDLE | vni
}

/// Returns true if the handle is one of our filters', of any VNI.
pub const fn is_our_handle(handle: u32) -> bool {
    handle & 0xff00_0000 == HANDLE
}

/// Puts the program on the device, in place of the one our filter has, if there is one.
pub(super) fn attach(
    program: &mut SchedClassifier,
    hook: &Hook,
    handle: u32,
    ledger: &mut Ledger,
) -> Result<(), DatapathError> {
    match qdisc_add_clsact(&hook.ifname) {
        Ok(()) => ledger.add(hook.ifindex)?,
        Err(error) if is_there(&error) => {}
        Err(source) => {
            return Err(DatapathError::Clsact {
                ifname: hook.ifname.clone(),
                source,
            });
        }
    }
    let handle = TcHandle::from(handle);
    let result = if is_attached(hook, handle.into()) {
        SchedClassifierLink::attached(&hook.ifname, hook.direction(), PRIORITY, handle, None)
            .map_err(|error| ProgramError::from(TcError::from(error)))
            .and_then(|link| program.attach_to_link(link))
    } else {
        let options = NlOptions {
            priority: PRIORITY,
            handle,
            classid: None,
        };
        program.attach_with_options(
            &hook.ifname,
            hook.direction(),
            TcAttachOptions::Netlink(options),
        )
    };
    let id = result.map_err(|source| failed(hook, source))?;
    // aya takes a filter off when its link is dropped; this one stays with the device.
    std::mem::forget(
        program
            .take_link(id)
            .map_err(|source| failed(hook, source))?,
    );
    Ok(())
}

/// Returns true if the error says that the device already has a clsact qdisc: aya's own variant, or
/// the kernel's `EEXIST`.
fn is_there(error: &TcError) -> bool {
    match error {
        TcError::AlreadyAttached => true,
        TcError::NetlinkError(error) => error.raw_os_error() == Some(nix::libc::EEXIST),
        _ => false,
    }
}

/// Returns true if our filter is on the device; false also if its filters cannot be listed.
pub(super) fn is_attached(hook: &Hook, handle: u32) -> bool {
    filters::list(hook.ifindex, hook.direction()).is_ok_and(|found| {
        found.contains(&FilterId {
            priority: PRIORITY,
            handle,
        })
    })
}

/// Removes our filter from the device. A missing filter is not an error.
pub(super) fn detach(hook: &Hook, handle: u32) -> Result<(), DatapathError> {
    remove(hook.ifindex, hook.direction(), handle)
        .map_err(|error| failed(hook, TcError::from(error).into()))
}

/// Takes our filter off one side of a device, if it is there.
pub(super) fn remove(ifindex: u32, side: TcAttachType, handle: u32) -> io::Result<()> {
    let ours = FilterId {
        priority: PRIORITY,
        handle,
    };
    if filters::list(ifindex, side)?.contains(&ours) {
        filters::delete(ifindex, side, ours)
    } else {
        Ok(())
    }
}

fn failed(hook: &Hook, source: ProgramError) -> DatapathError {
    DatapathError::Attach {
        program: hook.program.name(),
        ifname: hook.ifname.clone(),
        source: Box::new(source),
    }
}

/// The devices to which we added a clsact qdisc: one interface index a line in
/// `<state-dir>/clsact`.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The list in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join("clsact"),
        }
    }

    /// The devices listed.
    pub fn devices(&self) -> BTreeSet<u32> {
        fs::read_to_string(&self.path)
            .map(|text| text.lines().filter_map(|line| line.parse().ok()).collect())
            .unwrap_or_default()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn add(&self, ifindex: u32) -> Result<(), DatapathError> {
        let mut devices = self.devices();
        // Those of pods that are gone would pile up.
        devices.retain(|device| device_name(*device).is_some());
        devices.insert(ifindex);
        let lines: Vec<_> = devices.iter().map(u32::to_string).collect();
        file::replace(&self.path, lines.join("\n").as_bytes(), 0o600).map_err(|error| {
            DatapathError::ChangePin {
                action: "write the new list",
                path: error.path,
                source: error.source,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_gone_leave_the_list() {
        let dir = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::new(dir.path());
        ledger.add(u32::MAX >> 1).expect("written");
        ledger.add(1).expect("written");
        assert_eq!(ledger.devices(), BTreeSet::from([1]));
    }
}
