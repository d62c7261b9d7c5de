//! Route messages, both ways. Pure.

use std::net::IpAddr;

use flannel_host::family::Family;
use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteType, RouteVia,
};

use super::{
    entry::{Route, RouteKey},
    gateway::{ip, via},
    hop::RouteHop,
};
use crate::family::{from_kernel, to_kernel};

/// The route a message is about; `None` for those the module above leaves out, for the kernel's
/// cached clones, and for other families.
pub(crate) fn from_message(message: &RouteMessage) -> Option<(RouteKey, Route)> {
    let header = &message.header;
    let family = from_kernel(header.address_family)?;
    if header.tos != 0
        || header.source_prefix_length != 0
        || header.flags.contains(RouteFlags::Cloned)
    {
        return None;
    }
    let mut key = RouteKey {
        dst: family.everything(),
        table: header.table.into(),
        metric: 0,
    };
    let mut route = of_header(header);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => {
                key.dst = IpNet::new(ip(addr)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::Table(table) => key.table = *table,
            RouteAttribute::Priority(metric) => key.metric = *metric,
            other => take(&mut route, other),
        }
    }
    if is_reject(route.kind) {
        // The kernel lists such an IPv6 route with the loopback interface, and such an IPv4 route
        // with none.
        route.oif = None;
    }
    Some((key, route))
}

/// True if packets end at a route of this kind.
const fn is_reject(kind: RouteType) -> bool {
    matches!(
        kind,
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw
    )
}

fn of_header(header: &RouteHeader) -> Route {
    Route {
        gateway: None,
        oif: None,
        onlink: header.flags.contains(RouteFlags::Onlink),
        protocol: header.protocol.into(),
        scope: header.scope,
        kind: header.kind,
        src: None,
        hops: Vec::new(),
        nexthop: None,
    }
}

fn take(route: &mut Route, attribute: &RouteAttribute) {
    match attribute {
        RouteAttribute::Gateway(addr) => route.gateway = ip(addr),
        RouteAttribute::Via(addr) => route.gateway = via(addr),
        RouteAttribute::Oif(index) => route.oif = Some(*index),
        RouteAttribute::PrefSource(addr) => route.src = ip(addr),
        RouteAttribute::MultiPath(hops) => {
            route.hops = hops.iter().map(RouteHop::from_message).collect();
        }
        RouteAttribute::NhId(id) => route.nexthop = Some(*id),
        _ => {}
    }
}

/// The message that makes or deletes a route.
pub(super) fn to_message(key: &RouteKey, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = to_kernel(key.family());
    header.destination_prefix_length = key.dst.prefix_len();
    header.protocol = route.protocol.into();
    header.scope = route.scope;
    header.kind = route.kind;
    header.flags.set(RouteFlags::Onlink, route.onlink);
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(key.dst.network().into()));
    attributes.push(RouteAttribute::Table(key.table));
    if key.metric != 0 {
        attributes.push(RouteAttribute::Priority(key.metric));
    }
    match route.nexthop {
        // The kernel refuses a nexthop object together with what the object already says
        // (`rtm_to_fib_config()` in net/ipv4/fib_frontend.c, Linux 6.1:
        // <https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_frontend.c>).
        Some(id) => attributes.push(RouteAttribute::NhId(id)),
        None => attributes.extend(next_hop(key, route)),
    }
    attributes.extend(route.src.map(|src| RouteAttribute::PrefSource(src.into())));
    message
}

fn next_hop(key: &RouteKey, route: &Route) -> impl Iterator<Item = RouteAttribute> {
    let gateway = route.gateway.map(|gateway| match gateway {
        IpAddr::V6(v6) if key.family() == Family::V4 => RouteAttribute::Via(RouteVia::Inet6(v6)),
        same => RouteAttribute::Gateway(same.into()),
    });
    gateway
        .into_iter()
        .chain(route.oif.map(RouteAttribute::Oif))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::protocol;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_message_reads_back_as_what_it_was_made_from() {
        let src = Some(addr("10.0.0.1"));
        for (key, route) in [
            (
                RouteKey::main(net("10.5.2.0/24")),
                Route::onlink(addr("10.5.2.0"), 7, protocol::BOOT),
            ),
            (
                RouteKey::main(net("10.5.3.0/24")),
                Route::via(addr("10.9.0.3"), None, protocol::FLANNEL),
            ),
            (
                RouteKey::main(net("fd00:2::/64")),
                Route::onlink(addr("fd00:2::"), 7, protocol::BOOT),
            ),
            (
                RouteKey {
                    dst: net("10.5.4.0/24"),
                    table: 4000,
                    metric: 9,
                },
                Route {
                    src,
                    ..Route::via(addr("fe80::1"), Some(3), 4)
                },
            ),
        ] {
            assert_eq!(from_message(&to_message(&key, &route)), Some((key, route)));
        }
    }

    #[test]
    fn a_route_without_destination_is_the_default_route() {
        let mut message = RouteMessage::default();
        message.header.address_family = to_kernel(Family::V6);
        let (key, _) = from_message(&message).expect("a route");
        assert_eq!(key.dst, net("::/0"));
    }

    #[test]
    fn a_route_that_leads_nowhere_has_no_device() {
        for (dst, kind) in [
            ("10.5.0.0/16", RouteType::BlackHole),
            ("fd00:5::/48", RouteType::Unreachable),
        ] {
            let route = Route {
                gateway: None,
                kind,
                ..Route::via(addr("10.0.0.1"), None, protocol::FLANNEL)
            };
            let key = RouteKey {
                metric: u32::MAX,
                ..RouteKey::main(net(dst))
            };
            let mut message = to_message(&key, &route);
            message.attributes.push(RouteAttribute::Oif(1));
            assert_eq!(from_message(&message), Some((key, route)));
        }
    }

    #[test]
    fn routes_the_key_cannot_distinguish_are_left_out() {
        let plain = to_message(
            &RouteKey::main(net("10.5.2.0/24")),
            &Route::via(addr("10.0.0.1"), None, 3),
        );
        assert!(from_message(&plain).is_some());
        let mut by_tos = plain.clone();
        by_tos.header.tos = 0x10;
        assert_eq!(from_message(&by_tos), None);
        let mut clone = plain;
        clone.header.flags |= RouteFlags::Cloned;
        assert_eq!(from_message(&clone), None);
    }
}
