//! Differences between the address families in mode `fast`: the maps, and the scratch memory a
//! program works in.

use core::arch::asm;

use aya_ebpf::{
    macros::map,
    maps::{Array, LruHashMap, PerCpuArray},
};
use flannel_common::{
    abi::{maps::ONLY, reason::Reason, reception::ReceptionKey},
    flow::Flow,
    flow::{
        class::PathKey, flow_hint::FlowHint, flow_key::FlowKey, pending::PendingPacket,
        probation::ProbationSlot,
    },
    packet::ETH_LEN,
    packet::{
        ethernet::EthernetHeader,
        inner::{Frame, InnerHeader, ParsedPacket},
        ip::{Ipv4Header, Ipv6Header},
        outer::OuterHeaders,
    },
};

use crate::{
    maps::{
        ENTRANCES, ENTRANCES6, FLOW_HINTS, FLOW_HINTS6, FLOWS, FLOWS6, PENDING, PENDING6,
        PROBATION, PROBATION6,
    },
    packet::{family::Family, skb::Skb},
    tunnel::{ecmp::PendingEcmp, redirected::Redirected},
};

/// Private to the programs: not pinned.
#[map]
static SCRATCH: PerCpuArray<Scratch<Ipv4Header>> = PerCpuArray::with_max_entries(1, 0);

/// The same for IPv6.
#[map]
static SCRATCH6: PerCpuArray<Scratch<Ipv6Header>> = PerCpuArray::with_max_entries(1, 0);

/// The maps of mode `fast` for one address family.
pub(crate) trait FlowMaps: Family + InnerHeader {
    fn flows() -> &'static LruHashMap<FlowKey<Self::Address>, Flow<Self::Address>>;
    fn probation() -> &'static Array<ProbationSlot<Self::Address>>;
    fn hints() -> &'static Array<FlowHint>;
    fn pending() -> &'static Array<PendingPacket<Self::Address>>;
    fn entrances() -> &'static LruHashMap<FlowKey<Self::Address>, u32>;
    fn scratch() -> &'static PerCpuArray<Scratch<Self>>;
}

macro_rules! flow_maps {
    (
        $family:ty,
        $flows:ident,
        $probation:ident,
        $hints:ident,
        $pending:ident,
        $entrances:ident,
        $scratch:ident
    ) => {
        impl FlowMaps for $family {
            #[inline(always)]
            fn flows() -> &'static LruHashMap<FlowKey<Self::Address>, Flow<Self::Address>> {
                &$flows
            }

            #[inline(always)]
            fn probation() -> &'static Array<ProbationSlot<Self::Address>> {
                &$probation
            }

            #[inline(always)]
            fn hints() -> &'static Array<FlowHint> {
                &$hints
            }

            #[inline(always)]
            fn pending() -> &'static Array<PendingPacket<Self::Address>> {
                &$pending
            }

            #[inline(always)]
            fn entrances() -> &'static LruHashMap<FlowKey<Self::Address>, u32> {
                &$entrances
            }

            #[inline(always)]
            fn scratch() -> &'static PerCpuArray<Scratch<Self>> {
                &$scratch
            }
        }
    };
}

flow_maps!(
    Ipv4Header, FLOWS, PROBATION, FLOW_HINTS, PENDING, ENTRANCES, SCRATCH
);
flow_maps!(
    Ipv6Header,
    FLOWS6,
    PROBATION6,
    FLOW_HINTS6,
    PENDING6,
    ENTRANCES6,
    SCRATCH6
);

/// Working memory of a program, off its stack of 512 bytes: one for each CPU, for as long as a
/// program runs.
#[repr(C)]
pub(crate) struct Scratch<F: InnerHeader> {
    /// The packet's headers.
    pub(crate) frame: Frame<F>,
    /// The same, parsed.
    pub(crate) packet: ParsedPacket<F::Address>,
    /// A copy of its flow, or the flow to be written.
    pub(crate) flow: Flow<F::Address>,
    /// Keys of look-ups that are not the packet's own.
    pub(crate) keys: [FlowKey<F::Address>; 2],
    /// Headers written in front of a packet for the tunnel.
    pub(crate) sent: Encapsulated<F>,
    /// Headers written over the first bytes of a packet without a tunnel.
    pub(crate) plain: PlainHeaders<F>,
    /// State of the random numbers by which packets are sampled.
    pub(crate) random: u32,
    /// Outer identifications used so far on this CPU.
    pub(crate) identification: u16,
    /// The open question of a packet whose ECMP path is not chosen yet.
    pub(crate) ecmp: PendingEcmp,
    /// The packet redirected last.
    pub(crate) redirected: Redirected,
    /// Key of the path of a packet with a mark or a priority.
    pub(crate) path: PathKey,
    /// Key of the reception of a packet from a peer.
    pub(crate) reception: ReceptionKey,
}

/// Outer headers and the inner IP header behind them.
#[repr(C)]
pub(crate) struct Encapsulated<F> {
    pub(crate) outer: OuterHeaders<F>,
    pub(crate) ip: F,
}

/// Ethernet and IP header of a packet that leaves without a tunnel.
#[repr(C)]
pub(crate) struct PlainHeaders<F> {
    pub(crate) ethernet: EthernetHeader,
    pub(crate) ip: F,
}

/// Returns this CPU's scratch. A program takes it once: programs at TC hooks do not interrupt each
/// other, and none calls another.
#[inline(always)]
pub(crate) fn get<F: FlowMaps>() -> Result<&'static mut Scratch<F>, Reason> {
    let scratch = F::scratch()
        .get_ptr_mut(ONLY)
        .ok_or(Reason::NotConfigured)?;
    // SAFETY: the look-up gave this CPU's own element.
    Ok(unsafe { &mut *scratch })
}

/// Lets the compiler forget the contents of memory. Else it keeps fields that it has seen in
/// registers and on the stack, where each is a part of every state that the verifier remembers, and
/// a known number keeps states apart that are alike. Of what is read from memory, the verifier
/// knows nothing.
#[inline(always)]
pub(crate) fn forget<T>(place: *const T) {
    // SAFETY: the register keeps its value. For the compiler the memory may have changed.
    unsafe { asm!("{0} = {0}", in(reg) place, options(nostack, preserves_flags)) };
}

/// Another reference to the same place, whose contents the compiler does not know: it keeps what it
/// has read by a shared reference even over [`forget`].
#[inline(always)]
pub(crate) fn read_again<T>(place: &T) -> &T {
    let mut place: *const T = place;
    // SAFETY: the register keeps its value.
    unsafe { asm!("{0} = {0}", inout(reg) place, options(nostack, preserves_flags)) };
    // SAFETY: it is the value of a reference.
    unsafe { &*place }
}

impl<F: FlowMaps> Scratch<F> {
    /// Loads and parses a packet that has no outer headers, and a link header of `LINK` bytes:
    /// Ethernet or none.
    #[inline(always)]
    pub(crate) fn parse<const LINK: usize>(&mut self, skb: &Skb) -> Result<(), Reason> {
        if LINK == ETH_LEN {
            skb.load_frame(0, &mut self.frame)?;
        } else {
            skb.load_packet(&mut self.frame)?;
        }
        self.frame.read(
            skb.len() + (ETH_LEN - LINK) as u32,
            skb.ifindex(),
            &mut self.packet,
        )
    }
}
