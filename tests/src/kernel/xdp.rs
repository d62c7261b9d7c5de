//! A foreign XDP program that drops everything. It consists of two instructions, so that no
//! compiler is needed.

use std::{
    ffi::CString,
    fs,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result};
use nix::{errno::Errno, libc};

use crate::Host;

const PIN: &str = "/sys/fs/bpf/drop";
// linux/bpf.h.
pub(crate) const PROG_LOAD: libc::c_long = 5;
const OBJ_PIN: libc::c_long = 6;
const TYPE_XDP: u64 = 6;
/// `r0 = XDP_DROP; exit`.
const DROP: [u64; 2] = [0x1_0000_00b7, 0x95];

/// Puts it on a device of a host.
pub fn attach_drop(host: &Host, device: &str) -> Result<()> {
    host.enter(pin_drop)??;
    host.sh(&format!("ip link set dev {device} xdpdrv pinned {PIN}"))
        .map(drop)
}

/// Takes it off again.
pub fn detach(host: &Host, device: &str) -> Result<()> {
    host.sh(&format!("ip link set dev {device} xdpdrv off"))?;
    fs::remove_file(host.outside_path(PIN)).context(PIN)
}

fn pin_drop() -> Result<()> {
    let license = c"GPL";
    // Type and number of instructions, the instructions, the licence.
    let load = [
        TYPE_XDP | (DROP.len() as u64) << 32,
        DROP.as_ptr() as u64,
        license.as_ptr() as u64,
    ];
    let program = bpf(PROG_LOAD, &load).context("loading an XDP program")?;
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let path = CString::new(PIN)?;
    let pin = [path.as_ptr() as u64, u64::try_from(program.as_raw_fd())?];
    bpf(OBJ_PIN, &pin).map(drop).context(PIN)
}

/// The system call, with the beginning of its attributes; the rest is zero.
pub(crate) fn bpf(command: libc::c_long, attributes: &[u64]) -> Result<i32> {
    // SAFETY: the attributes are read only, as long as said, and what they point at lives as long
    // as the caller's frame.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    };
    Ok(i32::try_from(Errno::result(result)?)?)
}
