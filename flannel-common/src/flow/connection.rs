//! Connections that the programs announce to the agent: TCP whose windows conntrack shall no longer
//! check.
//!
//! Conntrack does not see the packets that are replayed, so the next one that it does see lies
//! outside of the windows it knows. It calls such a packet invalid and does not translate it. The
//! agent therefore sets the flag `BE_LIBERAL` of this one connection by ctnetlink, as the kernel's
//! own flowtable does. The programs learn a TCP flow only from a packet whose conntrack entry has
//! the flag. An announcement that is lost, or an agent that is gone, costs speed and nothing else.

use core::mem::size_of;

use crate::{
    flow::flow_key::Address,
    packet::{addr::Addr, inner::ParsedPacket},
};

/// The value of `CONNECTIONS`: one direction of a connection, as conntrack sees it before it
/// translates.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Source address.
    pub source: Addr,
    /// Destination address.
    pub destination: Addr,
    /// Source port and destination port, as they lie in the packet.
    pub ports: u32,
}

impl Connection {
    /// The connection at the beginning of what came out of the ring buffer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (source, rest) = bytes.split_first_chunk()?;
        let (destination, rest) = rest.split_first_chunk()?;
        let ports = u32::from_ne_bytes(*rest.first_chunk()?);
        Some(Self {
            source: Addr(*source),
            destination: Addr(*destination),
            ports,
        })
    }
}

/// Bytes of the ring buffer: more than 1,400 announcements.
pub const CONNECTIONS_BYTES: u32 = 1 << 16;

/// The amounts that a packet adds to the count of an expected flow: with payload, and without.
const WEIGHTS: [u64; 2] = [3, 1];

/// The count from which on packets of an expected flow are recorded, and with which its connection
/// is announced. One request does not reach it: the acknowledgements of the SYN-ACK and of the
/// response, and the request itself, count five. Two requests do, and so do one request and three
/// acknowledgements of what was sent for it. To wake the agent takes longer than the rest of a
/// connection of one request.
pub const RECORDED_FROM: u64 = 6;

/// After each further 64 segments with payload it is announced once more: the announcement may have
/// been lost.
const ANNOUNCED_AGAIN: u64 = 64 * WEIGHTS[0];

/// Returns what a packet adds to the count of its expected flow.
#[inline(always)]
pub const fn weight<A: Address>(packet: &ParsedPacket<A>) -> u64 {
    if packet.fingerprint.length as u32 > packet.headers {
        WEIGHTS[0]
    } else {
        WEIGHTS[1]
    }
}

/// Returns true if a connection is announced with the packet that made the count of its expected
/// flow `count`.
#[inline(always)]
pub const fn is_announced(count: u64, weight: u64) -> bool {
    let before = count.saturating_sub(weight);
    before < RECORDED_FROM && count >= RECORDED_FROM
        || before / ANNOUNCED_AGAIN != count / ANNOUNCED_AGAIN
}

/// `IP_CT_TCP_FLAG_BE_LIBERAL`: conntrack does not check the window of this direction.
pub const LIBERAL: u8 = 0x08;

/// `IP_CT_TCP_FLAG_MAXACK_SET`: conntrack compares the number of an RST with the highest
/// acknowledgement it has seen of this direction. After two gibibytes that it has not seen, a
/// genuine RST looks too old.
pub const ACKNOWLEDGEMENT_KNOWN: u8 = 0x20;

const _: () = assert!(size_of::<Connection>() == 36);

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u64 = WEIGHTS[0];
    const ACK: u64 = WEIGHTS[1];

    /// The places of the packets with which a connection is announced, of packets with these
    /// weights.
    fn announced_with(weights: &[u64]) -> Vec<usize> {
        let mut count = 0;
        let is_announced = |weight: &u64| {
            count += weight;
            is_announced(count, *weight)
        };
        let announced: Vec<bool> = weights.iter().map(is_announced).collect();
        (0..weights.len())
            .filter(|place| announced[*place])
            .collect()
    }

    #[test]
    fn a_connection_of_one_request_is_not_announced() {
        assert_eq!(announced_with(&[ACK, DATA, ACK]), [0; 0]);
        assert_eq!(
            announced_with(&[DATA, ACK]),
            [0; 0],
            "the request acknowledges the SYN-ACK"
        );
    }

    #[test]
    fn a_longer_one_is_announced_with_its_second_request_or_third_acknowledgement_of_data() {
        assert_eq!(announced_with(&[ACK, DATA, DATA, DATA]), [2]);
        assert_eq!(announced_with(&[ACK, DATA, ACK, ACK, ACK]), [3]);
        assert_eq!(
            announced_with(&[ACK; 10]),
            [5],
            "data flow in the other direction alone"
        );
    }

    #[test]
    fn an_announcement_that_was_lost_is_repeated() {
        assert_eq!(announced_with(&[DATA; 130]), [1, 63, 127]);
    }
}
