//! What routers say of our tunnel packets over IPv6: that one was too large for them.
//!
//! The kernel lowers the MTU of its route to the peer, and its vxlan device tells the pods. Our packets do not meet that route,
//! so they would go on to be lost until the path is seen anew. Nothing vouches for it from now on for one interval: the kernel
//! has all packets to that peer, and says what it has to say. Routers of IPv4 cut our packets, which do not forbid it.

use flannel_common::{
    addr::same_addr,
    ip::{IpHeader as _, Ipv6Header},
    node::FamilyConfig,
    outer::TunnelHeaders,
    packet::{ETH_LEN, IPV6_LEN, PROTO_UDP},
    reason::Reason,
};

use crate::{
    bytes::Room,
    maps::VTEPS,
    node::{Node, Peer},
    seen::hold_peer,
    skb::Skb,
};

/// `Packet Too Big` of ICMPv6, and the beginning of the packet it is about.
#[repr(C)]
#[derive(Clone, Copy)]
struct Report {
    kind: u8,
    rest: [u8; 7],
    ip: Ipv6Header,
    tunnel: TunnelHeaders,
}

const PACKET_TOO_BIG: u8 = 2;

/// Lets the path rest that an ICMPv6 packet for this node is about, if it is such a report.
#[inline(always)]
pub(crate) fn heed(skb: &Skb, node: &Node) -> Reason {
    let report: Option<&Report> = skb.load(ETH_LEN + IPV6_LEN, Room::Outer);
    let peer = report.filter(|report| report.is_about_us(node.family::<Ipv6Header>())).and_then(Report::peer);
    let Some(peer) = peer else { return Reason::NotTunnel };
    hold_peer(&peer, node.now);
    Reason::TooBig
}

impl Report {
    /// It is about a packet of our own tunnel.
    #[inline(always)]
    fn is_about_us(&self, family: &FamilyConfig) -> bool {
        self.kind == PACKET_TOO_BIG
            && self.ip.protocol() == PROTO_UDP
            && same_addr(self.ip.source(), family.vtep)
            && self.tunnel.goes_to_port(family)
            && self.tunnel.vxlan(family).is_ok()
    }

    /// The peer that packet was for.
    #[inline(always)]
    fn peer(&self) -> Option<Peer> {
        // SAFETY: the value is read at once; an element freed meanwhile is not reused before the program ends (RCU).
        let index = unsafe { VTEPS.get(self.ip.destination()) }?.index;
        Peer::find::<Ipv6Header>(Some(index)).ok()
    }
}
