//! Parameters of an address family beyond its header: its part of the node's data, its peer map,
//! and its forms in the arguments of kernel helpers.

use aya_ebpf::{
    bindings::{BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6, bpf_fib_lookup},
    helpers::generated::bpf_get_smp_processor_id,
    maps::{Array, PerCpuArray},
};
use core::ptr::read_volatile;
use flannel_common::{
    abi::{
        families::Families,
        fast::FastConfig,
        kernel::KernelLayout,
        node::{FamilyConfig, NodeConfig},
        peer::PeerEntry,
        traffic::PeerTraffic,
    },
    packet::{
        addr::Addr,
        ip::{IpHeader, Ipv4Header, Ipv6Header},
    },
};

use crate::maps::{PEER_TRAFFIC, PEER_TRAFFIC6, PEERS, PEERS6};

/// The agent sets it when it loads the object; the verifier takes it for a constant, and removes
/// the code of the other family.
#[unsafe(no_mangle)]
static FAMILIES: Families = Families::BOTH;

#[inline(always)]
fn families() -> Families {
    // SAFETY: a static is valid for reads. Volatile, because the agent changes it before the object
    // is loaded.
    unsafe { read_volatile(&raw const FAMILIES) }
}

/// The header of IPv4, for the macros below.
pub(crate) type V4 = Ipv4Header;
/// The header of IPv6, for the macros below.
pub(crate) type V6 = Ipv6Header;

/// Calls `$function::<F>(..)` with the IP header of the packet's address family, or evaluates
/// `$other`, also for a family that is off.
macro_rules! by_family {
    ($skb:expr, $function:ident($($argument:expr),*), else $other:expr) => {
        match $skb.protocol() {
            <$crate::packet::family::V4 as $crate::packet::family::Family>::PROTOCOL
                if <$crate::packet::family::V4 as $crate::packet::family::Family>::is_on() =>
            {
                $function::<$crate::packet::family::V4>($($argument),*)
            }
            <$crate::packet::family::V6 as $crate::packet::family::Family>::PROTOCOL
                if <$crate::packet::family::V6 as $crate::packet::family::Family>::is_on() =>
            {
                $function::<$crate::packet::family::V6>($($argument),*)
            }
            _ => $other,
        }
    };
}
pub(crate) use by_family;

/// As [`by_family!`], also for a family that is off.
macro_rules! by_any_family {
    ($skb:expr, $function:ident($($argument:expr),*), else $other:expr) => {
        match $skb.protocol() {
            <$crate::packet::family::V4 as $crate::packet::family::Family>::PROTOCOL => {
                $function::<$crate::packet::family::V4>($($argument),*)
            }
            <$crate::packet::family::V6 as $crate::packet::family::Family>::PROTOCOL => {
                $function::<$crate::packet::family::V6>($($argument),*)
            }
            _ => $other,
        }
    };
}
pub(crate) use by_any_family;

/// An address family, by its header.
pub(crate) trait Family: IpHeader + 'static {
    /// EtherType as `__sk_buff` shows it.
    const PROTOCOL: u32 = u16::from_ne_bytes(Self::ETHERTYPE) as u32;

    /// The flag of `bpf_skb_adjust_room` for an outer header of this family.
    const ENCAP_L3: u64;

    /// True if a packet may be copied on its way to the tunnel device, and then is another skb than
    /// was recorded: IPv6 routing makes headroom only where it sends, and copies packets that no
    /// socket here has sent. Packets of TCP have headroom.
    const IS_COPIED_FOR_ROOM: bool;

    /// Returns true if the node's network has addresses of this family.
    fn is_on() -> bool;

    /// The peers of the family, by subnet number.
    fn peers() -> &'static Array<PeerEntry>;

    /// The counters of these peers, by their slot.
    fn traffic() -> &'static PerCpuArray<PeerTraffic>;

    /// The family on this node.
    fn config(node: &NodeConfig) -> &FamilyConfig;

    /// MTU of the family's tunnel device.
    fn tunnel_mtu(fast: &FastConfig) -> u32;

    /// Returns the offset of the family's netfilter hooks in the kernel's `struct net`.
    fn hooks(layout: &KernelLayout) -> u32;

    /// Returns the identification of the first of `segments` outer packets, 0 where the header has
    /// none: the kernel counts on from it for each segment (`inet_gso_segment()` in
    /// [net/ipv4/af_inet.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/af_inet.c)). It separates the
    /// fragments of one packet from those of another, so the numbers of one CPU repeat only after
    /// 65,536 packets.
    fn identification(sent: &mut u16, segments: u32) -> u16;

    /// The next hop with this address.
    fn next_hop(addr: Addr) -> NextHop;

    /// Source and destination, as `bpf_fib_lookup` takes them.
    fn route(source: Addr, destination: Addr) -> Route;
}

/// Argument and result of `bpf_fib_lookup`. Its addresses are at multiples of eight bytes, as the
/// verifier demands of words on the stack.
#[repr(C, align(8))]
pub(crate) struct Route(pub(crate) bpf_fib_lookup);

/// A next hop: its address family, and its address in network order. Of the latter IPv4 uses the
/// first four bytes; the others are zero, because Linux before 6.3 lets a helper read no byte of
/// the stack that was never written.
#[derive(Clone, Copy)]
pub(crate) struct NextHop {
    pub(crate) family: u32,
    pub(crate) address: [u64; 2],
}

impl NextHop {
    /// A next hop from the numbers of the kernel's structs (`bpf_fib_lookup`, `bpf_redir_neigh`).
    #[inline(always)]
    pub(crate) const fn new(family: u32, [a, b, c, d]: [u32; 4]) -> Self {
        Self {
            family,
            address: [pair(a, b), pair(c, d)],
        }
    }
}

/// Eight bytes of memory, of four and the four behind them.
#[inline(always)]
const fn pair(first: u32, second: u32) -> u64 {
    let (low, high) = if cfg!(target_endian = "little") {
        (first, second)
    } else {
        (second, first)
    };
    low as u64 | ((high as u64) << u32::BITS)
}

impl Family for Ipv4Header {
    const ENCAP_L3: u64 = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 as u64;
    const IS_COPIED_FOR_ROOM: bool = false;

    #[inline(always)]
    fn is_on() -> bool {
        families().v4 != 0
    }

    #[inline(always)]
    fn peers() -> &'static Array<PeerEntry> {
        &PEERS
    }

    #[inline(always)]
    fn traffic() -> &'static PerCpuArray<PeerTraffic> {
        &PEER_TRAFFIC
    }

    #[inline(always)]
    fn config(node: &NodeConfig) -> &FamilyConfig {
        &node.v4
    }

    #[inline(always)]
    fn tunnel_mtu(fast: &FastConfig) -> u32 {
        fast.tunnel_mtu
    }

    #[inline(always)]
    fn hooks(layout: &KernelLayout) -> u32 {
        layout.hooks_v4
    }

    #[inline(always)]
    fn identification(sent: &mut u16, segments: u32) -> u16 {
        if *sent == 0 {
            *sent = first_of_this_cpu();
        }
        let first = *sent;
        *sent = first.wrapping_add(segments as u16);
        first
    }

    #[inline(always)]
    fn next_hop(addr: Addr) -> NextHop {
        NextHop::new(AF_INET, [u32::from_ne_bytes(addr.v4_bytes()), 0, 0, 0])
    }

    #[inline(always)]
    fn route(source: Addr, destination: Addr) -> Route {
        let mut route = no_route(AF_INET);
        route.0.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(source.v4_bytes());
        route.0.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(destination.v4_bytes());
        route
    }
}

impl Family for Ipv6Header {
    const ENCAP_L3: u64 = BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 as u64;
    const IS_COPIED_FOR_ROOM: bool = true;

    #[inline(always)]
    fn is_on() -> bool {
        families().v6 != 0
    }

    #[inline(always)]
    fn peers() -> &'static Array<PeerEntry> {
        &PEERS6
    }

    #[inline(always)]
    fn traffic() -> &'static PerCpuArray<PeerTraffic> {
        &PEER_TRAFFIC6
    }

    #[inline(always)]
    fn config(node: &NodeConfig) -> &FamilyConfig {
        &node.v6
    }

    #[inline(always)]
    fn tunnel_mtu(fast: &FastConfig) -> u32 {
        fast.tunnel_mtu6
    }

    #[inline(always)]
    fn hooks(layout: &KernelLayout) -> u32 {
        layout.hooks_v6
    }

    #[inline(always)]
    fn identification(_: &mut u16, _: u32) -> u16 {
        0
    }

    #[inline(always)]
    fn next_hop(addr: Addr) -> NextHop {
        NextHop::new(AF_INET6, words(addr))
    }

    #[inline(always)]
    fn route(source: Addr, destination: Addr) -> Route {
        let mut route = no_route(AF_INET6);
        route.0.__bindgen_anon_3.ipv6_src = words(source);
        route.0.__bindgen_anon_4.ipv6_dst = words(destination);
        route
    }
}

#[inline(always)]
const fn words(addr: Addr) -> [u32; 4] {
    let b = addr.0;
    [
        u32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
        u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        u32::from_ne_bytes([b[8], b[9], b[10], b[11]]),
        u32::from_ne_bytes([b[12], b[13], b[14], b[15]]),
    ]
}

#[inline(always)]
const fn no_route(family: u32) -> Route {
    // SAFETY: numbers and unions of numbers, for which zero is a value.
    let mut route: Route = unsafe { core::mem::zeroed() };
    route.0.family = family as u8;
    route
}

/// Returns the first identification of this CPU, far from those of others: several CPUs may send
/// one flow.
#[inline(always)]
fn first_of_this_cpu() -> u16 {
    // SAFETY: the helper takes nothing and returns a number.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    (cpu as u16).wrapping_mul(APART) | 1
}

/// 2^16 divided by the golden ratio: multiples of it lie evenly apart.
const APART: u16 = 40_503;

const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
