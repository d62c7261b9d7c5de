//! Where the running kernel keeps what the programs read of its structs: bytes from the beginning of each. The agent takes them
//! from the kernel's type information and sets them before it loads the object.

use core::mem::size_of;

/// Offsets in bytes. Zero, which none of them is, says that it is not known.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// `sk_buff._nfct`: the packet's conntrack entry, and in the lowest bits what conntrack says of it.
    pub nfct: u32,
    /// `sk_buff.dev`.
    pub device: u32,
    /// `net_device.nd_net`.
    pub net: u32,
    /// `net.nf.hooks_ipv4`: netfilter's hooks, PREROUTING first.
    pub hooks_v4: u32,
    /// `net.nf.hooks_ipv6`.
    pub hooks_v6: u32,
    /// `nf_hook_entries.hooks`: who is at a hook.
    pub entries: u32,
    /// `nf_hook_ops.priority`.
    pub priority: u32,
}

impl KernelLayout {
    /// Nothing is known, and nothing is read.
    pub const UNKNOWN: Self = Self { nfct: 0, device: 0, net: 0, hooks_v4: 0, hooks_v6: 0, entries: 0, priority: 0 };
}

const _: () = assert!(size_of::<KernelLayout>() == 28);
