//! The packet: every access to the context and to packet bytes goes through here.
//!
//! Bytes are read and written by helper (`bpf_skb_load_bytes`, `bpf_skb_store_bytes`), not directly: a direct
//! write makes the verifier prepend an unclone to the program, which every packet would then pay for.

use core::ptr::write_volatile;

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_CSUM_LEVEL_DEC, BPF_CSUM_LEVEL_QUERY, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, bpf_redir_neigh,
        bpf_redir_neigh__bindgen_ty_1,
    },
    helpers::generated::{
        bpf_csum_level, bpf_get_hash_recalc, bpf_redirect_neigh, bpf_redirect_peer, bpf_skb_load_bytes,
        bpf_skb_store_bytes,
    },
    programs::TcContext,
};
use flannel_common::{addr::Addr, inner::Frame, outer::OuterBytes, reason::Reason};

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

    /// The kernel's packet. As a number it is the address of the skb.
    pub(crate) const fn raw(&self) -> *mut __sk_buff {
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
        /// Whom the frame is for: `PACKET_HOST` and the like.
        pkt_type: pkt_type;
        /// Firewall mark.
        mark: mark;
        /// Queueing priority.
        priority: priority;
    }

    /// Sets mark and priority, as they were at the exit of the stretch that is skipped.
    #[inline(always)]
    pub(crate) fn set_class(&self, mark: u32, priority: u32) {
        // SAFETY: as for the reads; the verifier allows these fields to be written.
        let raw = unsafe { &mut *self.raw() };
        write(&mut raw.mark, mark);
        write(&mut raw.priority, priority);
    }

    /// Takes off what belongs to this network namespace, as the kernel does when a packet leaves it.
    #[inline(always)]
    pub(crate) fn scrub(&self) -> bool {
        self.set_class(0, 0);
        // SAFETY: as above.
        let raw = unsafe { &mut *self.raw() };
        write(&mut raw.tc_index, 0);
        write(&mut raw.queue_mapping, 0);
        self.ctx.change_type(PACKET_HOST).is_ok()
    }

    /// Leaves a number on the packet for the next hook. It does not leave the node.
    #[inline(always)]
    pub(crate) fn set_tc_index(&self, value: u32) {
        // SAFETY: as for the reads; the verifier allows this field to be written.
        write(unsafe { &mut (*self.raw()).tc_index }, value);
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

    /// Loads a frame that starts at `offset`: a whole one up to the end of a TCP header, or of a shorter one what UDP
    /// needs. What is behind that is left from another packet.
    #[inline(always)]
    pub(crate) fn load_frame<F: Frame>(&self, offset: u32, frame: &mut F) -> Result<(), Reason> {
        let to = (&raw mut *frame).cast::<u8>().wrapping_add(F::PAD).cast();
        let wanted = if self.len() >= offset + F::LEN as u32 { F::LEN } else { F::MIN_LEN };
        // SAFETY: `to` has room for the longest frame behind the padding.
        let failed = unsafe { bpf_skb_load_bytes(self.raw().cast(), offset, to, wanted as u32) };
        if failed == 0 { Ok(()) } else { Err(Reason::Malformed) }
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

    /// Makes the checksum at `at` follow a change of addresses (a sum) and of ports. UDP without a checksum stays so.
    #[inline(always)]
    pub(crate) fn update_checksum(&self, at: usize, addresses: u32, ports: [u32; 2], is_udp: bool) -> bool {
        let flags = if is_udp { u64::from(BPF_F_MARK_MANGLED_0) } else { 0 };
        let pseudo = flags | u64::from(BPF_F_PSEUDO_HDR);
        self.ctx.l4_csum_replace(at, 0, addresses.into(), pseudo).is_ok()
            && (ports[0] == ports[1]
                || self.ctx.l4_csum_replace(at, ports[0].into(), ports[1].into(), flags | PORTS_LEN).is_ok())
    }

    /// How many nested checksums the kernel has verified beyond the first; negative if it has verified none.
    #[inline(always)]
    pub(crate) fn verified_checksums(&self) -> i64 {
        // SAFETY: the helper takes the context, which is valid for the whole run of the program.
        unsafe { bpf_csum_level(self.raw(), BPF_CSUM_LEVEL_QUERY.into()) }
    }

    /// The outer headers are gone, and with them one verified checksum.
    #[inline(always)]
    pub(crate) fn drop_outer_checksum(&self) {
        // SAFETY: as above. It refuses where no checksum was verified, and then there is nothing to take back.
        unsafe { bpf_csum_level(self.raw(), BPF_CSUM_LEVEL_DEC.into()) };
    }

    /// Overwrites bytes of the packet with what follows the first `skip` bytes of a value; whether that succeeded.
    #[inline(always)]
    pub(crate) fn store_from<T>(&self, offset: u32, value: &T, skip: usize) -> bool {
        let from = (&raw const *value).cast::<u8>().wrapping_add(skip).cast();
        // SAFETY: the value is live, and what is left of it behind `skip` bytes is that long.
        unsafe { bpf_skb_store_bytes(self.raw().cast(), offset, from, (size_of::<T>() - skip) as u32, 0) == 0 }
    }

    /// Takes out what stands between the Ethernet header and `len` bytes behind it; on failure the packet is as it was.
    #[inline(always)]
    pub(crate) fn shrink(&self, len: i32, mode: u32, flags: u64) -> bool {
        self.ctx.adjust_room(-len, mode, flags).is_ok()
    }

    /// Makes room between the Ethernet header and the next; on failure the packet is as it was.
    #[inline(always)]
    pub(crate) fn grow(&self, len: i32, mode: u32, flags: u64) -> bool {
        self.ctx.adjust_room(len, mode, flags).is_ok()
    }
}

/// Writes one field of the context. Volatile: two neighbours written as one are no field of it.
#[inline(always)]
fn write(field: &mut u32, value: u32) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(field, value) };
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
/// `pkt_type` of a frame for this host.
pub(crate) const PACKET_HOST: u32 = 0;

/// Length of the two ports, in the flags of the checksum helper.
const PORTS_LEN: u64 = 4;

/// Arranges that the packet is put into the other end of the veth `ifindex`, in its network namespace. Takes effect with
/// verdict redirect.
#[inline(always)]
pub(crate) fn redirect_peer(ifindex: u32) {
    // SAFETY: the helper takes numbers.
    unsafe { bpf_redirect_peer(ifindex, 0) };
}
