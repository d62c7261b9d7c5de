//! The comparison. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_common::{addr::Mac, node::NodeConfig};
use ipnet::IpNet;
use serde::Serialize;

use super::{networks, of_map};
use crate::{
    datapath::peers::{PinnedPeer, family_config, subnet_index},
    family::Family,
    netlink::{FdbKey, NeighbourKey, Route, RouteKey},
};

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where: `map`, `route`, `neighbour` or `fdb`.
    pub place: &'static str,
    /// What it is about.
    pub object: String,
    /// What is there; absent where nothing is.
    pub found: Option<String>,
    /// What should be; absent where nothing should.
    pub wanted: Option<String>,
}

/// How packets should reach a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Plain,
    Kernel,
}

/// A peer as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) subnet: IpNet,
    pub(super) vtep: IpAddr,
    pub(super) mac: Mac,
    pub(super) way: Way,
}

/// What the kernel has.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub(super) routes: Vec<(RouteKey, Route)>,
    pub(super) neighbours: Vec<(NeighbourKey, Mac)>,
    pub(super) fdb: Vec<(FdbKey, IpAddr)>,
}

impl Expected {
    fn text(&self) -> String {
        let way = match self.way {
            Way::Direct => "direct",
            Way::Plain => "plain",
            Way::Kernel => "kernel",
        };
        format!("{} {} {way}", self.vtep, self.mac)
    }
}

/// What two tables say of the same objects, where they differ.
fn tables<K: Ord + Copy>(
    place: &'static str,
    found: &BTreeMap<K, String>,
    wanted: &BTreeMap<K, String>,
    name: impl Fn(&K) -> String,
) -> Vec<Difference> {
    let keys: BTreeSet<K> = found.keys().chain(wanted.keys()).copied().collect();
    let differing = keys.into_iter().filter(|key| found.get(key) != wanted.get(key));
    let difference = |key| Difference {
        place,
        object: name(&key),
        found: found.get(&key).cloned(),
        wanted: wanted.get(&key).cloned(),
    };
    differing.map(difference).collect()
}

/// The maps against the leases. A lease of another size than the network's subnets has no place in the map.
pub(super) fn leases_and_maps(leased: &[Expected], pinned: &[PinnedPeer], config: &NodeConfig) -> Vec<Difference> {
    let has_place = |peer: &&Expected| {
        let family = Family::of(peer.vtep);
        let shift = family_config(config, family).subnet_shift;
        let is_whole = u32::from(family.bits() - peer.subnet.prefix_len()) == shift;
        is_whole && subnet_index(config, peer.subnet.addr()).is_some()
    };
    let by_subnet = |peer: &Expected| (peer.subnet, peer.text());
    let found = pinned.iter().map(|peer| by_subnet(&of_map(peer))).collect();
    let wanted = leased.iter().filter(has_place).map(by_subnet).collect();
    tables("map", &found, &wanted, |subnet| format!("peer {subnet}"))
}

/// The map of VTEPs against that of peers.
pub(super) fn vteps(pinned: &[PinnedPeer], vteps: &BTreeMap<IpAddr, u32>) -> Vec<Difference> {
    // Several subnets may be behind one VTEP: any of them will do.
    let mut behind: BTreeMap<IpAddr, Vec<u32>> = BTreeMap::new();
    for peer in pinned {
        behind.entry(peer.entry.vtep.into()).or_default().push(peer.index);
    }
    let stale = vteps.iter().filter(|(vtep, index)| !behind.get(vtep).is_some_and(|known| known.contains(index)));
    let stale = stale.map(|(vtep, index)| Difference {
        place: "map",
        object: format!("VTEP {vtep}"),
        found: Some(format!("subnet number {index}")),
        wanted: behind.get(vtep).map(|known| format!("subnet number {}", known[0])),
    });
    let lacking = pinned.iter().filter(|peer| !vteps.contains_key(&peer.entry.vtep.into()));
    let lacking = lacking.map(|peer| Difference {
        place: "map",
        object: format!("VTEP {}", peer.entry.vtep),
        found: None,
        wanted: Some(format!("subnet number {}", peer.index)),
    });
    stale.chain(lacking).collect()
}

/// The kernel against the peers.
pub(super) fn kernel(expected: &[Expected], kernel: &Kernel, config: &NodeConfig) -> Vec<Difference> {
    let tunnel = |address: IpAddr| family_config(config, Family::of(address)).tunnel_ifindex;
    let through = || expected.iter().filter(|peer| peer.way != Way::Direct);
    let mut differences = routes(expected, &kernel.routes, config);

    let wanted = through().map(|peer| ((tunnel(peer.vtep), peer.subnet.addr()), peer.mac.to_string())).collect();
    let found = kernel.neighbours.iter().map(|(key, mac)| ((key.ifindex, key.addr), mac.to_string())).collect();
    differences.extend(tables("neighbour", &found, &wanted, |(_, address)| address.to_string()));

    let wanted = through().map(|peer| ((tunnel(peer.vtep), peer.mac.0), peer.vtep.to_string())).collect();
    let found = kernel.fdb.iter().map(|(key, vtep)| ((key.ifindex, key.mac.0), vtep.to_string())).collect();
    differences.extend(tables("fdb", &found, &wanted, |(_, mac)| Mac(*mac).to_string()));
    differences
}

/// The routes to peers' subnets, and those into the tunnel to nobody's.
fn routes(expected: &[Expected], routes: &[(RouteKey, Route)], config: &NodeConfig) -> Vec<Difference> {
    let tunnel = |address: IpAddr| family_config(config, Family::of(address)).tunnel_ifindex;
    let subnets: BTreeSet<IpNet> = expected.iter().map(|peer| peer.subnet).collect();
    let networks = networks(config);
    let into_tunnel = |key: &RouteKey, route: &Route| {
        networks
            .iter()
            .any(|(network, tunnel)| network.contains(&key.dst) && route.oif == Some(*tunnel) && route.onlink)
    };
    let found = routes
        .iter()
        .filter(|(key, route)| {
            into_tunnel(key, route) || (subnets.contains(&key.dst) && *key == RouteKey::main(key.dst))
        })
        .map(|(key, found)| (*key, route(found.oif, found.gateway, found.onlink)))
        .collect();
    let by_gateway: BTreeMap<(IpNet, IpAddr), Option<u32>> =
        routes.iter().filter_map(|(key, route)| Some(((key.dst, route.gateway?), route.oif))).collect();
    let wanted = expected.iter().map(|peer| {
        let way = match peer.way {
            // The device is the underlay's business; the gateway is the peer itself.
            Way::Direct => route(by_gateway.get(&(peer.subnet, peer.vtep)).copied().flatten(), Some(peer.vtep), false),
            _ => route(Some(tunnel(peer.vtep)), Some(peer.subnet.addr()), true),
        };
        (RouteKey::main(peer.subnet), way)
    });
    tables("route", &found, &wanted.collect(), |key| key.dst.to_string())
}

fn route(oif: Option<u32>, gateway: Option<IpAddr>, onlink: bool) -> String {
    let gateway = gateway.map(|gateway| format!("via {gateway} ")).unwrap_or_default();
    let device = oif.map_or_else(|| "no device".to_owned(), |oif| format!("device {oif}"));
    format!("{gateway}{device}{}", if onlink { " onlink" } else { "" })
}

#[cfg(test)]
mod tests {
    use flannel_common::{
        node::FamilyConfig,
        peer::{PeerEntry, Word},
    };

    use super::*;
    use crate::netlink::protocol;

    const TUNNEL: u32 = 3;
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn config() -> NodeConfig {
        let v4 = FamilyConfig {
            network: ip("10.244.0.0").into(),
            subnet_shift: 8,
            subnet_count: 256,
            tunnel_ifindex: TUNNEL,
            ..FamilyConfig::default()
        };
        NodeConfig { v4, ..NodeConfig::default() }
    }

    fn peer(way: Way) -> Expected {
        Expected { subnet: "10.244.9.0/24".parse().expect("a prefix"), vtep: ip("192.168.1.12"), mac: MAC, way }
    }

    fn pinned() -> PinnedPeer {
        let word = Word::new(Word::VALID | Word::PLAIN, 1);
        let entry = PeerEntry { word, vtep: ip("192.168.1.12").into(), mac: MAC, ..PeerEntry::default() };
        PinnedPeer { index: 9, subnet: peer(Way::Plain).subnet, entry }
    }

    fn sound() -> Kernel {
        let key = RouteKey::main(peer(Way::Plain).subnet);
        Kernel {
            routes: vec![(key, Route::onlink(ip("10.244.9.0"), TUNNEL, protocol::BOOT))],
            neighbours: vec![(NeighbourKey { ifindex: TUNNEL, addr: ip("10.244.9.0") }, MAC)],
            fdb: vec![(FdbKey { ifindex: TUNNEL, mac: MAC }, ip("192.168.1.12"))],
        }
    }

    fn places(differences: &[Difference]) -> Vec<(&str, bool, bool)> {
        differences.iter().map(|one| (one.place, one.found.is_some(), one.wanted.is_some())).collect()
    }

    #[test]
    fn what_agrees_is_not_told() {
        assert_eq!(kernel(&[peer(Way::Plain)], &sound(), &config()), []);
        assert_eq!(leases_and_maps(&[peer(Way::Plain)], &[pinned()], &config()), []);
        assert_eq!(vteps(&[pinned()], &BTreeMap::from([(ip("192.168.1.12"), 9)])), []);
    }

    #[test]
    fn what_lacks_and_what_is_too_much_is_told() {
        let expected = [peer(Way::Plain)];
        let lacking = kernel(&expected, &Kernel::default(), &config());
        assert_eq!(places(&lacking), [("route", false, true), ("neighbour", false, true), ("fdb", false, true)]);
        let too_much = kernel(&[], &sound(), &config());
        assert_eq!(places(&too_much), [("route", true, false), ("neighbour", true, false), ("fdb", true, false)]);
        let mut wrong = sound();
        wrong.fdb[0].1 = ip("192.168.1.99");
        let wrong = kernel(&expected, &wrong, &config());
        assert_eq!(wrong[0].found.as_deref(), Some("192.168.1.99"));
        assert_eq!(places(&wrong), [("fdb", true, true)]);
    }

    #[test]
    fn a_direct_peer_has_a_route_and_nothing_else() {
        let key = RouteKey::main(peer(Way::Direct).subnet);
        let routes = vec![(key, Route::via(ip("192.168.1.12"), Some(2), protocol::FLANNEL))];
        let direct = Kernel { routes, ..Kernel::default() };
        assert_eq!(kernel(&[peer(Way::Direct)], &direct, &config()), []);
        assert_eq!(places(&kernel(&[peer(Way::Direct)], &sound(), &config())).len(), 3);
    }

    #[test]
    fn maps_are_held_against_leases() {
        let config = config();
        assert_eq!(places(&leases_and_maps(&[], &[pinned()], &config)), [("map", true, false)]);
        assert_eq!(places(&leases_and_maps(&[peer(Way::Kernel)], &[pinned()], &config)), [("map", true, true)]);
        let small = Expected { subnet: "10.244.9.0/25".parse().expect("a prefix"), ..peer(Way::Kernel) };
        assert_eq!(leases_and_maps(&[small], &[], &config), [], "it has no number");
        assert_eq!(places(&vteps(&[pinned()], &BTreeMap::new())), [("map", false, true)]);
        assert_eq!(places(&vteps(&[], &BTreeMap::from([(ip("192.168.1.12"), 9)]))), [("map", true, false)]);
    }

    #[test]
    fn a_network_is_known_by_its_subnets() {
        assert_eq!(networks(&config()), [("10.244.0.0/16".parse().expect("a prefix"), TUNNEL)]);
    }
}
