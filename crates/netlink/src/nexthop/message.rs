//! Nexthop messages, both ways: `struct nhmsg` and its attributes. Pure; the route library has no
//! such messages.

use flannel_host::family::Family;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NetlinkDeserializable, NetlinkHeader,
    NetlinkSerializable, Nla as _, NlasIterator, Parseable as _,
};

use super::object::{Nexthop, NexthopId};
use crate::{
    attribute::octets,
    family::{addr_from_bytes, to_kernel},
    reply::Prune,
};

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;

const NHA_ID: u16 = 1;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
/// `RTNH_F_ONLINK`.
const ONLINK: u32 = 4;

/// `struct nhmsg`: family, scope, protocol, a reserved byte, flags in host order.
const HEADER_LEN: usize = 8;

/// A message about one object, or the request for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NexthopMessage {
    message_type: u16,
    family: u8,
    protocol: u8,
    flags: u32,
    attributes: Vec<DefaultNla>,
}

impl Prune for NexthopMessage {}

impl NexthopMessage {
    /// The request to make an object.
    pub(super) fn new(id: NexthopId, nexthop: &Nexthop) -> Self {
        let gateway = nexthop
            .gateway
            .map(|gateway| DefaultNla::new(NHA_GATEWAY, octets(gateway)));
        let oif = nexthop.oif.map(|index| number(NHA_OIF, index));
        let family = to_kernel(nexthop.gateway.map_or(Family::V4, Family::of));
        Self {
            family: family.into(),
            protocol: nexthop.protocol,
            flags: if nexthop.onlink { ONLINK } else { 0 },
            attributes: [Some(number(NHA_ID, id.0)), gateway, oif]
                .into_iter()
                .flatten()
                .collect(),
            ..Self::bare(RTM_NEWNEXTHOP)
        }
    }

    /// The request to delete an object.
    pub(super) fn delete(id: NexthopId) -> Self {
        Self {
            attributes: vec![number(NHA_ID, id.0)],
            ..Self::bare(RTM_DELNEXTHOP)
        }
    }

    /// The request for one object.
    pub(super) fn get(id: NexthopId) -> Self {
        Self {
            attributes: vec![number(NHA_ID, id.0)],
            ..Self::bare(RTM_GETNEXTHOP)
        }
    }

    /// The request for all objects.
    pub(super) const fn dump() -> Self {
        Self::bare(RTM_GETNEXTHOP)
    }

    const fn bare(message_type: u16) -> Self {
        Self {
            message_type,
            family: 0,
            protocol: 0,
            flags: 0,
            attributes: Vec::new(),
        }
    }

    /// The object the message is about; `None` without a number.
    pub(crate) fn nexthop(&self) -> Option<(NexthopId, Nexthop)> {
        let mut id = None;
        let mut nexthop = Nexthop {
            gateway: None,
            oif: None,
            onlink: self.flags & ONLINK != 0,
            protocol: self.protocol,
            special: false,
        };
        for attribute in &self.attributes {
            let value = value(attribute);
            match attribute.kind() {
                NHA_ID => id = to_number(&value),
                NHA_OIF => nexthop.oif = to_number(&value),
                NHA_GATEWAY => nexthop.gateway = addr_from_bytes(&value),
                _ => nexthop.special = true,
            }
        }
        Some((NexthopId(id?), nexthop))
    }
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn to_number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value
}

impl NetlinkDeserializable for NexthopMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let (&[family, _scope, protocol, _reserved, ref flags @ ..], attributes) = payload
            .split_first_chunk::<HEADER_LEN>()
            .ok_or_else(|| DecodeError::from("a nexthop message without its header"))?;
        let attributes =
            NlasIterator::new(attributes).map(|attribute| DefaultNla::parse(&attribute?));
        Ok(Self {
            message_type: header.message_type,
            family,
            protocol,
            flags: u32::from_ne_bytes(*flags),
            attributes: attributes.collect::<Result<_, _>>()?,
        })
    }
}

impl NetlinkSerializable for NexthopMessage {
    fn message_type(&self) -> u16 {
        self.message_type
    }

    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(HEADER_LEN);
        header[..4].copy_from_slice(&[self.family, 0, self.protocol, 0]);
        header[4..].copy_from_slice(&self.flags.to_ne_bytes());
        self.attributes.as_slice().emit(attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &NexthopMessage) -> NexthopMessage {
        let mut header = NetlinkHeader::default();
        header.message_type = message.message_type();
        let mut bytes = vec![0xff; message.buffer_len()];
        message.serialize(&mut bytes);
        NexthopMessage::deserialize(&header, &bytes).expect("a whole message")
    }

    #[test]
    fn a_message_reads_back_as_what_it_was_made_from() {
        for gateway in ["10.5.2.0", "fd00:5:2::"] {
            let gateway = gateway.parse().ok();
            let nexthop = Nexthop {
                gateway,
                oif: Some(7),
                onlink: true,
                protocol: 191,
                special: false,
            };
            let message = NexthopMessage::new(NexthopId(0x0a05_0200), &nexthop);
            assert_eq!(read(&message), message);
            assert_eq!(message.nexthop(), Some((NexthopId(0x0a05_0200), nexthop)));
        }
    }

    #[test]
    fn what_is_more_than_a_gateway_is_special() {
        const NHA_GROUP: u16 = 2;
        let mut message = NexthopMessage::delete(NexthopId(9));
        message
            .attributes
            .push(DefaultNla::new(NHA_GROUP, vec![0; 8]));
        assert!(
            read(&message)
                .nexthop()
                .is_some_and(|(_, nexthop)| nexthop.special)
        );
    }

    #[test]
    fn a_message_that_is_cut_off_is_refused() {
        assert!(NexthopMessage::deserialize(&NetlinkHeader::default(), &[0; 7]).is_err());
    }
}
