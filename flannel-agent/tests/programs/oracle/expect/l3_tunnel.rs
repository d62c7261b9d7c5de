//! Mode `fast` on a tunnel device without Ethernet: as on the external interface with peers that
//! are reached without a tunnel.

use flannel_common::abi::reason::Reason;

use super::{Expected, Packet, direct};
use crate::oracle::parse::ETHERNET;

/// The packet in a frame: addresses of zero, and the EtherType that its version gives.
pub(super) fn framed(bytes: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = match bytes[0] >> 4 {
        4 => [0x08, 0x00],
        6 => [0x86, 0xdd],
        _ => [0, 0],
    };
    [&[0; 12], &ethertype[..], bytes].concat()
}

pub(super) fn receive(packet: &Packet<'_>) -> Result<Expected, Reason> {
    is_whole(packet)?;
    direct::from_peer(packet).map_err(of_others)
}

pub(super) fn send(packet: &Packet<'_>) -> Result<Expected, Reason> {
    is_whole(packet)?;
    direct::to_peer(packet).map_err(of_others)
}

/// Checks that the packet has a whole header: others are of no peer.
fn is_whole(packet: &Packet<'_>) -> Result<(), Reason> {
    if packet.bytes.len() < ETHERNET + packet.layout.header {
        Err(Reason::NoPeer)
    } else {
        Ok(())
    }
}

/// Translates the reason: the device carries only packets of the tunnel.
fn of_others(reason: Reason) -> Reason {
    if reason == Reason::NotTunnel {
        Reason::NoPeer
    } else {
        reason
    }
}
