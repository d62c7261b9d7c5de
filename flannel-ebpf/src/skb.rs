//! The packet: every access to the context and to packet bytes goes through here.
//!
//! Bytes are read and written by helper (`bpf_skb_load_bytes`, `bpf_skb_store_bytes`), not directly: a direct
//! write makes the verifier prepend an unclone to the program, which every packet would then pay for.

use aya_ebpf::{
    bindings::{__sk_buff, bpf_redir_neigh, bpf_redir_neigh__bindgen_ty_1},
    helpers::generated::{bpf_get_hash_recalc, bpf_redirect_neigh},
    programs::TcContext,
};
use flannel_common::{addr::Addr, outer::OuterBytes, reason::Reason};

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

    /// Bytes of the packet, if it is that long.
    #[inline(always)]
    pub(crate) fn load<T>(&self, offset: usize) -> Option<T> {
        self.ctx.load(offset).ok()
    }

    /// What would be the outer headers if this is a packet of the tunnel.
    #[inline(always)]
    pub(crate) fn outer_bytes(&self) -> Result<OuterBytes, Reason> {
        if self.vlan_present() == 0 { self.load(0).ok_or(Reason::NotTunnel) } else { Err(Reason::VlanTagged) }
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

/// Arranges that the packet leaves by `oif` to the IPv4 `next_hop`, whose neighbour entry the kernel resolves and
/// keeps fresh. Takes effect with verdict redirect.
#[inline(always)]
pub(crate) fn redirect_neigh_v4(oif: u32, next_hop: &Addr) {
    let next_hop = bpf_redir_neigh__bindgen_ty_1 { ipv4_nh: u32::from_ne_bytes(next_hop.v4_bytes()) };
    let mut params = bpf_redir_neigh { nh_family: AF_INET, __bindgen_anon_1: next_hop };
    // SAFETY: `params` is a live value of the size given; flags must be zero.
    unsafe { bpf_redirect_neigh(oif, &raw mut params, size_of::<bpf_redir_neigh>() as i32, 0) };
}

const AF_INET: u32 = 2;
