//! Attributes as bytes, for messages of which no library has types.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable as _};

/// An attribute with its value, up to where the next one begins.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

/// The bytes of an address, 4 or 16.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
