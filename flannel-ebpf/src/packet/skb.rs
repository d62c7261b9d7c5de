//! The packet: every access to the context and to packet bytes goes through here.
//!
//! Bytes are read and written in [`load_buf`](super::load_buf).

use core::{
    mem::{MaybeUninit, offset_of},
    ptr::write_volatile,
};

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_CSUM_LEVEL_DEC, BPF_CSUM_LEVEL_QUERY, BPF_F_ADJ_ROOM_FIXED_GSO,
        BPF_F_ADJ_ROOM_NO_CSUM_RESET, BPF_F_INGRESS, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR,
        BPF_FIB_LKUP_RET_FWD_DISABLED, BPF_FIB_LKUP_RET_NOT_FWDED,
        bpf_adj_room_mode::BPF_ADJ_ROOM_MAC, bpf_redir_neigh, bpf_tunnel_key,
    },
    helpers::generated::{
        bpf_check_mtu, bpf_csum_level, bpf_csum_update, bpf_fib_lookup, bpf_get_hash_recalc,
        bpf_redirect, bpf_redirect_neigh, bpf_redirect_peer, bpf_skb_change_head,
        bpf_skb_set_tunnel_key,
    },
    programs::TcContext,
};
use flannel_common::{
    abi::reason::Reason, flow::class::Class, packet::ETH_LEN, packet::addr::Addr,
};

use super::family::{Family, NextHop, Route};

/// The VLAN identifier in a tag (IEEE 802.1Q); 0 in a tag with only a priority.
pub(crate) const VLAN_ID: u32 = 0xfff;

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
                // SAFETY: the kernel hands the program a valid context; the verifier turns the read
                // of a field into one of the skb.
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
        /// Address of the linear bytes.
        data: data;
        /// End of the linear bytes.
        data_end: data_end;
        /// EtherType, network order.
        protocol: protocol;
        /// Non-zero when the packet carries a VLAN tag outside its bytes.
        vlan_present: vlan_present;
        /// That tag, or what is left of another.
        vlan_tci: vlan_tci;
        /// Payload of one segment, 0 for a packet that is not segmented.
        gso_size: gso_size;
        /// Segments it becomes; 0 for a packet that is not segmented, and where that was not
        /// counted.
        gso_segs: gso_segs;
        /// Left by ourselves on another hook, 0 otherwise.
        tc_index: tc_index;
        /// The device the hook belongs to.
        ifindex: ifindex;
        /// The device by which the packet came into this host, 0 for one that was made here.
        ingress_ifindex: ingress_ifindex;
        /// Whom the frame is for: `PACKET_HOST` and the like.
        pkt_type: pkt_type;
        /// Firewall mark.
        mark: mark;
        /// Queueing priority.
        priority: priority;
    }

    /// Returns true if the packet has a tag with a VLAN. A tag without one has only a priority.
    #[inline(always)]
    pub(crate) fn is_of_vlan(&self) -> bool {
        self.vlan_present() != 0 && self.vlan_tci() & VLAN_ID != 0
    }

    /// Mark and priority.
    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        Class {
            mark: self.mark(),
            priority: self.priority(),
        }
    }

    /// Packets it becomes on the wire, at least one.
    #[inline(always)]
    pub(crate) fn segments(&self) -> u32 {
        let (counted, size) = (self.gso_segs(), self.gso_size());
        if counted != 0 || size == 0 {
            return if counted > 1 { counted } else { 1 };
        }
        // A program that changed the packet left the count to the device: this is the maximum.
        self.len() / size + 1
    }

    /// Sets mark and priority, as they were at the exit of the stretch that is skipped.
    #[inline(always)]
    pub(crate) fn set_class(&self, mark: u32, priority: u32) {
        // SAFETY: as for the reads; the verifier allows these fields to be written.
        let raw = unsafe { &mut *self.raw() };
        write(&mut raw.mark, mark);
        write(&mut raw.priority, priority);
    }

    /// Takes off what belongs to this network namespace, as the kernel does when a packet leaves
    /// it (`skb_scrub_packet()` in [net/core/skbuff.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/skbuff.c)).
    #[inline(always)]
    pub(crate) fn scrub(&self) -> bool {
        self.set_class(0, 0);
        // SAFETY: as above.
        let raw = unsafe { &mut *self.raw() };
        write(&mut raw.tc_index, 0);
        write(&mut raw.queue_mapping, 0);
        self.pkt_type() == PACKET_HOST || self.ctx.change_type(PACKET_HOST).is_ok()
    }

    /// Puts the tag of the packet's class on it, for `to_underlay`.
    #[inline(always)]
    pub(crate) fn tag_class(&self) {
        let tag = self.class().tag();
        if self.tc_index() != tag {
            self.set_tc_index(tag);
        }
    }

    /// Leaves a number on the packet for the next hook. It does not leave the node.
    #[inline(always)]
    pub(crate) fn set_tc_index(&self, value: u32) {
        // SAFETY: as for the reads; the verifier allows this field to be written.
        write(unsafe { &mut (*self.raw()).tc_index }, value);
    }

    /// The number that [`set_arrival`](Self::set_arrival) left. Without one it is mostly 0.
    #[inline(always)]
    pub(crate) fn arrival(&self) -> u32 {
        // SAFETY: as for the other fields.
        unsafe { (*self.raw()).cb[ARRIVAL] }
    }

    /// Leaves a number on the packet for the next program at this hook.
    #[inline(always)]
    pub(crate) fn set_arrival(&self, number: u32) {
        // SAFETY: as for the reads; the verifier allows this field to be written.
        write(unsafe { &mut (*self.raw()).cb[ARRIVAL] }, number);
    }

    /// The flow hash the packet carries, if it does: its socket's, or one computed before.
    #[inline(always)]
    pub(crate) fn carried_hash(&self) -> Option<u32> {
        // SAFETY: as for the other fields.
        Some(unsafe { (*self.raw()).hash }).filter(|hash| *hash != 0)
    }

    /// The flow hash the kernel's vxlan device would use: the one the packet carries, else one
    /// computed from its headers. 0 when there is none.
    #[inline(always)]
    pub(crate) fn flow_hash(&self) -> u32 {
        // SAFETY: the helper takes the context, which is valid for the whole run of the program.
        self.carried_hash()
            .unwrap_or_else(|| unsafe { bpf_get_hash_recalc(self.raw()) })
    }

    /// MTU of the device the hook belongs to. Kernel 5.12.
    #[inline(always)]
    pub(crate) fn device_mtu(&self) -> u32 {
        let mut mtu = 0;
        // SAFETY: the helper takes the context, and a number it writes to. It is about the MTU:
        // other code checks that the packet fits it.
        unsafe { bpf_check_mtu(self.raw().cast(), 0, &raw mut mtu, 0, 0) };
        mtu
    }

    /// Makes the checksum at `at` follow a change of addresses (a sum) and of ports. UDP without a
    /// checksum stays so.
    #[inline(always)]
    pub(crate) fn update_checksum(
        &self,
        at: usize,
        addresses: u32,
        ports: [u32; 2],
        is_udp: bool,
    ) -> bool {
        let flags = if is_udp {
            u64::from(BPF_F_MARK_MANGLED_0)
        } else {
            0
        };
        let pseudo = flags | u64::from(BPF_F_PSEUDO_HDR);
        self.ctx
            .l4_csum_replace(at, 0, addresses.into(), pseudo)
            .is_ok()
            && (ports[0] == ports[1]
                || self
                    .ctx
                    .l4_csum_replace(at, ports[0].into(), ports[1].into(), flags | PORTS_LEN)
                    .is_ok())
    }

    /// Returns true if the kernel would not forward a packet that enters here with these addresses:
    /// it is for this host, or undeliverable.
    #[inline(always)]
    pub(crate) fn ends_here<F: Family>(&self, source: Addr, destination: Addr) -> bool {
        let mut route = F::route(source, destination);
        route.0.ifindex = self.ifindex();
        matches!(
            self.look_up(&mut route),
            BPF_FIB_LKUP_RET_NOT_FWDED | BPF_FIB_LKUP_RET_FWD_DISABLED
        )
    }

    /// Asks the kernel's FIB (`bpf_fib_lookup()` in [net/core/filter.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)), which puts device and
    /// next hop in place of what was asked. `BPF_FIB_LKUP_RET_*`, or what is none of these.
    #[inline(always)]
    pub(crate) fn look_up(&self, Route(route): &mut Route) -> u32 {
        let len = size_of_val(route) as i32;
        // SAFETY: `route` is a live value of the size given.
        unsafe { bpf_fib_lookup(self.raw().cast(), &raw mut *route, len, 0).cast_unsigned() as u32 }
    }

    /// Makes the tunnel device, into which the packet goes on, look its route up instead of taking
    /// the one it remembers for the peer: a packet that carries tunnel metadata made by a program
    /// is not for its cache (`ip_tunnel_dst_cache_usable()` in [include/net/ip_tunnels.h, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/ip_tunnels.h)). Of these
    /// metadata the device takes nothing else; to whom packets go its forwarding entries say.
    #[inline(always)]
    pub(crate) fn look_up_route(&self) {
        // SAFETY: numbers and unions of numbers, for which zero is a value.
        let key: bpf_tunnel_key = unsafe { core::mem::zeroed() };
        // SAFETY: the helper takes the context and a live value of the size given.
        unsafe {
            bpf_skb_set_tunnel_key(
                self.raw(),
                (&raw const key).cast_mut(),
                size_of::<bpf_tunnel_key>() as u32,
                0,
            )
        };
    }

    /// Sets the IPv4 address to which a tunnel device without a fixed far end sends the packet. The
    /// packet must not be queued before it leaves that device: the key is per CPU, and belongs to
    /// the last packet.
    #[inline(always)]
    pub(crate) fn set_tunnel_key(&self, remote: Addr) -> bool {
        // The form of `bpf_tunnel_key` that has only these two fields; in host order.
        let key: [u32; 2] = [0, u32::from_be_bytes(remote.v4_bytes())];
        let at: *const bpf_tunnel_key = (&raw const key).cast();
        // SAFETY: the helper takes the context, and reads a live value of the size given.
        unsafe {
            bpf_skb_set_tunnel_key(self.raw(), at.cast_mut(), size_of_val(&key) as u32, 0) == 0
        }
    }

    /// Returns the sum over the packet from the IP header on, if the device computed it
    /// (CHECKSUM_COMPLETE).
    #[inline(always)]
    pub(crate) fn whole_sum(&self) -> Option<u32> {
        // SAFETY: the helper takes the context, which is valid for the whole run of the program. It
        // adds nothing.
        u32::try_from(unsafe { bpf_csum_update(self.raw(), 0) }).ok()
    }

    /// Updates the sum over a whole packet (CHECKSUM_COMPLETE) after a change of its bytes. Packets
    /// without that sum stay as they are.
    #[inline(always)]
    pub(crate) fn update_whole_sum(&self, difference: u32) {
        // SAFETY: as above. The helper refuses a packet without such a sum.
        unsafe { bpf_csum_update(self.raw(), difference) };
    }

    /// Returns true if the kernel has verified the outermost checksum.
    #[inline(always)]
    pub(crate) fn has_verified_checksum(&self) -> bool {
        // SAFETY: as above.
        unsafe { bpf_csum_level(self.raw(), BPF_CSUM_LEVEL_QUERY.into()) >= 0 }
    }

    /// The outer headers are gone, and with them one verified checksum.
    #[inline(always)]
    pub(crate) fn drop_outer_checksum(&self) {
        // SAFETY: as above. It refuses where no checksum was verified, and then there is nothing to
        // take back.
        unsafe { bpf_csum_level(self.raw(), BPF_CSUM_LEVEL_DEC.into()) };
    }

    /// Takes out what stands between the Ethernet header and `len` bytes behind it; on failure the
    /// packet is as it was.
    #[inline(always)]
    pub(crate) fn shrink(&self, len: i32, mode: u32, flags: u64) -> bool {
        self.ctx.adjust_room(-len, mode, flags).is_ok()
    }

    /// Puts an Ethernet header in front of the packet of a device without Ethernet; on failure the
    /// packet is as it was. The bytes of the header are zero.
    #[inline(always)]
    pub(crate) fn add_link_header(&self) -> bool {
        // SAFETY: the helper takes the context, which is valid for the whole run of the program.
        unsafe { bpf_skb_change_head(self.raw(), ETH_LEN as u32, 0) == 0 }
    }

    /// Sees to room in front of the packet, without making use of it. An error if the packet is not
    /// as it was any more.
    #[inline(always)]
    pub(crate) fn reserve(&self, len: i32) -> Result<(), Reason> {
        let flags = u64::from(BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET);
        let has_room = self.grow(len, BPF_ADJ_ROOM_MAC, flags);
        if has_room && !self.shrink(len, BPF_ADJ_ROOM_MAC, flags) {
            Err(Reason::RewriteFailed)
        } else {
            Ok(())
        }
    }

    /// Makes room between the Ethernet header and the next; on failure the packet is as it was.
    #[inline(always)]
    pub(crate) fn grow(&self, len: i32, mode: u32, flags: u64) -> bool {
        self.ctx.adjust_room(len, mode, flags).is_ok()
    }
}

/// Arranges that the packet leaves by `oif` to the next hop, whose neighbour entry the kernel
/// resolves and keeps fresh. Takes effect with verdict redirect.
#[inline(always)]
pub(crate) fn redirect_neigh<F: Family>(oif: u32, next_hop: Addr) {
    redirect_to_neighbour(oif, F::next_hop(next_hop));
}

/// The same to a next hop as the kernel has it, which may be of the other family.
#[inline(always)]
pub(crate) fn redirect_to_neighbour(oif: u32, next_hop: NextHop) {
    let mut room = MaybeUninit::uninit();
    let params = lay_out(&mut room, next_hop);
    // SAFETY: `params` is a live value of the size given; flags must be zero.
    unsafe { bpf_redirect_neigh(oif, params, size_of::<bpf_redir_neigh>() as i32, 0) };
}

/// The argument of `bpf_redirect_neigh` on the stack: `front` puts the address at a multiple of
/// eight bytes.
#[repr(C, align(8))]
struct NeighbourParams {
    front: u32,
    params: bpf_redir_neigh,
}

/// Writes every byte of the argument of `bpf_redirect_neigh`. Volatile, or the compiler writes two
/// words of it as one where they are not aligned for that, which the verifier takes nowhere on the
/// stack.
#[expect(
    clippy::cast_ptr_alignment,
    reason = "the room is aligned to eight bytes, and the address in it as asserted"
)]
#[inline(always)]
fn lay_out(room: &mut MaybeUninit<NeighbourParams>, next_hop: NextHop) -> *mut bpf_redir_neigh {
    const ADDRESS: usize = offset_of!(bpf_redir_neigh, __bindgen_anon_1);
    const {
        assert!((offset_of!(NeighbourParams, params) + ADDRESS).is_multiple_of(align_of::<u64>()));
    };
    const { assert!(size_of::<bpf_redir_neigh>() == ADDRESS + size_of::<[u64; 2]>()) };
    let params = room
        .as_mut_ptr()
        .cast::<u8>()
        .wrapping_add(offset_of!(NeighbourParams, params));
    let address = params.wrapping_add(ADDRESS).cast::<u64>();
    // SAFETY: the family is the first word of the struct, in the room.
    unsafe { write_volatile(params.cast::<u32>(), next_hop.family) };
    // SAFETY: the address is in the room, and aligned as shown above.
    unsafe { write_volatile(address, next_hop.address[0]) };
    // SAFETY: its other half.
    unsafe { write_volatile(address.wrapping_add(1), next_hop.address[1]) };
    params.cast()
}

/// Arranges that the packet is put into the other end of the veth `ifindex`, in its network
/// namespace (`skb_do_redirect()` in [net/core/filter.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)). Takes effect with verdict
/// redirect.
#[inline(always)]
pub(crate) fn redirect_peer(ifindex: u32) {
    // SAFETY: the helper takes numbers.
    unsafe { bpf_redirect_peer(ifindex, 0) };
}

/// Arranges that the packet leaves by `ifindex` with the Ethernet addresses it has. Takes effect
/// with verdict redirect.
#[inline(always)]
pub(crate) fn redirect(ifindex: u32) {
    // SAFETY: the helper takes numbers.
    unsafe { bpf_redirect(ifindex, 0) };
}

/// Arranges that the packet comes in by `ifindex`. Takes effect with verdict redirect.
#[inline(always)]
pub(crate) fn redirect_ingress(ifindex: u32) {
    // SAFETY: the helper takes numbers.
    unsafe { bpf_redirect(ifindex, u64::from(BPF_F_INGRESS)) };
}

/// Writes one field of the context. The write is volatile, because the verifier refuses a single
/// write to two neighbouring fields.
#[inline(always)]
fn write(field: &mut u32, value: u32) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(field, value) };
}

/// The last word of the control block that programs may use. In the kernel it is behind what IP
/// keeps there (`struct inet_skb_parm`, [include/net/ip.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/ip.h)).
const ARRIVAL: usize = 4;

/// `pkt_type` of a frame for this host.
pub(crate) const PACKET_HOST: u32 = 0;

/// Length of the two ports, in the flags of the checksum helper.
const PORTS_LEN: u64 = 4;
