//! Asking the kernel which route packets would take: the outer packets to a peer, or any to an
//! address.
//!
//! For outer packets the answer is the routing table's entry (`RTM_F_FIB_MATCH`, kernel 4.13;
//! `inet_rtm_getroute()` in [net/ipv4/route.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/route.c)), not a cached result: it
//! shows several next hops, an MTU and encapsulation that a resolved destination hides.

use std::net::IpAddr;

use flannel_host::family::Family;
use netlink_packet_route::{
    IpProtocol, RouteNetlinkMessage,
    route::{
        RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteMessage, RouteMetric,
        RouteNextHop, RouteType,
    },
};
use nix::errno::Errno;

use super::{
    Netlink,
    error::{Fault, NetlinkError, Verb},
    route::{RouteHop, ip, via},
};
use crate::family::to_kernel;

/// The outer packets asked about: made on this host, mark 0, TOS 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteQuery {
    /// The peer's VTEP.
    pub dst: IpAddr,
    /// Our own VTEP; `None` lets the kernel choose, as for a connection.
    pub src: Option<IpAddr>,
    /// UDP destination port, host order; `None` for packets without a tunnel.
    pub dport: Option<u16>,
}

/// The routing entry that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteAnswer {
    /// `Unicast`, `Local`, or the reason why the destination cannot be reached: `Unreachable` (also
    /// when no route matches), `Prohibit`, `BlackHole` (also when `src` is not an address of this
    /// host, IPv4 only).
    pub kind: RouteType,
    /// Interface index; `None` with several next hops, and for an unreachable destination.
    pub oif: Option<u32>,
    /// Next hop; `None` when the destination is attached.
    pub gateway: Option<IpAddr>,
    /// MTU set on the route, bytes.
    pub mtu: Option<u32>,
    /// Several next hops, for one of which the kernel decides by the flow; empty where there is
    /// one.
    pub hops: Vec<RouteHop>,
    /// Nexthop object (kernel 5.3), single or group.
    pub nexthop: Option<u32>,
    /// The route encapsulates or runs a program (lightweight tunnel), on any of its next hops.
    pub lwtunnel: bool,
    /// Preferred source address set on the route.
    pub src: Option<IpAddr>,
}

/// An entry of a routing table, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedRoute {
    /// The next hop, or the reason why there is none.
    pub answer: RouteAnswer,
    /// Bits of the entry's prefix; 0 also where no entry matches.
    pub prefix_len: u8,
    /// The number of its table.
    pub table: u32,
}

impl MatchedRoute {
    /// Returns true for the default route of table `main`. Other tables are those of routing rules,
    /// whose default routes are made for some packets only.
    pub fn is_default(&self) -> bool {
        self.answer.kind == RouteType::Unicast
            && self.prefix_len == 0
            && self.table == u32::from(RouteHeader::RT_TABLE_MAIN)
    }

    fn from_message(message: &RouteMessage) -> Self {
        let table = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Table(table) => Some(*table),
                _ => None,
            });
        Self {
            answer: RouteAnswer::from_message(message),
            prefix_len: message.header.destination_prefix_length,
            table: table.unwrap_or_else(|| message.header.table.into()),
        }
    }
}

impl RouteAnswer {
    /// Several next hops: packets of one peer may take different ways.
    pub const fn is_multipath(&self) -> bool {
        !self.hops.is_empty()
    }

    /// The next hop has an address of the other family than `dst`.
    pub fn gateway_of_other_family(&self, dst: IpAddr) -> bool {
        self.gateway
            .is_some_and(|gateway| Family::of(gateway) != Family::of(dst))
    }

    /// A route of this type that leads nowhere.
    pub fn nowhere(kind: RouteType) -> Self {
        Self {
            kind,
            oif: None,
            gateway: None,
            mtu: None,
            hops: Vec::new(),
            nexthop: None,
            lwtunnel: false,
            src: None,
        }
    }

    fn from_message(message: &RouteMessage) -> Self {
        let mut answer = Self::nowhere(message.header.kind);
        message
            .attributes
            .iter()
            .for_each(|attribute| answer.take(attribute));
        if answer.is_multipath() {
            // The kernel may repeat one of several next hops at the top.
            (answer.oif, answer.gateway) = (None, None);
        }
        answer
    }

    fn take(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Oif(index) => self.oif = Some(*index),
            RouteAttribute::Gateway(addr) => self.gateway = ip(addr),
            RouteAttribute::Via(addr) => self.gateway = via(addr),
            RouteAttribute::PrefSource(addr) => self.src = ip(addr),
            RouteAttribute::NhId(id) => self.nexthop = Some(*id),
            RouteAttribute::EncapType(kind) => self.lwtunnel |= *kind != RouteLwEnCapType::None,
            RouteAttribute::Metrics(metrics) => self.mtu = metrics.iter().find_map(mtu),
            RouteAttribute::MultiPath(hops) => {
                self.hops = hops.iter().map(RouteHop::from_message).collect();
                self.lwtunnel |= hops.iter().any(encapsulates);
            }
            _ => {}
        }
    }
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(bytes) => Some(*bytes),
        _ => None,
    }
}

fn encapsulates(hop: &RouteNextHop) -> bool {
    hop.attributes.iter().any(|attribute| {
        matches!(
            attribute,
            RouteAttribute::EncapType(kind) if *kind != RouteLwEnCapType::None
        )
    })
}

impl RouteQuery {
    fn to_message(self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let family = Family::of(self.dst);
        let header = &mut message.header;
        header.address_family = to_kernel(family);
        header.destination_prefix_length = family.bits();
        header.flags = RouteFlags::FibMatch;
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Destination(self.dst.into()));
        if let Some(src) = self.src {
            header.source_prefix_length = family.bits();
            attributes.push(RouteAttribute::Source(src.into()));
        }
        if let Some(dport) = self.dport {
            attributes.push(RouteAttribute::IpProto(IpProtocol::Udp.into()));
            attributes.push(RouteAttribute::Dport(dport));
        }
        message
    }
}

/// Returns the route type that a refused lookup implies, if it implies one.
fn verdict(fault: &Fault) -> Option<RouteType> {
    match fault.errno()? {
        Errno::ENETUNREACH | Errno::EHOSTUNREACH => Some(RouteType::Unreachable),
        Errno::EACCES => Some(RouteType::Prohibit),
        Errno::EINVAL => Some(RouteType::BlackHole),
        _ => None,
    }
}

impl Netlink {
    /// Looks up the route of the outer packets to a peer. Routing rules are followed; see
    /// [`tunnel_depends_on`](super::tunnel_depends_on) for the ones a lookup cannot speak for.
    pub async fn route_get(&self, query: RouteQuery) -> Result<RouteAnswer, NetlinkError> {
        let object = match query.dport {
            Some(dport) => format!("the route to {} port {dport}", query.dst),
            None => format!("the route to {}", query.dst),
        };
        self.look_up(query.to_message(), object).await
    }

    /// Looks up how this host reaches an address: one interface, one next hop, and in `src` the
    /// address packets to it carry. Unlike [`Self::route_get`] it resolves what is left to the
    /// kernel's choice.
    pub async fn route_from_here(&self, dst: IpAddr) -> Result<RouteAnswer, NetlinkError> {
        let mut message = RouteMessage::default();
        let family = Family::of(dst);
        message.header.address_family = to_kernel(family);
        message.header.destination_prefix_length = family.bits();
        message
            .attributes
            .push(RouteAttribute::Destination(dst.into()));
        self.look_up(message, format!("the route to {dst}")).await
    }

    /// The same for packets that leave by this interface, whichever other routes there are.
    pub async fn route_out_of(&self, oif: u32, dst: IpAddr) -> Result<RouteAnswer, NetlinkError> {
        let mut message = RouteMessage::default();
        let family = Family::of(dst);
        message.header.address_family = to_kernel(family);
        message.header.destination_prefix_length = family.bits();
        message
            .attributes
            .push(RouteAttribute::Destination(dst.into()));
        message.attributes.push(RouteAttribute::Oif(oif));
        self.look_up(message, format!("the route to {dst} by link {oif}"))
            .await
    }

    /// Looks up where the kernel forwards a foreign packet that came in by `iif`: forwarding,
    /// `rp_filter` and rules on the incoming interface apply. A packet they refuse is an error,
    /// with the kernel's reason. The answer does not show if IPv6 is forwarded at all.
    pub async fn route_forwarded(
        &self,
        dst: IpAddr,
        src: IpAddr,
        iif: u32,
    ) -> Result<RouteAnswer, NetlinkError> {
        self.look_up(
            forwarded(dst, src, iif),
            format!("the route from {src} to {dst}"),
        )
        .await
    }

    /// As [`Self::route_forwarded`], with the entry of the routing table that matches the packet.
    pub async fn forwarding_entry(
        &self,
        dst: IpAddr,
        src: IpAddr,
        iif: u32,
    ) -> Result<MatchedRoute, NetlinkError> {
        self.find_entry(
            forwarded(dst, src, iif),
            format!("the route from {src} to {dst}"),
        )
        .await
    }

    /// The entry of the routing table by which this host reaches an address.
    pub async fn entry_from_here(&self, dst: IpAddr) -> Result<MatchedRoute, NetlinkError> {
        let query = RouteQuery {
            dst,
            src: None,
            dport: None,
        };
        self.find_entry(query.to_message(), format!("the route to {dst}"))
            .await
    }

    async fn find_entry(
        &self,
        mut query: RouteMessage,
        object: String,
    ) -> Result<MatchedRoute, NetlinkError> {
        // Without the second flag the kernel names table main for every entry of IPv4.
        query.header.flags = RouteFlags::FibMatch | RouteFlags::LookupTable;
        match self.ask(query, object).await? {
            Ok(message) => Ok(MatchedRoute::from_message(&message)),
            Err(kind) => Ok(MatchedRoute {
                answer: RouteAnswer::nowhere(kind),
                prefix_len: 0,
                table: 0,
            }),
        }
    }

    async fn look_up(
        &self,
        query: RouteMessage,
        object: String,
    ) -> Result<RouteAnswer, NetlinkError> {
        Ok(match self.ask(query, object).await? {
            Ok(message) => RouteAnswer::from_message(&message),
            Err(kind) => RouteAnswer::nowhere(kind),
        })
    }

    /// Returns the kernel's answer, or the route type that its refusal implies.
    async fn ask(
        &self,
        query: RouteMessage,
        object: String,
    ) -> Result<Result<RouteMessage, RouteType>, NetlinkError> {
        match self.route.fetch(RouteNetlinkMessage::GetRoute(query)).await {
            Ok(RouteNetlinkMessage::NewRoute(message)) => Ok(Ok(message)),
            Ok(_) => Err(Fault::NoAnswer.on(Verb::LookUp, format_args!("{object}"))),
            Err(fault) => verdict(&fault)
                .map(Err)
                .ok_or_else(|| fault.on(Verb::LookUp, format_args!("{object}"))),
        }
    }
}

/// A question about a foreign packet that comes in by `iif`.
fn forwarded(dst: IpAddr, src: IpAddr, iif: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let family = Family::of(dst);
    let header = &mut message.header;
    header.address_family = to_kernel(family);
    (
        header.destination_prefix_length,
        header.source_prefix_length,
    ) = (family.bits(), family.bits());
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(dst.into()));
    attributes.push(RouteAttribute::Source(src.into()));
    attributes.push(RouteAttribute::Iif(iif));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_answer_where_it_speaks_of_the_route() {
        let refused = |errno: Errno| Fault::Refused {
            errno: errno.into(),
            remark: None,
        };
        assert_eq!(
            verdict(&refused(Errno::ENETUNREACH)),
            Some(RouteType::Unreachable)
        );
        assert_eq!(
            verdict(&refused(Errno::EHOSTUNREACH)),
            Some(RouteType::Unreachable)
        );
        assert_eq!(verdict(&refused(Errno::EACCES)), Some(RouteType::Prohibit));
        assert_eq!(verdict(&refused(Errno::EINVAL)), Some(RouteType::BlackHole));
        assert_eq!(verdict(&refused(Errno::ENOBUFS)), None);
        assert_eq!(verdict(&Fault::Closed), None);
    }

    #[test]
    fn a_gateway_of_the_other_family_is_seen() {
        let mut answer = RouteAnswer::nowhere(RouteType::Unicast);
        let dst = IpAddr::from([10, 9, 0, 2]);
        assert!(!answer.gateway_of_other_family(dst));
        answer.gateway = "fe80::1".parse().ok();
        assert!(answer.gateway_of_other_family(dst));
    }
}
