//! The TCP or UDP checksum of a packet that is about to be replayed.
//!
//! Conntrack verifies it where a packet enters (`nf_checksum()`, called by `tcp_error()` of
//! [net/netfilter/nf_conntrack_proto_tcp.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_conntrack_proto_tcp.c) and
//! `udp_error()` of [net/netfilter/nf_conntrack_proto_udp.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_conntrack_proto_udp.c)),
//! calls a packet with a wrong one invalid, and does not translate it. A socket leaves the checksum
//! of its packets to the device. Of other packets the device or the kernel may have verified it; if
//! not, this module verifies it. A packet that is too long for that is the kernel's.

use core::{
    mem::{offset_of, size_of},
    ptr::null_mut,
};

use aya_ebpf::{
    helpers::generated::{bpf_csum_diff, bpf_skb_load_bytes},
    macros::map,
    maps::PerCpuArray,
};
use flannel_common::{
    abi::{maps::ONLY, reason::Reason},
    packet::ETH_LEN,
    packet::{checksum::is_right, inner::ParsedPacket},
};

use super::scratch::{self, FlowMaps};
use crate::packet::skb::Skb;

/// Bytes that the helper sums in one call before Linux 6.13 (`struct bpf_scratchpad` in
/// [net/core/filter.c, Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)).
const CHUNK: usize = 512;
/// Bytes that are summed at most: more than a packet has with the usual MTU.
const SUMMED_MAX: usize = 4 * CHUNK;

/// A part of a transport header with its payload, and zeros up to the end of a word.
#[repr(C, align(4))]
struct Summed {
    bytes: [u8; CHUNK],
    end: [u8; 4],
    /// The sum of the parts so far: the stack is too small for it.
    sum: u32,
}

const _: () = assert!(offset_of!(Summed, end) == CHUNK);

/// Private to the programs: not pinned.
#[map]
static SUMMED: PerCpuArray<Summed> = PerCpuArray::with_max_entries(1, 0);

/// Fails for a packet whose checksum conntrack may find wrong.
#[inline(always)]
pub(crate) fn check<F: FlowMaps>(
    skb: &Skb,
    packet: &ParsedPacket<F::Address>,
) -> Result<(), Reason> {
    let is_left_to_the_device =
        skb.gso_size() != 0 || packet.awaits_checksum(size_of::<F>() as u16);
    if is_left_to_the_device || packet.has_no_checksum() || is_verified::<F>(skb) {
        Ok(())
    } else {
        Err(Reason::ChecksumUnverified)
    }
}

/// Not inlined: few packets come to this, and the stack of one program (512 bytes) is too small.
#[inline(never)]
fn is_verified<F: FlowMaps>(skb: &Skb) -> bool {
    if skb.has_verified_checksum() {
        return true;
    }
    if let Some(whole) = skb.whole_sum() {
        return scratch::get::<F>().is_ok_and(|scratch| {
            is_right(
                scratch.frame.ip().sum_behind(whole),
                scratch.packet.pseudo_header(size_of::<F>() as u16),
            )
        });
    }
    is_right_by_itself::<F>(skb).unwrap_or(false)
}

/// Sums the transport header and its payload, if they are not too long: whole chunks, then a last
/// one, which is not empty. Its place is computed from the length, so that for the verifier all
/// ways to it are one.
#[inline(always)]
fn is_right_by_itself<F: FlowMaps>(skb: &Skb) -> Option<bool> {
    // SAFETY: the look-up gave this CPU's own element.
    let summed = unsafe { &mut *SUMMED.get_ptr_mut(ONLY)? };
    let len = usize::from(
        scratch::get::<F>()
            .ok()?
            .packet
            .transport_len(size_of::<F>() as u16),
    );
    if len > SUMMED_MAX {
        return None;
    }
    let (start, last) = (ETH_LEN + size_of::<F>(), len.wrapping_sub(1));
    let whole = last & !(CHUNK - 1);
    summed.sum = 0;
    let mut at = 0;
    while at < SUMMED_MAX && at < whole {
        add(skb, start + at, CHUNK as u32, summed)?;
        at += CHUNK;
    }
    add(skb, start + whole, (last & (CHUNK - 1)) as u32 + 1, summed)?;
    // Looked up again: the stack is too small for the reference.
    let packet = &scratch::get::<F>().ok()?.packet;
    Some(is_right(
        summed.sum.into(),
        packet.pseudo_header(size_of::<F>() as u16),
    ))
}

/// Adds `len` bytes of the packet, up to a chunk, to the sum.
#[inline(always)]
fn add(skb: &Skb, offset: usize, len: u32, summed: &mut Summed) -> Option<()> {
    let to = (&raw mut *summed).cast::<u8>();
    // SAFETY: there is room for `CHUNK` bytes.
    if unsafe { bpf_skb_load_bytes(skb.raw().cast(), offset as u32, to.cast(), len) } != 0 {
        return None;
    }
    let behind: *mut [u8; 4] = to.wrapping_add(len as usize).cast();
    // SAFETY: behind the bytes are four more.
    unsafe { behind.write([0; 4]) };
    let words_len = (len + 3) & !3;
    // SAFETY: these bytes are valid for reads, and the helper takes up to `CHUNK` of them.
    let sum = unsafe { bpf_csum_diff(null_mut(), 0, to.cast(), words_len, summed.sum) };
    summed.sum = u32::try_from(sum).ok()?;
    Some(())
}
