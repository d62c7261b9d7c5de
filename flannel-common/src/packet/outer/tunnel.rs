//! The headers behind the outer IP header, the same over either family: UDP, VXLAN and the inner
//! Ethernet header.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are small, and callers keep a frame below 64 KiB"
)]

use crate::{
    abi::{node::FamilyConfig, peer::PeerEntry, reason::Reason},
    packet::{UDP_LEN, VXLAN_LEN, put},
    packet::{ethernet::EthernetHeader, ip::Varying},
};

/// VXLAN flags: the VNI is valid, nothing else.
const VXLAN_FLAGS: u8 = 0x08;

/// UDP, VXLAN and inner Ethernet header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TunnelHeaders {
    pub(super) udp: [u8; UDP_LEN],
    pub(super) vxlan: [u8; VXLAN_LEN],
    pub(super) inner: EthernetHeader,
}

impl TunnelHeaders {
    /// The UDP checksum stays 0. Over IPv4 [RFC 7348, section
    /// 5](https://www.rfc-editor.org/rfc/rfc7348#section-5) permits that. Over IPv6 [RFC
    /// 6935](https://www.rfc-editor.org/rfc/rfc6935) does, for receivers that expect it ([RFC
    /// 6936](https://www.rfc-editor.org/rfc/rfc6936)): the agent gives a peer a plain path only if
    /// its device takes such packets.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        family: &FamilyConfig,
        peer: &PeerEntry,
        varying: &Varying,
        ethertype: [u8; 2],
    ) {
        let [high, low] = (varying.frame_len as u16 + (UDP_LEN + VXLAN_LEN) as u16).to_be_bytes();
        let ([source_high, source_low], [port_high, port_low]) =
            (varying.source_port.to_be_bytes(), family.port);
        put(
            &mut self.udp,
            0,
            [source_high, source_low, port_high, port_low],
        );
        put(&mut self.udp, 4, [high, low, 0, 0]);
        put(&mut self.vxlan, 0, [VXLAN_FLAGS, 0, 0, 0]);
        put(&mut self.vxlan, 4, (family.vni << 8).to_be_bytes());
        self.inner.write(peer.mac, family.vtep_mac, ethertype);
    }

    /// Returns true if the destination is the tunnel's port.
    #[inline(always)]
    pub const fn goes_to_port(&self, family: &FamilyConfig) -> bool {
        self.udp[2] == family.port[0] && self.udp[3] == family.port[1]
    }

    /// The VXLAN header is valid and names our VNI; otherwise why not.
    #[inline(always)]
    pub const fn vxlan(&self, family: &FamilyConfig) -> Result<(), Reason> {
        let b = self.vxlan;
        if b[0] != VXLAN_FLAGS || b[1] | b[2] | b[3] | b[7] != 0 {
            return Err(Reason::BadVxlanHeader);
        }
        if u32::from_be_bytes([0, b[4], b[5], b[6]]) == family.vni {
            Ok(())
        } else {
            Err(Reason::OtherVni)
        }
    }

    /// Source port, as it lies in the packet.
    #[inline(always)]
    pub(super) const fn source_port(&self) -> u16 {
        u16::from_ne_bytes([self.udp[0], self.udp[1]])
    }

    /// Length of the UDP datagram, header included.
    #[inline(always)]
    pub(super) const fn udp_len(&self) -> u32 {
        u16::from_be_bytes([self.udp[4], self.udp[5]]) as u32
    }

    /// Returns true if there is a UDP checksum.
    #[inline(always)]
    pub const fn has_checksum(&self) -> bool {
        self.udp[6] | self.udp[7] != 0
    }

    /// Inner Ethernet header.
    #[inline(always)]
    pub const fn inner(&self) -> &EthernetHeader {
        &self.inner
    }
}
