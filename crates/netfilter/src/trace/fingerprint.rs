//! The fields of a packet's headers that routing and address translation do not change. Pure.

/// `IPPROTO_ICMP`, `IPPROTO_TCP`, `IPPROTO_UDP` and `IPPROTO_ICMPV6`.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// These fields of one packet. Packets of a flow may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFingerprint {
    network: [u8; 6],
    transport: [u8; 8],
}

impl HeaderFingerprint {
    /// Reads the headers of IP and of the protocol in it; `None` if they are of another kind.
    pub fn of(network: &[u8], transport: &[u8]) -> Option<Self> {
        let (network, protocol) = match network.first()? >> 4 {
            // Length, identification and protocol.
            4 => (
                [network.get(2..6)?, network.get(9..10)?, &[4]].concat(),
                network.get(9)?,
            ),
            // Flow label, length and next header. The traffic class in front may change.
            6 => (
                [&[network.get(1)? & 0x0f], network.get(2..7)?].concat(),
                network.get(6)?,
            ),
            _ => return None,
        };
        let mut kept = [0; 8];
        let fields = match *protocol {
            // Sequence number and acknowledgement, identifier and sequence number, length.
            TCP => transport.get(4..12),
            ICMP | ICMPV6 => transport.get(4..8),
            UDP => transport.get(4..6),
            _ => None,
        };
        let fields = fields.unwrap_or_default();
        kept[..fields.len()].copy_from_slice(fields);
        Some(Self {
            network: network.try_into().ok()?,
            transport: kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_and_translated_packet_keeps_its_fingerprint() {
        let packet = |ttl, address, port, sequence| {
            let network = [
                0x45, 0, 0, 60, 7, 8, 0x40, 0, ttl, TCP, 1, 2, 10, 0, 0, address, 10, 0, 0, 2,
            ];
            let transport = [0, port, 0, 80, 0, 0, 0, sequence, 0, 0, 0, 0, 0xa0, 2];
            HeaderFingerprint::of(&network, &transport).expect("headers")
        };
        assert_eq!(packet(64, 1, 40, 9), packet(63, 99, 41, 9));
        assert_ne!(packet(64, 1, 40, 9), packet(64, 1, 40, 10));
    }

    #[test]
    fn ipv6_is_read_without_the_traffic_class() {
        let packet = |class: u8, length| {
            let mut network = [0; 40];
            network[..8].copy_from_slice(&[
                0x60 | class >> 4,
                class << 4 | 1,
                2,
                3,
                0,
                length,
                UDP,
                64,
            ]);
            HeaderFingerprint::of(&network, &[1, 2, 3, 4, 0, length, 7, 8]).expect("headers")
        };
        assert_eq!(packet(0, 20), packet(0xb8, 20));
        assert_ne!(packet(0, 20), packet(0, 21));
    }

    #[test]
    fn headers_that_are_cut_off_have_none() {
        assert!(HeaderFingerprint::of(&[], &[]).is_none());
        assert!(HeaderFingerprint::of(&[0x45, 0, 0], &[]).is_none());
        assert!(HeaderFingerprint::of(&[0x60, 0, 0, 0], &[]).is_none());
    }
}
