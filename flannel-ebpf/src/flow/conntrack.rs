//! The conntrack state of a packet, read from kernel memory, because no helper of TC programs
//! returns it. Where the kernel's layout is unknown, or its memory may not be read, the state is
//! unknown.
//!
//! A packet has no entry if conntrack considers it invalid, or if conntrack is not active in this
//! network namespace. Netfilter's hooks show the second: conntrack registers there only while
//! something in the namespace needs it (`nf_ct_netns_get()` in [net/netfilter/nf_conntrack_proto.c,
//! Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_conntrack_proto.c)).

use flannel_common::{
    abi::{kernel::KernelLayout, reason::Reason},
    flow::{
        connection::{ACKNOWLEDGEMENT_KNOWN, LIBERAL},
        pending::PendingPacket,
        window::are_within,
    },
    packet::PROTO_TCP,
    packet::inner::ParsedPacket,
};

use super::{layout::layout, netfilter::Hooks, scratch::FlowMaps};
use crate::{kernel_memory::read, packet::skb::Skb};

/// Lowest bits of `_nfct`: `enum ip_conntrack_info` of [nf_conntrack_common.h, Linux 6.1][common].
///
/// [common]:
/// https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter/nf_conntrack_common.h
const CTINFO: u64 = 7;
const ESTABLISHED: u64 = 0;
const ESTABLISHED_REPLY: u64 = 3;
const UNTRACKED: u64 = 7;

/// `NF_CT_EXT_HELPER`, the first of `enum nf_ct_ext_id` in every kernel
/// ([include/net/netfilter/nf_conntrack_extend.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/netfilter/nf_conntrack_extend.h)).
const HELPER_EXTENSION: u32 = 0;

/// Conntrack's priority at a hook (`NF_IP_PRI_CONNTRACK` of [include/uapi/linux/netfilter_ipv4.h,
/// Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter_ipv4.h)).
/// Any function with this priority counts as conntrack.
const PRIORITY: i32 = -200;
/// Functions searched before it.
const BEFORE: u64 = 16;

/// Returns true if conntrack has the packet in a connection, false if the state is unknown: then
/// the reverse flow has to prove it. Fails if conntrack calls the packet invalid. A packet that no
/// conntrack has seen may be learned unchanged.
#[inline(always)]
pub(crate) fn is_tracked<F: FlowMaps>(
    skb: &Skb,
    pending: &PendingPacket<F::Address>,
    packet: &ParsedPacket<F::Address>,
) -> Result<bool, Reason> {
    let Some(nfct) = nfct(skb) else {
        return Ok(false);
    };
    let is_tcp = packet.key.protocol == u32::from(PROTO_TCP);
    let agrees = match nfct {
        0 => pending.key.same_tuple(&packet.key) && !has_conntrack::<F>(skb).unwrap_or(true),
        UNTRACKED => pending.key.same_tuple(&packet.key),
        tracked if has_extension(tracked & !CTINFO) => return Err(Reason::ConntrackExtension),
        tracked => !is_tcp || matches!(tracked & CTINFO, ESTABLISHED | ESTABLISHED_REPLY),
    };
    if agrees {
        Ok(true)
    } else {
        Err(Reason::Untracked)
    }
}

/// Returns true if conntrack has the packet as a reply: it has seen both directions of the
/// connection. False where the kernel's layout is not known.
#[inline(always)]
pub(crate) fn is_reply(skb: &Skb) -> bool {
    nfct(skb).is_some_and(|nfct| nfct & !CTINFO != 0 && nfct & CTINFO == ESTABLISHED_REPLY)
}

/// Conntrack's view of the windows of a packet's TCP connection.
pub(super) enum WindowCheck {
    /// Conntrack has no entry, so it checks no window.
    Absent,
    /// The kernel's layout is not known.
    Unknown,
    /// The entry.
    Known(TcpState),
}

/// The state of the packet's direction, and what both have.
pub(super) struct TcpState {
    /// Shift of the windows in packets of this direction.
    pub(super) scale: u8,
    /// The windows of both directions are not checked.
    pub(super) is_liberal: bool,
    /// A genuine RST of this direction would look too old, or soon will.
    pub(super) is_behind: bool,
}

/// `struct ip_ct_tcp_state`, one for each direction.
#[repr(C)]
#[derive(Clone, Copy)]
struct DirectionState {
    end: u32,
    highest_end: u32,
    largest_window: u32,
    highest_acknowledged: u32,
    scale: u8,
    flags: u8,
    padding: [u8; 2],
}

const STATE_LEN: u64 = size_of::<DirectionState>() as u64;

/// Bytes behind the last acknowledgement that conntrack has seen, from which on it forgets it.
const BEHIND: u32 = 1 << 29;

/// Returns what conntrack says about the windows of the packet's connection.
#[inline(always)]
pub(super) fn window_check(skb: &Skb, sequence: u32) -> WindowCheck {
    let layout = layout();
    let Some(nfct) = nfct(skb) else {
        return WindowCheck::Unknown;
    };
    if nfct & !CTINFO == 0 {
        return WindowCheck::Absent;
    }
    if layout.tcp_states == 0 {
        return WindowCheck::Unknown;
    }
    let at = (nfct & !CTINFO) + u64::from(layout.tcp_states);
    let (own_at, other_at) = if nfct & CTINFO == ESTABLISHED {
        (at, at + STATE_LEN)
    } else {
        (at + STATE_LEN, at)
    };
    let states = read::<DirectionState>(own_at).zip(read::<DirectionState>(other_at));
    let Some((own, other)) = states else {
        return WindowCheck::Unknown;
    };
    WindowCheck::Known(TcpState {
        scale: own.scale,
        is_liberal: own.flags & other.flags & LIBERAL != 0,
        is_behind: other.flags & ACKNOWLEDGEMENT_KNOWN != 0
            && !are_within(u32::from_be(sequence), other.highest_acknowledged, BEHIND),
    })
}

#[inline(always)]
fn nfct(skb: &Skb) -> Option<u64> {
    let layout = layout();
    if layout.nfct == 0 {
        None
    } else {
        read(skb.raw() as u64 + u64::from(layout.nfct))
    }
}

/// True if a conntrack entry has a helper, which reads and rewrites payload, or a timeout policy of
/// its own, which may be shorter than what was seen is trusted. False where the kernel's layout is
/// not known.
#[inline(always)]
fn has_extension(entry: u64) -> bool {
    let layout = layout();
    if layout.extensions == 0 {
        return false;
    }
    match read::<u64>(entry + u64::from(layout.extensions)) {
        None | Some(0) => false,
        Some(extensions) => {
            has(extensions, &layout, HELPER_EXTENSION)
                || layout.timeout_extension != 0
                    && has(extensions, &layout, layout.timeout_extension)
        }
    }
}

/// True if the extension with this number, which is a pointer, is there and not null.
#[inline(always)]
fn has(extensions: u64, layout: &KernelLayout, number: u32) -> bool {
    let offset: Option<u8> = read(extensions + u64::from(layout.extension_offsets + number));
    let pointer = |offset: u8| read::<u64>(extensions + u64::from(offset));
    offset
        .filter(|offset| *offset != 0)
        .and_then(pointer)
        .is_some_and(|pointer| pointer != 0)
}

/// Returns true if conntrack is at the first hook of the family in the packet's network namespace.
#[inline(always)]
fn has_conntrack<F: FlowMaps>(skb: &Skb) -> Option<bool> {
    let functions = Hooks::of::<F>(skb)?.functions(0)?;
    for place in 0..BEFORE {
        if place >= functions.count {
            return Some(false);
        }
        let priority = functions.priority(place)?;
        if priority >= PRIORITY {
            return Some(priority == PRIORITY);
        }
    }
    None
}
