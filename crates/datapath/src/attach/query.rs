//! Query of the program ids on a TCX hook.
//!
//! aya's query opens each program, for which the kernel requires `CAP_SYS_ADMIN`
//! (`bpf_prog_get_fd_by_id()` in [kernel/bpf/syscall.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/syscall.c)). This one reads only
//! the ids, which any process may that can configure the network. The ids of our programs are those
//! of the pinned links.

use std::{io, path::Path};

use aya::programs::{
    TcAttachType,
    links::{FdLink, PinnedLink},
};
use nix::libc;

/// `BPF_PROG_QUERY`, `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS` of linux/bpf.h.
const PROG_QUERY: libc::c_long = 16;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// `BPF_MPROG_MAX`: there are no more on a hook.
const MOST: u32 = 64;

/// `struct { ... } query` of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Query {
    ifindex: u32,
    attach_type: u32,
    flags: [u32; 2],
    programs: u64,
    count: u32,
    padding: u32,
    /// Flags of each program, links, their flags, and a revision: not asked for.
    rest: [u64; 4],
}

/// The programs on a side of a device, in their order. A kernel without TCX has none, and says so
/// with an error.
pub fn programs(ifindex: u32, side: TcAttachType) -> io::Result<Vec<u32>> {
    let attach_type = if side == TcAttachType::Ingress {
        TCX_INGRESS
    } else {
        TCX_EGRESS
    };
    let mut numbers = [0_u32; MOST as usize];
    let programs = numbers.as_mut_ptr() as u64;
    let mut query = Query {
        ifindex,
        attach_type,
        programs,
        count: MOST,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes `query`, whose size it is given, and writes at most
    // `count` numbers to where `programs` points, which has room for as many. Both outlive the
    // call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_QUERY,
            &raw mut query,
            size_of::<Query>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(numbers.into_iter().take(query.count as usize).collect())
}

/// Returns the program that a pinned link holds; `None` without a pin.
pub fn held_by(pin: &Path) -> Option<u32> {
    let link = FdLink::from(PinnedLink::from_pin(pin).ok()?);
    Some(link.info().ok()?.program_id())
}
