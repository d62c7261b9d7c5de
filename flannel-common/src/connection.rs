//! Connections that the programs announce to the agent: TCP whose windows conntrack shall no longer
//! check.
//!
//! Conntrack does not see the packets that are replayed, so the next one that it does see lies
//! outside of the windows it knows. It calls such a packet invalid and does not translate it. The
//! agent therefore sets the flag `BE_LIBERAL` of this one connection by ctnetlink, as the kernel's
//! own flowtable does. The programs learn a TCP flow only from a packet whose conntrack entry has
//! the flag. An announcement that is lost, or an agent that is gone, costs speed and nothing else.

use core::mem::size_of;

use crate::addr::Addr;

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
        Some(Self { source: Addr(*source), destination: Addr(*destination), ports })
    }
}

/// Bytes of the ring buffer: more than 1,400 announcements.
pub const CONNECTIONS_BYTES: u32 = 1 << 16;

/// Packets behind the SYN-ACK of a connection after which it is announced. One request and the
/// close have fewer, so a connection of one request does not cost the agent anything.
pub const ANNOUNCED_AT: u64 = 3;

/// After each further 64 packets it is announced once more: the announcement may have been lost.
pub const ANNOUNCED_AGAIN: u64 = 64;

/// `IP_CT_TCP_FLAG_BE_LIBERAL`: conntrack does not check the window of this direction.
pub const LIBERAL: u8 = 0x08;

/// `IP_CT_TCP_FLAG_MAXACK_SET`: conntrack compares the number of an RST with the highest
/// acknowledgement it has seen of this direction. After two gibibytes that it has not seen, a
/// genuine RST looks too old.
pub const ACKNOWLEDGEMENT_KNOWN: u8 = 0x20;

const _: () = assert!(size_of::<Connection>() == 36);
