//! The header that a TUN device with `IFF_VNET_HDR` puts before each packet ([virtio
//! 1.2](https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html), section 5.1.6; `struct
//! virtio_net_hdr` of [include/uapi/linux/virtio_net.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/virtio_net.h)), in the byte
//! order of the machine.

/// The header's bytes: the form without the number of buffers.
pub(crate) const LENGTH: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCPV4: u8 = 1;
const ECN: u8 = 0x80;

/// The work that the kernel leaves to the reader of a packet, or a writer to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    kind: u8,
    header: u16,
    segment: u16,
    start: u16,
    offset: u16,
}

/// The work that is left to do on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    /// None.
    None,
    /// The sum of all from `start` on belongs at `at`, where a part of it is.
    Checksum { start: usize, at: usize },
    /// TCP over IPv4, to cut into segments with `payload` bytes each.
    Tcp { payload: usize },
    /// Something that was not asked for.
    Unknown,
}

impl VnetHeader {
    /// Reads a header.
    pub(crate) fn parse(bytes: &[u8; LENGTH]) -> Self {
        let word = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            kind: bytes[1],
            header: word(2),
            segment: word(4),
            start: word(6),
            offset: word(8),
        }
    }

    /// A TCP packet of IPv4, with a partial checksum, to be cut into segments of `payload` bytes;
    /// `ip` and `all` are the lengths of the IPv4 header and of both headers.
    pub(crate) fn tcp(ip: usize, all: usize, payload: u16) -> Self {
        let small = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
        Self {
            flags: NEEDS_CHECKSUM,
            kind: TCPV4,
            header: small(all),
            segment: payload,
            start: small(ip),
            offset: 16,
        }
    }

    /// Returns the bytes.
    pub(crate) fn to_bytes(self) -> [u8; LENGTH] {
        let Self {
            flags,
            kind,
            header,
            segment,
            start,
            offset,
        } = self;
        let mut bytes = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (place, word) in bytes[2..]
            .chunks_exact_mut(2)
            .zip([header, segment, start, offset])
        {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns the work that it asks for.
    pub(crate) fn offload(&self) -> Offload {
        let needs_checksum = self.flags & NEEDS_CHECKSUM != 0;
        match (self.kind & !ECN, needs_checksum) {
            (0, false) => Offload::None,
            (0, true) => {
                let start = usize::from(self.start);
                Offload::Checksum {
                    start,
                    at: start + usize::from(self.offset),
                }
            }
            (TCPV4, true) if self.segment > 0 => Offload::Tcp {
                payload: self.segment.into(),
            },
            _ => Offload::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_was_written() {
        let header = VnetHeader::tcp(20, 52, 1400);
        assert_eq!(VnetHeader::parse(&header.to_bytes()), header);
        assert_eq!(header.offload(), Offload::Tcp { payload: 1400 });
        let offload = |bytes| VnetHeader::parse(&bytes).offload();
        assert_eq!(offload([0; LENGTH]), Offload::None);
        let [start, _] = 20_u16.to_ne_bytes();
        assert_eq!(
            offload([1, 0, 0, 0, 0, 0, start, 0, 6, 0]),
            Offload::Checksum { start: 20, at: 26 }
        );
        assert_eq!(
            offload([1, 4, 0, 0, 9, 9, 0, 0, 0, 0]),
            Offload::Unknown,
            "TCP over IPv6"
        );
        assert_eq!(
            offload([1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            Offload::Unknown,
            "segments of no bytes"
        );
    }
}
