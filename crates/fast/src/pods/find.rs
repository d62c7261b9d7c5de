//! Finds the links that are pods' veths. Pure.
//!
//! Routes show them: a route of the main table into our own subnet leads to the pod bridge, whose
//! veths are pods, or straight to a pod's veth, where the plugin routes instead of bridging.

use std::collections::{BTreeMap, BTreeSet};

use flannel_netlink::{Link, MAIN_TABLE, Route, RouteKey, RouteType};
use flannel_store::LeaseKey;
use ipnet::IpNet;

/// The links of the namespace and the routes that lead to them.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    pub(super) links: BTreeMap<u32, Link>,
    routes: BTreeSet<(RouteKey, u32)>,
}

impl Namespace {
    /// As it was just read.
    pub(super) fn read(
        links: Vec<Link>,
        routes: impl IntoIterator<Item = (RouteKey, Route)>,
    ) -> Self {
        let links = links.into_iter().map(|link| (link.index, link)).collect();
        Self {
            links,
            routes: routes
                .into_iter()
                .filter_map(|(key, route)| direct(key, &route))
                .collect(),
        }
    }

    /// A route is there, or gone. Returns true if that is news.
    pub(super) fn observe_route(&mut self, key: RouteKey, route: Option<&Route>) -> bool {
        let now = route.and_then(|route| direct(key, route));
        let known = self.routes.iter().find(|(known, _)| *known == key).copied();
        if let Some(known) = known.filter(|known| Some(*known) != now) {
            self.routes.remove(&known);
        }
        self.routes.extend(now);
        known != now
    }

    /// A link is gone. The kernel takes its routes with it, and does not say so.
    pub(super) fn observe_link_gone(&mut self, index: u32) {
        self.links.remove(&index);
        self.routes.retain(|(_, oif)| *oif != index);
    }

    /// The veths of pods with addresses in these subnets, each with the bridge it is on.
    pub(super) fn pods(&self, own: LeaseKey) -> BTreeMap<u32, Option<u32>> {
        let subnets: Vec<IpNet> = [own.v4.map(IpNet::from), own.v6.map(IpNet::from)]
            .into_iter()
            .flatten()
            .collect();
        let is_ours =
            |(key, _): &&(RouteKey, u32)| subnets.iter().any(|subnet| subnet.contains(&key.dst));
        let ways: BTreeSet<u32> = self
            .routes
            .iter()
            .filter(is_ours)
            .map(|(_, oif)| *oif)
            .collect();
        let veths = self
            .links
            .values()
            .filter(|link| link.kind.as_deref() == Some("veth"));
        let is_pod = |veth: &&Link| ways.contains(&veth.controller.unwrap_or(veth.index));
        veths
            .filter(is_pod)
            .map(|veth| (veth.index, veth.controller))
            .collect()
    }
}

/// A route of the main table to what is attached to a link.
fn direct(key: RouteKey, route: &Route) -> Option<(RouteKey, u32)> {
    let attached =
        key.table == MAIN_TABLE && route.kind == RouteType::Unicast && route.gateway.is_none();
    Some((key, route.oif.filter(|_| attached)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_netlink::protocol;

    const CNI0: u32 = 4;

    fn link(index: u32, kind: &str, controller: Option<u32>) -> Link {
        let name = format!("{kind}{index}");
        Link {
            kind: Some(kind.to_owned()),
            controller,
            netns: Some(0),
            ..Link::ethernet(index, &name, 1450)
        }
    }

    fn to(dst: &str, oif: u32) -> (RouteKey, Route) {
        let route = Route::via(std::net::IpAddr::from([0; 4]), Some(oif), protocol::BOOT);
        (
            RouteKey::main(dst.parse().expect("a prefix")),
            Route {
                gateway: None,
                ..route
            },
        )
    }

    fn own() -> LeaseKey {
        LeaseKey {
            v4: Some("10.244.1.0/24".parse().expect("a subnet")),
            v6: None,
        }
    }

    fn namespace(routes: impl IntoIterator<Item = (RouteKey, Route)>) -> Namespace {
        let other = [
            link(8, "veth", Some(9)),
            link(9, "bridge", None),
            link(10, "veth", None),
        ];
        let pods = [
            link(CNI0, "bridge", None),
            link(5, "veth", Some(CNI0)),
            link(6, "veth", None),
        ];
        Namespace::read(other.into_iter().chain(pods).collect(), routes)
    }

    #[test]
    fn veths_to_which_our_routes_lead_are_pods() {
        let namespace = namespace([
            to("10.244.1.0/24", CNI0),
            to("10.244.1.7/32", 6),
            to("10.244.2.1/32", 10),
        ]);
        assert_eq!(
            namespace.pods(own()),
            BTreeMap::from([(5, Some(CNI0)), (6, None)])
        );
    }

    #[test]
    fn routes_by_a_gateway_or_of_other_tables_lead_to_no_pod() {
        let (key, route) = to("10.244.1.0/24", CNI0);
        let by_gateway = Route {
            gateway: Some([10, 0, 0, 1].into()),
            ..route.clone()
        };
        assert_eq!(namespace([(key, by_gateway)]).pods(own()), BTreeMap::new());
        assert_eq!(
            namespace([(RouteKey { table: 7, ..key }, route)]).pods(own()),
            BTreeMap::new()
        );
    }

    #[test]
    fn routes_come_and_go() {
        let mut namespace = namespace([]);
        let (key, route) = to("10.244.1.0/24", CNI0);
        assert!(namespace.observe_route(key, Some(&route)));
        assert!(!namespace.observe_route(key, Some(&route)), "no news");
        assert_eq!(namespace.pods(own()).len(), 1);
        assert!(namespace.observe_route(key, None) && namespace.pods(own()).is_empty());
        namespace.observe_route(key, Some(&route));
        namespace.observe_link_gone(CNI0);
        assert_eq!(
            namespace.pods(own()),
            BTreeMap::new(),
            "the routes of a link go with it"
        );
        let (key, elsewhere) = to("10.244.7.0/24", 3);
        assert!(!namespace.observe_route(
            key,
            Some(&Route::onlink([10, 244, 7, 0].into(), 3, protocol::BOOT))
        ));
        assert!(namespace.observe_route(key, Some(&elsewhere)));
    }
}
