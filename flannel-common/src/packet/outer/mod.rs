//! The outer headers of the tunnel, of either family: how ours are built, and how a packet on the
//! underlay is judged against them. One place for both, because `to_underlay` compares the kernel's
//! packets with our own recipe.

mod tunnel;

pub use tunnel::TunnelHeaders;

use core::mem::size_of;

use crate::{
    abi::{node::FamilyConfig, peer::PeerEntry},
    flow::arrival::Arrival,
    packet::{ETH_LEN, OVERHEAD_V4, OVERHEAD_V6},
    packet::{
        addr::{Addr, Mac, same_addr},
        ethernet::{EthernetHeader, same_mac},
        ip::{IpHeader, Ipv4Header, Ipv6Header, Varying},
    },
};

/// The first bytes of an encapsulated frame: outer Ethernet, IP, UDP, VXLAN and inner Ethernet
/// header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OuterHeaders<I> {
    ethernet: EthernetHeader,
    ip: I,
    tunnel: TunnelHeaders,
}

impl<I: IpHeader> OuterHeaders<I> {
    /// Their length.
    pub const LEN: usize = size_of::<Self>();

    /// Bytes that encapsulation adds to a frame: 50 over IPv4, 70 over IPv6.
    pub const OVERHEAD: usize = Self::LEN - ETH_LEN;

    /// Writes the outer headers for one frame in place, because the BPF target copies a returned
    /// value byte by byte. The outer Ethernet addresses are zero: the neighbour entry fills them.
    #[inline(always)]
    pub fn write(&mut self, family: &FamilyConfig, peer: &PeerEntry, varying: &Varying) {
        self.ethernet.write(Mac([0; 6]), Mac([0; 6]), I::ETHERTYPE);
        self.ip.write_outer(family, peer, varying);
        self.tunnel.write(family, peer, varying, I::ETHERTYPE);
    }

    /// The outer IP header.
    #[inline(always)]
    pub const fn ip(&self) -> &I {
        &self.ip
    }

    /// UDP, VXLAN and inner Ethernet header.
    #[inline(always)]
    pub const fn tunnel(&self) -> &TunnelHeaders {
        &self.tunnel
    }

    /// Returns true for a packet of the tunnel: no options, UDP, our destination port.
    #[inline(always)]
    pub fn is_tunnel(&self, family: &FamilyConfig) -> bool {
        self.ip.carries_udp() && self.tunnel.goes_to_port(family)
    }

    /// Returns true if it is sent to this node's VTEP.
    #[inline(always)]
    pub fn is_for_us(&self, family: &FamilyConfig) -> bool {
        same_addr(self.ip.destination(), family.vtep)
    }

    /// Returns true if IP and UDP length agree with a frame of `len` bytes.
    #[inline(always)]
    pub fn has_length(&self, len: u32) -> bool {
        let len = len as usize;
        let (ip, udp) = (self.ip.total_len() as usize, self.tunnel.udp_len() as usize);
        ip + ETH_LEN == len && udp + ETH_LEN + size_of::<I>() == len
    }

    /// The packet's arrival by this device.
    #[inline(always)]
    pub fn arrival(&self, device: u32) -> Arrival {
        Arrival::new(
            self.ethernet.source(),
            self.ip.hops(),
            self.ip.tos(),
            device,
            self.tunnel.source_port(),
        )
    }

    /// Outer source address.
    #[inline(always)]
    pub fn source(&self) -> Addr {
        self.ip.source()
    }

    /// Returns true if the kernel made this packet as we would, for this peer and an inner packet
    /// of this TOS: addresses, TOS, TTL, flow label, DF and inner Ethernet addresses.
    /// Identification, source port, UDP checksum and lengths may differ.
    #[inline(always)]
    pub fn equals_recipe(&self, family: &FamilyConfig, peer: &PeerEntry, inner_tos: u8) -> bool {
        same_addr(self.ip.source(), family.vtep)
            && same_addr(self.ip.destination(), peer.vtep)
            && self.ip.equals_recipe(inner_tos)
            && same_mac(self.tunnel.inner().destination(), peer.mac)
            && same_mac(self.tunnel.inner().source(), family.vtep_mac)
    }
}

const _: () = {
    assert!(
        OuterHeaders::<Ipv4Header>::LEN == 64
            && OuterHeaders::<Ipv4Header>::OVERHEAD == OVERHEAD_V4
    );
    assert!(
        OuterHeaders::<Ipv6Header>::LEN == 84
            && OuterHeaders::<Ipv6Header>::OVERHEAD == OVERHEAD_V6
    );
};

#[cfg(test)]
mod tests;
