//! TCP and UDP headers as they lie in a pod's packet.

use core::mem::size_of;

use crate::packet::{PROTO_TCP, PROTO_UDP, UDP_LEN};

/// Flags of TCP that open or close a connection: FIN, SYN, RST.
const CONTROL: u8 = 0x07;

/// The one that opens it.
const SYN: u8 = 0x02;

/// FIN, SYN, RST and ACK. Conntrack calls TCP without any of them invalid (`tcp_valid_flags` of
/// [net/netfilter/nf_conntrack_proto_tcp.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_conntrack_proto_tcp.c)).
pub(super) const HANDSHAKE: u8 = 0x17;

/// Those of them that an answer to a SYN has.
pub(super) const SYN_ACK: u8 = 0x12;

/// TCP without options.
const TCP_LEN: u32 = 20;

/// Source port, destination port and what follows them: the first twenty bytes of TCP, or as many
/// as there are of UDP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransportWords {
    ports: u32,
    /// TCP: sequence number. UDP: length and checksum.
    second: u32,
    acknowledged: u32,
    /// Data offset and flags.
    state: [u8; 2],
    window: u16,
    checksum: u16,
    urgent: u16,
}

/// The fields of a transport header.
pub(super) struct Transport {
    pub(super) ports: u32,
    pub(super) header_len: u32,
    pub(super) is_control: bool,
    pub(super) is_opening: bool,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) state: [u8; 2],
    pub(super) window: u16,
    pub(super) checksum: u16,
}

impl TransportWords {
    /// Reads a header in front of a payload, `length` bytes together, if it is TCP or UDP, the
    /// lengths agree, and TCP has one of the flags that each segment of a connection has.
    #[inline(always)]
    pub(super) fn read(&self, protocol: u8, length: u16) -> Option<Transport> {
        match protocol {
            PROTO_TCP => self.tcp(length),
            PROTO_UDP => self.udp(length),
            _ => None,
        }
    }

    #[inline(always)]
    fn tcp(&self, length: u16) -> Option<Transport> {
        let header_len = u32::from(self.state[0] >> 4) * 4;
        let is_of_a_connection = self.state[1] & HANDSHAKE != 0;
        (is_of_a_connection && header_len >= TCP_LEN && header_len <= u32::from(length)).then_some(
            Transport {
                ports: self.ports,
                header_len,
                is_control: self.state[1] & CONTROL != 0,
                is_opening: self.state[1] & SYN != 0,
                sequence: self.second,
                acknowledged: self.acknowledged,
                state: self.state,
                window: self.window,
                checksum: self.checksum,
            },
        )
    }

    #[inline(always)]
    fn udp(&self, length: u16) -> Option<Transport> {
        let [a, b, c, d] = self.second.to_ne_bytes();
        (u16::from_be_bytes([a, b]) == length).then_some(Transport {
            ports: self.ports,
            header_len: UDP_LEN as u32,
            is_control: false,
            is_opening: false,
            sequence: 0,
            acknowledged: 0,
            state: [0; 2],
            window: 0,
            checksum: u16::from_ne_bytes([c, d]),
        })
    }
}

const _: () = assert!(size_of::<TransportWords>() == TCP_LEN as usize);
