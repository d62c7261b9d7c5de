//! A foreign BPF program at a netfilter hook (Linux 6.4). It accepts each packet and consists of
//! two instructions, so that no compiler is needed.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use nix::libc;

use crate::{
    Host,
    kernel::xdp::{PROG_LOAD, bpf},
};

// linux/bpf.h.
const LINK_CREATE: libc::c_long = 28;
const TYPE_NETFILTER: u64 = 32;
const ATTACH_NETFILTER: u64 = 45;
/// `r0 = NF_ACCEPT; exit`.
const ACCEPT: [u64; 2] = [0x1_0000_00b7, 0x95];
/// A priority that no other function has.
const PRIORITY: u64 = 7;

/// `FORWARD` and the like, as netfilter numbers them.
#[derive(Clone, Copy, Debug)]
pub enum NetfilterHook {
    /// Packets from one device to another.
    Forward = 2,
    /// Packets that this host makes.
    Output = 3,
}

/// The program, attached; detached when this is dropped.
#[derive(Debug)]
pub struct NetfilterProgram {
    _link: OwnedFd,
}

impl NetfilterProgram {
    /// Attaches it to a hook of IPv4 of a host.
    pub fn attach(host: &Host, hook: NetfilterHook) -> Result<Self> {
        host.enter(|| attach(hook))?
    }
}

fn attach(hook: NetfilterHook) -> Result<NetfilterProgram> {
    let license = c"GPL";
    // Type and number of instructions, the instructions, the licence; the log, flags and a name,
    // which are absent; the type of the hook.
    let kind = TYPE_NETFILTER | (ACCEPT.len() as u64) << 32;
    let load = [
        kind,
        ACCEPT.as_ptr() as u64,
        license.as_ptr() as u64,
        0,
        0,
        0,
        0,
        0,
        ATTACH_NETFILTER << 32,
    ];
    let program = bpf(PROG_LOAD, &load).context("loading a netfilter program")?;
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let family = u64::try_from(libc::NFPROTO_IPV4)?;
    let at = family | (hook as u64) << 32;
    let link = [
        u64::try_from(program.as_raw_fd())?,
        ATTACH_NETFILTER,
        at,
        PRIORITY,
    ];
    let link = bpf(LINK_CREATE, &link).context("attaching a netfilter program")?;
    // SAFETY: as above.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    Ok(NetfilterProgram { _link: link })
}
