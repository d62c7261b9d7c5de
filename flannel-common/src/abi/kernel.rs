//! Offsets in the running kernel's structs of the fields that the programs read, in bytes. The
//! agent takes them from the kernel's type information and sets them before it loads the object.

use core::mem::size_of;

/// Offsets in bytes. Zero says that it is not known; of `extension_offsets` only where that of
/// `extensions` is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// `sk_buff._nfct`: the packet's conntrack entry, and in the lowest bits what conntrack says of
    /// it.
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
    /// `nf_hook_ops.hook_ops_type`: the kind of a function at a hook; not known before Linux 5.14,
    /// where no BPF program can be one.
    pub hook_kind: u32,
    /// `nf_conn.ext`: the extensions of a conntrack entry.
    pub extensions: u32,
    /// `nf_ct_ext.offset`: where in them each is, in bytes, a byte for each; 0 for one the entry
    /// does not have. The first is its helper (`NF_CT_EXT_HELPER`).
    pub extension_offsets: u32,
    /// `NF_CT_EXT_TIMEOUT`: the number of the extension that names a timeout policy; 0 where the
    /// kernel has none.
    pub timeout_extension: u32,
    /// `task_struct.stack`: the lowest address of a task's stack in the kernel.
    pub stack: u32,
    /// `nf_conn.proto.tcp.seen`: the state of both directions of a TCP connection, twenty bytes
    /// each (`ip_ct_tcp_state`).
    pub tcp_states: u32,
}

impl KernelLayout {
    /// The unknown layout, with which the programs do not read kernel memory.
    pub const UNKNOWN: Self = Self {
        nfct: 0,
        device: 0,
        net: 0,
        hooks_v4: 0,
        hooks_v6: 0,
        entries: 0,
        priority: 0,
        hook_kind: 0,
        extensions: 0,
        extension_offsets: 0,
        timeout_extension: 0,
        stack: 0,
        tcp_states: 0,
    };
}

const _: () = assert!(size_of::<KernelLayout>() == 52);
