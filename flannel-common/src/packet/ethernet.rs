//! An Ethernet header as it stands in a packet, without VLAN tags.

use crate::{
    packet::addr::Mac,
    packet::{ETH_LEN, put},
};

/// Destination, source and EtherType.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct EthernetHeader(pub [u8; ETH_LEN]);

impl EthernetHeader {
    /// Writes the header.
    #[inline(always)]
    pub fn write(&mut self, destination: Mac, source: Mac, ethertype: [u8; 2]) {
        let (to, from) = (destination.0, source.0);
        put(&mut self.0, 0, [to[0], to[1], to[2], to[3]]);
        put(&mut self.0, 4, [to[4], to[5], from[0], from[1]]);
        put(&mut self.0, 8, [from[2], from[3], from[4], from[5]]);
        self.0[12..].copy_from_slice(&u16::from_ne_bytes(ethertype).to_ne_bytes());
    }

    /// To whom.
    #[inline(always)]
    pub const fn destination(&self) -> Mac {
        let b = &self.0;
        Mac([b[0], b[1], b[2], b[3], b[4], b[5]])
    }

    /// From whom.
    #[inline(always)]
    pub const fn source(&self) -> Mac {
        let b = &self.0;
        Mac([b[6], b[7], b[8], b[9], b[10], b[11]])
    }

    /// Returns true if the payload is of this EtherType.
    #[inline(always)]
    pub const fn carries(&self, ethertype: [u8; 2]) -> bool {
        self.0[12] == ethertype[0] && self.0[13] == ethertype[1]
    }
}

/// Equality of two Ethernet addresses. As integers: a comparison of byte arrays becomes a call the
/// BPF target lacks.
#[inline(always)]
pub const fn same_mac(a: Mac, b: Mac) -> bool {
    let (a, b) = (a.0, b.0);
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], a[4], a[5], 0, 0])
        == u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_gives_back_what_went_in() {
        let (to, from) = (Mac([2, 3, 4, 5, 6, 7]), Mac([8, 9, 10, 11, 12, 13]));
        let mut header = EthernetHeader([0; ETH_LEN]);
        header.write(to, from, [0x86, 0xdd]);
        assert_eq!((header.destination(), header.source()), (to, from));
        assert!(
            header.carries([0x86, 0xdd])
                && !header.carries([0x08, 0xdd])
                && !header.carries([0x86, 0])
        );
    }

    #[test]
    fn every_byte_of_an_address_counts() {
        let mac = Mac([1, 2, 3, 4, 5, 6]);
        assert!(same_mac(mac, mac));
        for at in 0..6 {
            let mut other = mac;
            other.0[at] ^= 0x80;
            assert!(!same_mac(mac, other), "byte {at}");
        }
    }
}
