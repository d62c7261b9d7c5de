use flannel_common::abi::{
    ecmp::{EcmpPath, EcmpPathKey},
    node::FamilyConfig,
    peer::PeerEntry,
};
use flannel_netlink::protocol;

use super::*;

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
        port: 8472_u16.to_be_bytes(),
        tunnel_ifindex: TUNNEL,
        ..FamilyConfig::default()
    };
    NodeConfig {
        v4,
        ..NodeConfig::default()
    }
}

fn peer(way: ExpectedWay) -> Expected {
    Expected {
        subnet: "10.244.9.0/24".parse().expect("a prefix"),
        vtep: ip("192.168.1.12"),
        mac: MAC,
        way,
    }
}

fn pinned() -> PinnedPeer {
    let word = EntryState::new(EntryState::VALID | EntryState::PLAIN, 1);
    let entry = PeerEntry {
        word,
        vtep: ip("192.168.1.12").into(),
        mac: MAC,
        ..PeerEntry::default()
    };
    PinnedPeer {
        index: 9,
        subnet: peer(ExpectedWay::Plain).subnet,
        entry,
    }
}

fn sound() -> Kernel {
    let key = RouteKey::main(peer(ExpectedWay::Plain).subnet);
    Kernel {
        routes: vec![(key, Route::onlink(ip("10.244.9.0"), TUNNEL, protocol::BOOT))],
        neighbours: vec![(
            NeighbourKey {
                ifindex: TUNNEL,
                addr: ip("10.244.9.0"),
            },
            MAC,
        )],
        fdb: vec![(
            FdbKey {
                ifindex: TUNNEL,
                mac: MAC,
            },
            ip("192.168.1.12"),
        )],
    }
}

fn places(differences: &[Difference]) -> Vec<(&str, bool, bool)> {
    differences
        .iter()
        .map(|one| (one.place.name(), one.found.is_some(), one.wanted.is_some()))
        .collect()
}

#[test]
fn what_agrees_is_not_reported() {
    assert_eq!(kernel(&[peer(ExpectedWay::Plain)], &sound(), &config()), []);
    assert_eq!(
        leases_and_maps(&[peer(ExpectedWay::Plain)], &[pinned()], &config()),
        []
    );
    assert_eq!(
        vteps(
            &[pinned()],
            &BTreeMap::from([(ip("192.168.1.12"), 9)]),
            &config()
        ),
        []
    );
}

#[test]
fn what_lacks_and_what_is_too_much_is_reported() {
    let expected = [peer(ExpectedWay::Plain)];
    let lacking = kernel(&expected, &Kernel::default(), &config());
    assert_eq!(
        places(&lacking),
        [
            ("route", false, true),
            ("neighbour", false, true),
            ("fdb", false, true)
        ]
    );
    let too_much = kernel(&[], &sound(), &config());
    assert_eq!(
        places(&too_much),
        [
            ("route", true, false),
            ("neighbour", true, false),
            ("fdb", true, false)
        ]
    );
    let mut wrong = sound();
    wrong.fdb[0].1 = ip("192.168.1.99");
    let wrong = kernel(&expected, &wrong, &config());
    assert_eq!(wrong[0].found.as_deref(), Some("192.168.1.99"));
    assert_eq!(places(&wrong), [("fdb", true, true)]);
}

#[test]
fn a_direct_peer_has_a_route_and_nothing_else() {
    let key = RouteKey::main(peer(ExpectedWay::Direct).subnet);
    let routes = vec![(
        key,
        Route::via(ip("192.168.1.12"), Some(2), protocol::FLANNEL),
    )];
    let direct = Kernel {
        routes,
        ..Kernel::default()
    };
    assert_eq!(kernel(&[peer(ExpectedWay::Direct)], &direct, &config()), []);
    assert_eq!(
        places(&kernel(&[peer(ExpectedWay::Direct)], &sound(), &config())).len(),
        3
    );
}

#[test]
fn maps_are_held_against_leases() {
    let config = config();
    assert_eq!(
        places(&leases_and_maps(&[], &[pinned()], &config)),
        [("map", true, false)]
    );
    assert_eq!(
        places(&leases_and_maps(
            &[peer(ExpectedWay::Kernel)],
            &[pinned()],
            &config
        )),
        [("map", true, true)]
    );
    let small = Expected {
        subnet: "10.244.9.0/25".parse().expect("a prefix"),
        ..peer(ExpectedWay::Kernel)
    };
    assert_eq!(
        leases_and_maps(&[small], &[], &config),
        [],
        "it has no number"
    );
    assert_eq!(
        places(&vteps(&[pinned()], &BTreeMap::new(), &config)),
        [("map", false, true)]
    );
    assert_eq!(
        places(&vteps(
            &[],
            &BTreeMap::from([(ip("192.168.1.12"), 9)]),
            &config
        )),
        [("map", true, false)]
    );
}

/// Without a tunnel no peer is a VTEP; one that is in the map is of an earlier configuration.
#[test]
fn without_a_tunnel_there_are_no_vteps() {
    let mut config = config();
    (config.v4.port, config.v4.tunnel_ifindex) = ([0; 2], 0);
    assert_eq!(vteps(&[pinned()], &BTreeMap::new(), &config), []);
    assert_eq!(
        places(&vteps(
            &[pinned()],
            &BTreeMap::from([(ip("192.168.1.12"), 9)]),
            &config
        ))
        .len(),
        1
    );
}

#[test]
fn a_network_is_known_by_its_subnets() {
    assert_eq!(
        networks(&config()),
        [("10.244.0.0/16".parse().expect("a prefix"), TUNNEL)]
    );
}

#[test]
fn ecmp_paths_belong_to_peers_that_have_ecmp_paths() {
    let ecmp_path = (
        EcmpPathKey::new(ethertype(Family::V4), 9, 2),
        EcmpPath::new(1500),
    );
    let with = PinnedEcmpPaths::of_test([ecmp_path]);
    let mut peer = pinned();
    assert_eq!(ecmp_paths(&[peer], &PinnedEcmpPaths::default()), []);
    assert_eq!(
        ecmp_paths(&[peer], &with)[0].object,
        "ECMP path of subnet number 9"
    );
    peer.entry.word = EntryState::new(EntryState::VALID | EntryState::PLAIN | EntryState::ECMP, 1);
    assert_eq!(ecmp_paths(&[peer], &with), []);
    assert_eq!(
        ecmp_paths(&[peer], &PinnedEcmpPaths::default())[0].object,
        "ECMP paths of peer 10.244.9.0/24"
    );
}
