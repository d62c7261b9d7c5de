//! The packet: every access to the context and to packet bytes goes through here.
//!
//! Bytes are read and written by helper (`bpf_skb_load_bytes`, `bpf_skb_store_bytes`), not directly: a direct
//! write makes the verifier prepend an unclone to the program, which every packet would then pay for.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::{__sk_buff, bpf_redir_neigh},
    helpers::generated::{bpf_get_hash_recalc, bpf_redirect_neigh, bpf_skb_load_bytes},
    programs::TcContext,
};
use flannel_common::{
    addr::Addr, ip::FragmentHeader, node::FamilyConfig, outer::TunnelHeaders, packet::ETH_LEN, reason::Reason,
};

use crate::family::Family;

/// Where bytes of a packet are put, and read where they stand: of a value that is passed on the compiler keeps every byte
/// apart, for which a stack of 512 bytes is too small. The two bytes in front bring what follows an Ethernet header to a multiple
/// of eight, so that addresses are read as words.
#[repr(C, align(8))]
pub(crate) struct Room<T> {
    front: MaybeUninit<[u8; 2]>,
    bytes: MaybeUninit<T>,
}

impl<T> Room<T> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { front: MaybeUninit::uninit(), bytes: MaybeUninit::uninit() }
    }
}

/// What follows the outer IPv6 header of a fragment.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    header: FragmentHeader,
    tunnel: TunnelHeaders,
}

/// A packet at a TC hook.
pub(crate) struct Skb {
    ctx: TcContext,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $field:ident;)+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name(&self) -> u32 {
                // SAFETY: the kernel hands the program a valid context; the verifier turns the read of a field into
                // one of the skb.
                unsafe { (*self.raw()).$field }
            }
        )+
    };
}

impl Skb {
    pub(crate) const fn new(ctx: TcContext) -> Self {
        Self { ctx }
    }

    /// The context, for the log.
    #[cfg(feature = "log")]
    pub(crate) const fn context(&self) -> &TcContext {
        &self.ctx
    }

    const fn raw(&self) -> *mut __sk_buff {
        self.ctx.skb.skb
    }

    fields! {
        /// Length from the Ethernet header on.
        len: len;
        /// EtherType, network order.
        protocol: protocol;
        /// Non-zero when the packet carries a VLAN tag outside its bytes.
        vlan_present: vlan_present;
        /// Payload of one segment, 0 for a packet that is not segmented.
        gso_size: gso_size;
        /// Left by ourselves on another hook, 0 otherwise.
        tc_index: tc_index;
        /// The device the hook belongs to.
        ifindex: ifindex;
    }

    /// Leaves a number on the packet for the next hook. It does not leave the node.
    #[inline(always)]
    pub(crate) fn set_tc_index(&self, value: u32) {
        // SAFETY: as for the reads; the verifier allows this field to be written.
        unsafe { (*self.raw()).tc_index = value };
    }

    /// The flow hash the kernel's vxlan device would use: the one the packet carries (a socket's), else one
    /// computed from its headers. 0 when there is none.
    #[inline(always)]
    pub(crate) fn flow_hash(&self) -> u32 {
        // SAFETY: as for the other fields.
        let carried = unsafe { (*self.raw()).hash };
        if carried != 0 {
            return carried;
        }
        // SAFETY: the helper takes the context, which is valid for the whole run of the program.
        unsafe { bpf_get_hash_recalc(self.raw()) }
    }

    /// Bytes of the packet, if it is that long. `T` is bytes and nothing else.
    #[inline(always)]
    pub(crate) fn load<'a, T: Copy>(&self, offset: usize, room: &'a mut Room<T>) -> Option<&'a T> {
        let to = room.bytes.as_mut_ptr();
        // SAFETY: there is room for a `T`; the helper fills all of it or fails.
        let failed = unsafe { bpf_skb_load_bytes(self.raw().cast(), offset as u32, to.cast(), size_of::<T>() as u32) };
        // SAFETY: filled, and any bytes are a value.
        if failed == 0 { Some(unsafe { room.bytes.assume_init_ref() }) } else { None }
    }

    /// What follows an IPv6 fragment header, if it is UDP to our port.
    #[inline(always)]
    pub(crate) fn behind_fragment_header<'a, F: Family>(
        &self,
        family: &FamilyConfig,
        room: &'a mut Room<Fragment>,
    ) -> Result<&'a TunnelHeaders, Reason> {
        let Fragment { header, tunnel } = self.load(ETH_LEN + size_of::<F>(), room).ok_or(Reason::NotTunnel)?;
        if header.starts_udp() && tunnel.goes_to_port(family) { Ok(tunnel) } else { Err(Reason::NotTunnel) }
    }

    /// Overwrites bytes of the packet; whether that succeeded.
    #[inline(always)]
    pub(crate) fn store<T>(&self, offset: usize, bytes: &T) -> bool {
        self.ctx.store(offset, bytes, 0).is_ok()
    }

    /// Makes room between the Ethernet header and the next; on failure the packet is as it was.
    #[inline(always)]
    pub(crate) fn grow(&self, len: i32, mode: u32, flags: u64) -> bool {
        self.ctx.adjust_room(len, mode, flags).is_ok()
    }
}

/// Arranges that the packet leaves by `oif` to the next hop, whose neighbour entry the kernel resolves and keeps fresh.
/// Takes effect with verdict redirect.
#[inline(always)]
pub(crate) fn redirect_neigh<F: Family>(oif: u32, next_hop: Addr) {
    let mut params = F::next_hop(next_hop);
    // SAFETY: `params` is a live value of the size given; flags must be zero.
    unsafe { bpf_redirect_neigh(oif, &raw mut params, size_of::<bpf_redir_neigh>() as i32, 0) };
}
