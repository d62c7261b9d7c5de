//! Reading and rewriting the IP header of a pod's packet: the part of a flow that differs between
//! the families.

use crate::{
    abi::reason::Reason,
    flow::flow_key::{Address, FlowKey},
    packet::{IPV6_LEN, PROTO_TCP, PROTO_UDP, put},
    packet::{
        checksum::{ipv4_updated, updated, word_difference},
        ip::{IpHeader, Ipv4Header, Ipv6Header},
    },
};

/// The IP header of a pod's packet.
pub trait InnerHeader: IpHeader {
    /// An address of the family.
    type Address: Address;

    /// Length of the whole packet, if it is one whole packet without options (IPv6: extension
    /// headers show in the protocol) that may go on by a hop. The kernel drops one whose header has
    /// a wrong checksum (`ip_rcv_core()` in [net/ipv4/ip_input.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/ip_input.c)).
    fn plain_len(&self) -> Option<u16>;

    /// The reason why a packet is not plain.
    #[inline(always)]
    fn not_plain(&self) -> Reason {
        let protocol = self.protocol();
        if self.is_fragment() {
            Reason::Fragment
        } else if protocol != PROTO_TCP && protocol != PROTO_UDP {
            Reason::OtherTransport
        } else {
            Reason::NotPlain
        }
    }

    /// Returns the fields that identify this packet.
    fn ident(&self) -> u32;

    /// TTL or hop limit.
    fn ttl(&self) -> u8;

    /// IPv6's flow label, as it lies in the packet; 0 for IPv4.
    fn flow_label(&self) -> u32;

    /// Source address, as words.
    fn source_address(&self) -> Self::Address;

    /// Destination address, as words.
    fn destination_address(&self) -> Self::Address;

    /// The sum behind the header of a packet whose sum is `whole`.
    fn sum_behind(&self, whole: u32) -> u64;

    /// Returns the change of the sum over the header if it becomes `after`, which differs only in
    /// the first eight bytes. The result is a sum of 32 bits, as the kernel's checksum helper takes
    /// it.
    fn difference(&self, after: &Self) -> u32;

    /// Writes the header as it is at another end, with its TTL lowered by `step` and another TOS.
    fn write_rewritten(
        &self,
        from: &FlowKey<Self::Address>,
        to: &FlowKey<Self::Address>,
        step: u8,
        tos: u8,
        rewritten: &mut Self,
    );
}

/// Four bytes of a header as a word.
macro_rules! word {
    ($bytes:expr, $at:expr) => {
        u32::from_ne_bytes([
            $bytes[$at],
            $bytes[$at + 1],
            $bytes[$at + 2],
            $bytes[$at + 3],
        ])
    };
}

/// The bits of IPv4's fragment word that must be clear: all but Don't Fragment.
const FRAGMENT: u8 = 0xbf;

impl InnerHeader for Ipv4Header {
    type Address = [u32; 1];

    #[inline(always)]
    fn plain_len(&self) -> Option<u16> {
        let b = &self.0;
        let is_plain = b[0] == 0x45
            && b[6] & FRAGMENT == 0
            && b[7] == 0
            && b[8] > 1
            && self.has_right_checksum();
        is_plain
            .then_some(u16::from_be_bytes([b[2], b[3]]))
            .filter(|len| usize::from(*len) >= size_of::<Self>())
    }

    #[inline(always)]
    fn ident(&self) -> u32 {
        word!(self.0, 4)
    }

    #[inline(always)]
    fn ttl(&self) -> u8 {
        self.0[8]
    }

    #[inline(always)]
    fn flow_label(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn source_address(&self) -> [u32; 1] {
        [word!(self.0, 12)]
    }

    #[inline(always)]
    fn destination_address(&self) -> [u32; 1] {
        [word!(self.0, 16)]
    }

    /// A header with the right checksum adds nothing.
    #[inline(always)]
    fn sum_behind(&self, whole: u32) -> u64 {
        u64::from(whole)
    }

    #[inline(always)]
    fn difference(&self, after: &Self) -> u32 {
        let (a, b) = (&self.0, &after.0);
        word_difference([word!(a, 0), word!(a, 4)], [word!(b, 0), word!(b, 4)])
    }

    #[inline(always)]
    fn write_rewritten(
        &self,
        from: &FlowKey<[u32; 1]>,
        to: &FlowKey<[u32; 1]>,
        step: u8,
        tos: u8,
        Self(rewritten): &mut Self,
    ) {
        let b = &self.0;
        let ttl = b[8] - step;
        let ttl_words = [
            u16::from_ne_bytes([b[8], b[9]]),
            u16::from_ne_bytes([ttl, b[9]]),
        ];
        let mut checksum = ipv4_updated(u16::from_ne_bytes([b[10], b[11]]), from, to, ttl_words);
        if tos != b[1] {
            let (before, after) = (
                u16::from_ne_bytes([b[0], b[1]]),
                u16::from_ne_bytes([b[0], tos]),
            );
            checksum = updated(checksum, u64::from(!before), u64::from(after));
        }
        let [high, low] = checksum.to_ne_bytes();
        put(rewritten, 0, [b[0], tos, b[2], b[3]]);
        put(rewritten, 4, [b[4], b[5], b[6], b[7]]);
        put(rewritten, 8, [ttl, b[9], high, low]);
        put(rewritten, 12, to.source[0].to_ne_bytes());
        put(rewritten, 16, to.destination[0].to_ne_bytes());
    }
}

impl InnerHeader for Ipv6Header {
    type Address = [u32; 4];

    #[inline(always)]
    fn plain_len(&self) -> Option<u16> {
        let b = &self.0;
        let is_plain = b[0] >> 4 == 6 && b[7] > 1;
        is_plain
            .then(|| u16::from_be_bytes([b[4], b[5]]).checked_add(IPV6_LEN as u16))
            .flatten()
    }

    #[inline(always)]
    fn ident(&self) -> u32 {
        word!(self.0, 0)
    }

    #[inline(always)]
    fn ttl(&self) -> u8 {
        self.0[7]
    }

    #[inline(always)]
    fn flow_label(&self) -> u32 {
        word!(self.0, 0) & u32::from_ne_bytes([0, 0x0f, 0xff, 0xff])
    }

    #[inline(always)]
    fn source_address(&self) -> [u32; 4] {
        [
            word!(self.0, 8),
            word!(self.0, 12),
            word!(self.0, 16),
            word!(self.0, 20),
        ]
    }

    #[inline(always)]
    fn destination_address(&self) -> [u32; 4] {
        [
            word!(self.0, 24),
            word!(self.0, 28),
            word!(self.0, 32),
            word!(self.0, 36),
        ]
    }

    #[inline(always)]
    fn sum_behind(&self, whole: u32) -> u64 {
        let (addresses, b) = ([self.source_address(), self.destination_address()], &self.0);
        let words = addresses
            .as_flattened()
            .iter()
            .copied()
            .chain([word!(b, 0), word!(b, 4)]);
        words.fold(u64::from(whole), |sum, word| sum + u64::from(!word))
    }

    #[inline(always)]
    fn difference(&self, after: &Self) -> u32 {
        let (a, b) = (&self.0, &after.0);
        word_difference([word!(a, 0), word!(a, 4)], [word!(b, 0), word!(b, 4)])
    }

    #[inline(always)]
    fn write_rewritten(
        &self,
        _: &FlowKey<[u32; 4]>,
        to: &FlowKey<[u32; 4]>,
        step: u8,
        tos: u8,
        Self(rewritten): &mut Self,
    ) {
        let b = &self.0;
        put(
            rewritten,
            0,
            [b[0] & 0xf0 | tos >> 4, b[1] & 0x0f | tos << 4, b[2], b[3]],
        );
        put(rewritten, 4, [b[4], b[5], b[6], b[7] - step]);
        for (at, word) in [8, 12, 16, 20].into_iter().zip(to.source) {
            put(rewritten, at, word.to_ne_bytes());
        }
        for (at, word) in [24, 28, 32, 36].into_iter().zip(to.destination) {
            put(rewritten, at, word.to_ne_bytes());
        }
    }
}
