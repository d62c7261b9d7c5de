//! Reports of IPv6 routers that a tunnel packet was too big (ICMPv6 type 2, [RFC 4443, section
//! 3.2](https://www.rfc-editor.org/rfc/rfc4443#section-3.2)).
//!
//! The kernel lowers the MTU of its route to the peer, and its vxlan device reports that to the
//! pods (`skb_tunnel_check_pmtu()` in [net/ipv4/ip_tunnel_core.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/ip_tunnel_core.c)). Our packets do
//! not use that route and would be lost until the path is validated again. So the path is held down
//! for one interval: the kernel gets all packets to that peer. Routers of IPv4 fragment our
//! packets, which have no DF flag.

use flannel_common::{
    abi::{node::FamilyConfig, reason::Reason},
    packet::{ETH_LEN, IPV6_LEN, PROTO_UDP},
    packet::{
        addr::same_addr,
        ip::{IpHeader as _, Ipv6Header},
        outer::TunnelHeaders,
    },
};

use super::path_probe::hold_down_peer;
use crate::{
    maps::VTEPS,
    node::{Node, Peer},
    packet::{load_buf::LoadBuf, skb::Skb},
};

/// A `Packet Too Big` message, and the start of the packet it reports.
#[repr(C)]
#[derive(Clone, Copy)]
struct Report {
    kind: u8,
    rest: [u8; 7],
    ip: Ipv6Header,
    tunnel: TunnelHeaders,
}

const PACKET_TOO_BIG: u8 = 2;

/// Holds down the path that an ICMPv6 message to this node reports, if it is such a report.
#[inline(always)]
pub(crate) fn on_packet_too_big(skb: &Skb, node: &Node) -> Reason {
    let report: Option<&Report> = skb.load(ETH_LEN + IPV6_LEN, LoadBuf::Outer);
    let peer = report
        .filter(|report| report.is_about_us(node.family::<Ipv6Header>()))
        .and_then(Report::peer);
    let Some(peer) = peer else {
        return Reason::NotTunnel;
    };
    hold_down_peer(&peer, node.now);
    Reason::TooBig
}

impl Report {
    /// Returns true if the reported packet belongs to our tunnel.
    #[inline(always)]
    fn is_about_us(&self, family: &FamilyConfig) -> bool {
        self.kind == PACKET_TOO_BIG
            && self.ip.protocol() == PROTO_UDP
            && same_addr(self.ip.source(), family.vtep)
            && self.tunnel.goes_to_port(family)
            && self.tunnel.vxlan(family).is_ok()
    }

    /// Returns the peer that the reported packet was sent to.
    #[inline(always)]
    fn peer(&self) -> Option<Peer> {
        // SAFETY: the value is read at once; even a freed element is not reused before the program
        // ends (RCU).
        let index = unsafe { VTEPS.get(self.ip.destination()) }?.index;
        Peer::find::<Ipv6Header>(Some(index)).ok()
    }
}
