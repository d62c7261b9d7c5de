//! Turn by turn adds up to all at once.

use flannel_backend_api::{Backend, Desired, Node, PodNetwork, underlay::Underlay};
use flannel_store::{Entry, LeaseAttrs, LeaseSet, Precedence, config::NetworkConfig};
use proptest::prelude::*;

use super::*;
use crate::entries::Entries;

fn config() -> NetworkConfig {
    NetworkConfig::parse(r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#)
        .expect("a configuration")
}

fn node() -> Node {
    Node {
        network: PodNetwork {
            prefix: "10.5.0.0/16".parse().expect("a network"),
            subnet_len: 24,
        },
        subnet: "10.5.200.0/24".parse().expect("a subnet"),
        source: "192.0.2.200".parse().expect("an address"),
        external: 2,
        tunnel: Some((7, Mac([2, 0, 0, 0, 0, 200]))),
        port_range: (32768, 60999),
    }
}

/// One step: a lease with one of a few subnets, addresses and MACs is written or deleted, or all
/// are listed; known changes are processed, some at a time; the way to every peer may have changed.
#[derive(Clone, Debug)]
enum Event {
    Put { subnet: u8, ip: u8, mac: u8 },
    Delete { subnet: u8 },
    List,
    Turn { about: usize },
    MarkStale,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..7_u8, 1..5_u8, 1..5_u8).prop_map(|(subnet, ip, mac)| {
            Event::Put { subnet, ip, mac }
        }),
        2 => (1..7_u8).prop_map(|subnet| Event::Delete { subnet }),
        1 => Just(Event::List),
        5 => (1..3_usize).prop_map(|about| Event::Turn { about }),
        1 => Just(Event::MarkStale),
    ]
}

struct World {
    backend: Arc<dyn Backend>,
    stored: BTreeMap<u8, Entry>,
    leases: LeaseSet,
    peers: Peers,
    entries: Entries,
    vteps: BTreeMap<flannel_common::packet::addr::Addr, u32>,
    now: i64,
}

impl World {
    fn new() -> Self {
        Self {
            backend: flannel_backends::of(&config().backend),
            stored: BTreeMap::new(),
            leases: LeaseSet::new(&config(), Precedence::FirstRenewed, LeaseAttrs::default()),
            peers: Peers::new(Family::V4, SharedPeers::default()),
            entries: Entries::new(usize::MAX),
            vteps: BTreeMap::new(),
            now: 0,
        }
    }

    fn take(&mut self, event: &Event) {
        self.now += 1;
        match *event {
            Event::Put { subnet, ip, mac } => {
                let value = format!(
                    r#"{{"PublicIP":"192.0.2.{ip}","BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"02:00:00:00:00:0{mac}"}}}}"#
                );
                let created = self
                    .stored
                    .get(&subnet)
                    .map_or(self.now, |entry| entry.created);
                let entry = Entry::parse(
                    &format!("10.5.{subnet}.0-24"),
                    value.as_bytes(),
                    created,
                    self.now,
                );
                self.stored.insert(subnet, entry.clone());
                self.leases.put(entry);
            }
            Event::Delete { subnet } => {
                self.stored.remove(&subnet);
                self.leases.delete(&format!("10.5.{subnet}.0-24"));
            }
            Event::List => self.leases.replace(self.stored.values().cloned()),
            Event::Turn { about } => self.turn(about),
            Event::MarkStale => self.peers.mark_all_stale(),
        }
    }

    fn turn(&mut self, about: usize) {
        let changes = self.leases.changes();
        if changes.all {
            self.peers.retain(&changes.peers);
        }
        for (subnet, peer) in changes.peers {
            self.peers.update(subnet, peer);
        }
        let Turn { before, after } = self.peers.turn(about);
        let ways = self.ways(after);
        let [wanted, wants] = [&before, &ways].map(|ways| self.backend.desired(&node(), ways));
        self.entries.change(&wanted, &wants);
        self.vteps
            .retain(|vtep, _| !wanted.vteps.contains_key(vtep));
        self.vteps
            .extend(wants.vteps.iter().map(|(vtep, entry)| (*vtep, entry.index)));
        self.peers.finish(&before, ways);
    }

    fn ways(&self, peers: Vec<Peer>) -> Vec<PeerWay> {
        let way = |peer: Peer| PeerWay {
            way: self.backend.way(&node(), &Underlay::new(Some(8472)), &peer),
            peer,
        };
        peers.into_iter().map(way).collect()
    }

    /// Returns the state that a new process would want.
    fn fresh(&self) -> Desired {
        self.backend
            .desired(&node(), &self.ways(self.leases.resolve().peers))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn turn_by_turn_adds_up_to_what_a_fresh_process_wants(
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World::new();
        for event in &events {
            world.take(event);
        }
        world.turn(1);
        while !world.peers.is_settled() {
            world.turn(1);
        }
        let fresh = world.fresh();
        prop_assert_eq!(world.entries.neighbours.wanted(), &fresh.neighbours);
        prop_assert_eq!(world.entries.fdb.wanted(), &fresh.fdb);
        prop_assert_eq!(world.entries.routes.wanted(), &fresh.routes);
        let vteps: BTreeMap<_, _> = fresh
            .vteps
            .iter()
            .map(|(vtep, entry)| (*vtep, entry.index))
            .collect();
        prop_assert_eq!(&world.vteps, &vteps);
        prop_assert_eq!(world.peers.len(), world.leases.resolve().peers.len());
        prop_assert_eq!(
            world.peers.shared.list(|way| way.peer.clone()),
            world.leases.resolve().peers
        );
        let counted =
            world
                .peers
                .shared
                .list(kind)
                .into_iter()
                .fold(BTreeMap::new(), |mut ways, kind| {
                    *ways.entry(kind).or_default() += 1;
                    ways
                });
        let mut kept = world.peers.shared.ways();
        kept.retain(|_, count| *count > 0);
        prop_assert_eq!(kept, counted);
    }
}
