//! One end of a flow's way through this node: who talks to whom, and the device by which the packet
//! enters or leaves.
//!
//! A flow goes in at one end and comes out at another; netfilter may have changed addresses and
//! ports between. Both ends have the same form, so the way back is known without a second notion:
//! it enters at the reversed out-end and must come out at the reversed in-end.
//!
//! Addresses and ports are words as they lie in the packet, network order, loaded as native
//! integers: they are compared, copied and summed, never ordered.

use core::{fmt::Debug, hash::Hash, mem::size_of};

use crate::{
    flow::{check::Check, difference},
    packet::addr::Addr,
};

/// An address as 32-bit words in network order: one for IPv4, four for IPv6.
pub trait Address: Copy + Debug + Default + Eq + Hash + 'static {
    /// Bytes of an IP header of the family, without options.
    const IP_LEN: u16;

    /// Its words.
    fn words(&self) -> &[u32];

    /// Returns a copy, made word by word: for the BPF target a copy of four words may become a
    /// loop over their bytes, of which the verifier keeps states.
    #[must_use]
    fn copied(&self) -> Self;

    /// Returns the same address in the form of either family.
    fn addr(&self) -> Addr;
}

impl Address for [u32; 1] {
    const IP_LEN: u16 = 20;

    #[inline(always)]
    fn words(&self) -> &[u32] {
        self
    }

    #[inline(always)]
    fn copied(&self) -> Self {
        *self
    }

    #[inline(always)]
    fn addr(&self) -> Addr {
        Addr::from_v4_bytes(self[0].to_ne_bytes())
    }
}

impl Address for [u32; 4] {
    const IP_LEN: u16 = 40;

    #[inline(always)]
    fn words(&self) -> &[u32] {
        self
    }

    #[inline(always)]
    fn copied(&self) -> Self {
        [self[0], self[1], self[2], self[3]]
    }

    #[inline(always)]
    fn addr(&self) -> Addr {
        let [a, b, c, d] = self.map(u32::to_ne_bytes);
        Addr([
            a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1],
            d[2], d[3],
        ])
    }
}

/// Returns the bits in which two addresses differ, word by word: a comparison of longer arrays
/// becomes a call the BPF target lacks.
#[inline(always)]
fn address_difference<A: Address>(a: &A, b: &A) -> u32 {
    a.words()
        .iter()
        .zip(b.words())
        .fold(0, |bits, (a, b)| bits | (a ^ b))
}

/// One end of a flow, and the key of the flow tables.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Source port and destination port, as they lie in the packet.
    pub ports: u32,
    /// Protocol number (IPv6: next header).
    pub protocol: u32,
    /// Interface index: of the device by which the packet enters the host's stack, or leaves it.
    pub device: u32,
}

impl<A: Address> FlowKey<A> {
    /// The end as the way back sees it.
    #[inline(always)]
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination.copied(),
            destination: self.source.copied(),
            ports: self.ports.rotate_left(16),
            protocol: self.protocol,
            device: self.device,
        }
    }

    /// Returns true if both keys are equal, device included.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        difference::is_none(self.difference(other))
    }

    /// Returns true if both have the same addresses, ports and protocol.
    #[inline(always)]
    pub fn same_tuple(&self, other: &Self) -> bool {
        difference::is_none(self.tuple_difference(other))
    }

    /// Returns the bits in which both differ.
    #[inline(always)]
    pub(crate) fn difference(&self, other: &Self) -> u32 {
        self.tuple_difference(other) | (self.device ^ other.device)
    }

    #[inline(always)]
    fn tuple_difference(&self, other: &Self) -> u32 {
        address_difference(&self.source, &other.source)
            | address_difference(&self.destination, &other.destination)
            | (self.ports ^ other.ports)
            | (self.protocol ^ other.protocol)
    }

    /// The two ports, in the byte order of the packet.
    #[inline(always)]
    pub const fn port_numbers(&self) -> [u16; 2] {
        let [a, b, c, d] = self.ports.to_ne_bytes();
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    }

    /// Returns a hash of the key, of which callers use the upper bits. The check word is not
    /// enough: the lower bits of a sum of products do not depend on the whole key.
    #[inline(always)]
    pub fn hash(&self) -> u32 {
        let mut check = Check::new();
        self.check(&mut check);
        let word = check.finish();
        (word ^ (word >> 15)).wrapping_mul(0x9e37_79b1)
    }

    /// Adds the end to a check.
    #[inline(always)]
    pub(crate) fn check(&self, check: &mut Check) {
        for word in self.source.words() {
            check.word(*word);
        }
        for word in self.destination.words() {
            check.word(*word);
        }
        check.word(self.ports);
        check.word(self.protocol);
        check.word(self.device);
    }
}

const _: () = {
    assert!(size_of::<FlowKey<[u32; 1]>>() == 20 && size_of::<FlowKey<[u32; 4]>>() == 44);
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An end of IPv4 addresses and ports as people write them.
    pub(crate) fn flow_key(
        source: [u8; 4],
        sport: u16,
        destination: [u8; 4],
        dport: u16,
        device: u32,
    ) -> FlowKey<[u32; 1]> {
        let ([a, b], [c, d]) = (sport.to_be_bytes(), dport.to_be_bytes());
        FlowKey {
            source: [u32::from_ne_bytes(source)],
            destination: [u32::from_ne_bytes(destination)],
            ports: u32::from_ne_bytes([a, b, c, d]),
            protocol: 6,
            device,
        }
    }

    #[test]
    fn the_way_back_swaps_addresses_and_ports() {
        let there = flow_key([10, 0, 0, 1], 40000, [10, 0, 0, 2], 80, 7);
        assert_eq!(
            there.reversed(),
            flow_key([10, 0, 0, 2], 80, [10, 0, 0, 1], 40000, 7)
        );
        assert_eq!(there.reversed().reversed(), there);
        assert_eq!(there.port_numbers(), [40000, 80]);
    }

    #[test]
    fn every_field_distinguishes_ends() {
        let one = flow_key([10, 0, 0, 1], 40000, [10, 0, 0, 2], 80, 7);
        assert!(one.same(&one));
        for other in [
            flow_key([10, 0, 0, 3], 40000, [10, 0, 0, 2], 80, 7),
            flow_key([10, 0, 0, 1], 40001, [10, 0, 0, 2], 80, 7),
            flow_key([10, 0, 0, 1], 40000, [10, 0, 0, 3], 80, 7),
            flow_key([10, 0, 0, 1], 40000, [10, 0, 0, 2], 81, 7),
            FlowKey {
                protocol: 17,
                ..one
            },
        ] {
            assert!(!one.same_tuple(&other), "{other:?}");
        }
        let elsewhere = FlowKey { device: 8, ..one };
        assert!(one.same_tuple(&elsewhere) && !one.same(&elsewhere));
    }
}
