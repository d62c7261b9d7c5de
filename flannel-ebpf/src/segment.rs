//! How large a packet is on the wire once the kernel has cut it into segments.

use flannel_common::{
    packet::{PROTO_TCP, PROTO_UDP, UDP_LEN, ipv4_header_len, outer_segment_len},
    reason::Reason,
};

use crate::skb::Skb;

/// The largest outer packet (IPv4 total length) that an inner frame becomes.
///
/// `frame_len` is the frame's length without outer headers; the inner IPv4 header starts at `ip_at` of the packet as
/// it is now, with `version_ihl` as its first byte and `protocol` in it.
#[inline(always)]
pub(crate) fn segment_len(
    skb: &Skb,
    frame_len: u32,
    ip_at: usize,
    version_ihl: u8,
    protocol: u8,
) -> Result<u32, Reason> {
    let payload = skb.gso_size();
    if payload == 0 {
        return Ok(outer_segment_len(frame_len, 0, 0));
    }
    let ip = ipv4_header_len(version_ihl);
    let transport = match protocol {
        PROTO_TCP => {
            let offset: u8 = skb.load(ip_at + ip as usize + 12).ok_or(Reason::Malformed)?;
            u32::from(offset >> 4) * 4
        }
        PROTO_UDP => UDP_LEN as u32,
        _ => return Err(Reason::GsoOther),
    };
    Ok(outer_segment_len(frame_len, ip + transport, payload))
}
