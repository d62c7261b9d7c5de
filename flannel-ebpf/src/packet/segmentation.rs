//! The size of a packet on the wire once the kernel has cut it into segments.

use flannel_common::{
    abi::reason::Reason,
    packet::outer::OuterHeaders,
    packet::{PROTO_TCP, PROTO_UDP, UDP_LEN, outer_segment_len},
};

use super::{family::Family, load_buf::LoadBuf, skb::Skb};

/// Returns the largest outer packet (IPv4 total length, or the whole IPv6 packet) that an inner
/// frame becomes, in bytes.
///
/// `frame_len` is the frame's length without outer headers; the inner header `ip` stands at `ip_at`
/// of the packet as it is now. In a packet that will be segmented, TCP or UDP must follow that
/// header directly.
#[inline(always)]
pub(crate) fn segment_len<F: Family>(
    skb: &Skb,
    frame_len: u32,
    ip_at: usize,
    ip: &F,
) -> Result<u32, Reason> {
    let overhead = OuterHeaders::<F>::OVERHEAD as u32;
    let payload = skb.gso_size();
    if payload == 0 {
        return Ok(outer_segment_len(overhead, frame_len, 0, 0));
    }
    let transport = match ip.protocol() {
        PROTO_TCP => {
            let at = ip_at + ip.header_len() as usize + 12;
            let offset: &u8 = skb.load(at, LoadBuf::Transport).ok_or(Reason::Malformed)?;
            u32::from(offset >> 4) * 4
        }
        PROTO_UDP => UDP_LEN as u32,
        _ => return Err(Reason::GsoOther),
    };
    Ok(outer_segment_len(
        overhead,
        frame_len,
        ip.header_len() + transport,
        payload,
    ))
}
