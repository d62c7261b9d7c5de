//! An answer that never fails to decode.
//!
//! The connection drops messages that its message type cannot decode, with a line in the log. A
//! dump would then have a gap that goes unnoticed, and a gap in the routing rules is a wrong
//! decision. Here such a message arrives as [`Reply::Undecodable`] and the verb decides if it may
//! be missing.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
};

use netlink_packet_core::{
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};

/// A message of protocol `T`, or the type of one that could not be decoded.
#[derive(Debug, Clone)]
pub(super) enum Reply<T> {
    Decoded(T),
    Undecodable { message_type: u16 },
}

/// A message that may have parts no code reads.
pub(super) trait Prune {
    /// Drops them. Replies wait in a queue, and those of a dump are collected.
    fn prune(&mut self) {}
}

impl<T: NetlinkDeserializable + Prune> NetlinkDeserializable for Reply<T> {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        // The xfrm library reads the fixed part of a message without a look at its length. One that
        // is too short ends the decoding with a panic, and must not end the connection.
        let decoded = catch_unwind(AssertUnwindSafe(|| T::deserialize(header, payload)));
        Ok(match decoded {
            Ok(Ok(mut message)) => {
                message.prune();
                Self::Decoded(message)
            }
            _ => Self::Undecodable {
                message_type: header.message_type,
            },
        })
    }
}

impl<T: NetlinkSerializable> NetlinkSerializable for Reply<T> {
    fn message_type(&self) -> u16 {
        match self {
            Self::Decoded(message) => message.message_type(),
            Self::Undecodable { message_type } => *message_type,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::Decoded(message) => message.buffer_len(),
            Self::Undecodable { .. } => 0,
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        if let Self::Decoded(message) = self {
            message.serialize(buffer);
        }
    }
}

/// Wraps a request with its `NLM_F_*` flags.
pub(super) fn request<T>(message: T, flags: u16) -> NetlinkMessage<Reply<T>> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    NetlinkMessage::new(
        header,
        NetlinkPayload::InnerMessage(Reply::Decoded(message)),
    )
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_xfrm::XfrmMessage;

    use super::*;

    #[test]
    fn what_cannot_be_decoded_keeps_its_type() {
        let mut newnexthop = NetlinkHeader::default();
        newnexthop.message_type = 104;
        let reply = Reply::<RouteNetlinkMessage>::deserialize(&newnexthop, &[0; 8]);
        assert!(matches!(
            reply,
            Ok(Reply::Undecodable { message_type: 104 })
        ));
    }

    #[test]
    fn a_policy_that_is_cut_off_is_undecodable() {
        let mut policy = NetlinkHeader::default();
        policy.message_type = 19;
        let reply = Reply::<XfrmMessage>::deserialize(&policy, &[0; 8]);
        assert!(matches!(reply, Ok(Reply::Undecodable { message_type: 19 })));
    }
}
