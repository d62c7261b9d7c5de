//! The peers of one family: who they are, how packets reach them, and whose entries have to be
//! computed again.
//!
//! A change costs the peers it touches. Several peers may have entries in common (one node's two
//! subnets share its forwarding entry), so each turn is closed: a peer that shares a public address
//! or a VTEP MAC with a peer of the turn, as it was or as it will be, is part of the turn too. So
//! the entries a turn wanted before and those it wants now say everything about the entries in
//! question, and all turns together give the same result as one pass over all peers. Pure.

mod by_subnet;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use flannel_backend_api::PeerWay;
use flannel_common::packet::addr::Mac;
use flannel_host::{family::Family, packing::Packing};
use flannel_store::Peer;
use ipnet::IpNet;

use self::by_subnet::BySubnet;

/// The peers of all families and how packets reach them, for any reader. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedPeers(Arc<Mutex<KnownPeers>>);

impl SharedPeers {
    /// Something about every peer, by subnet.
    pub fn list<T>(&self, mut say: impl FnMut(&PeerWay) -> T) -> Vec<T> {
        self.lock()
            .peers
            .iter()
            .map(|BySubnet(way)| say(way))
            .collect()
    }

    /// Returns the number of peers by family and name of their way. No caller waits for a count
    /// over all peers: the numbers are kept.
    pub fn ways(&self) -> BTreeMap<(Family, &'static str), usize> {
        self.lock().ways.clone()
    }

    fn lock(&self) -> MutexGuard<'_, KnownPeers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content of [`SharedPeers`].
#[derive(Debug, Default)]
struct KnownPeers {
    peers: BTreeSet<BySubnet>,
    packing: Packing,
    ways: BTreeMap<(Family, &'static str), usize>,
}

impl KnownPeers {
    fn get(&self, subnet: &IpNet) -> Option<&PeerWay> {
        self.peers.get(subnet).map(|BySubnet(way)| &**way)
    }

    fn insert(&mut self, way: PeerWay) {
        self.remove(&way.peer.subnet);
        *self.ways.entry(kind(&way)).or_default() += 1;
        self.peers.insert(BySubnet(way.into()));
    }

    fn pack(&mut self) {
        self.packing.pack_set(&mut self.peers);
    }

    fn remove(&mut self, subnet: &IpNet) {
        if let Some(BySubnet(way)) = self.peers.take(subnet)
            && let Some(count) = self.ways.get_mut(&kind(&way))
        {
            *count -= 1;
        }
    }
}

fn kind(way: &PeerWay) -> (Family, &'static str) {
    (Family::of(way.peer.subnet.addr()), way.way.name())
}

/// The peers of one family, and what is not worked out yet.
#[derive(Debug)]
pub(super) struct Peers {
    family: Family,
    shared: SharedPeers,
    addresses: BTreeSet<(IpAddr, IpNet)>,
    macs: BTreeSet<(Mac, IpNet)>,
    /// Of addresses, of MACs, and of changes.
    packing: [Packing; 3],
    /// The number of peers once all changes are processed.
    count: usize,
    /// Peers that are new, different or (`None`) gone.
    changes: BTreeMap<IpNet, Option<Peer>>,
    /// Peers to which the way may have changed.
    again: BTreeSet<IpNet>,
}

/// Some peers, closed under what they share.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// As they were.
    pub(super) before: Vec<PeerWay>,
    /// As they are now.
    pub(super) after: Vec<Peer>,
}

impl Peers {
    pub(super) fn new(family: Family, shared: SharedPeers) -> Self {
        Self {
            family,
            shared,
            addresses: BTreeSet::new(),
            macs: BTreeSet::new(),
            packing: [Packing::default(); 3],
            count: 0,
            changes: BTreeMap::new(),
            again: BTreeSet::new(),
        }
    }

    /// Peers that are not among these are gone.
    pub(super) fn retain(&mut self, named: &BTreeMap<IpNet, Option<Peer>>) {
        let known: Vec<IpNet> = self
            .addresses
            .iter()
            .map(|(_, subnet)| subnet)
            .chain(self.changes.keys())
            .copied()
            .collect();
        known
            .into_iter()
            .filter(|subnet| !named.contains_key(subnet))
            .for_each(|subnet| self.update(subnet, None));
    }

    /// A peer is this way, or gone.
    pub(super) fn update(&mut self, subnet: IpNet, peer: Option<Peer>) {
        let shared = self.shared.lock();
        let worked_in = shared.get(&subnet).map(|way| &way.peer);
        let known = self.changes.get(&subnet).map_or(worked_in, Option::as_ref);
        self.count += usize::from(peer.is_some());
        self.count -= usize::from(known.is_some());
        if worked_in == peer.as_ref() {
            self.changes.remove(&subnet);
        } else {
            self.changes.insert(subnet, peer);
            self.packing[2].pack(&mut self.changes);
        }
    }

    /// The way to every peer may have changed.
    pub(super) fn mark_all_stale(&mut self) {
        self.again
            .extend(self.addresses.iter().map(|(_, subnet)| *subnet));
    }

    /// The way to peers with these addresses may have changed. Returns true if there are any.
    pub(super) fn mark_stale_under(&mut self, destination: IpNet) -> bool {
        let stale: Vec<_> = self
            .addresses
            .iter()
            .filter(|(address, _)| destination.contains(address))
            .collect();
        self.again.extend(stale.iter().map(|(_, subnet)| *subnet));
        !stale.is_empty()
    }

    /// Returns the number of peers, including those that are not processed yet.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there is nothing left to process.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty() && self.again.is_empty()
    }

    /// Returns true if all changes are processed. The way to some peers may still have to be
    /// computed again.
    pub(super) fn is_complete(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns about `about` peers to process next, new and changed peers first. [`SharedPeers`]
    /// shows their previous state until [`Self::finish`].
    pub(super) fn turn(&mut self, about: usize) -> Turn {
        let first: Vec<IpNet> = self
            .changes
            .keys()
            .chain(&self.again)
            .take(about)
            .copied()
            .collect();
        let subnets = self.closure(first);
        let mut turn = Turn::default();
        for subnet in &subnets {
            let before = self.shared.lock().get(subnet).cloned();
            let unchanged = || before.as_ref().map(|way| way.peer.clone());
            turn.after
                .extend(self.changes.remove(subnet).unwrap_or_else(unchanged));
            turn.before.extend(before);
            self.again.remove(subnet);
        }
        turn
    }

    /// Publishes the result of a turn: these peers, in place of those before.
    pub(super) fn finish(&mut self, before: &[PeerWay], ways: Vec<PeerWay>) {
        let mut shared = self.shared.lock();
        for PeerWay { peer, .. } in before {
            shared.remove(&peer.subnet);
            self.addresses.remove(&(peer.public_ip, peer.subnet));
            if let Some(vtep) = peer.vtep() {
                self.macs.remove(&(vtep.mac, peer.subnet));
            }
        }
        for way in ways {
            let Peer {
                subnet, public_ip, ..
            } = way.peer;
            let vtep = way.peer.vtep();
            self.addresses.insert((public_ip, subnet));
            self.macs.extend(vtep.map(|vtep| (vtep.mac, subnet)));
            shared.insert(way);
        }
        shared.pack();
        self.packing[0].pack_set(&mut self.addresses);
        self.packing[1].pack_set(&mut self.macs);
    }

    fn closure(&self, first: Vec<IpNet>) -> BTreeSet<IpNet> {
        let shared = self.shared.lock();
        let mut subnets: BTreeSet<IpNet> = first.iter().copied().collect();
        let mut waiting = first;
        while let Some(subnet) = waiting.pop() {
            let was = shared.get(&subnet).map(|way| &way.peer);
            let will_be = self.changes.get(&subnet).and_then(Option::as_ref);
            for peer in was.into_iter().chain(will_be) {
                waiting.extend(self.sharing(peer).filter(|other| subnets.insert(*other)));
            }
        }
        subnets
    }

    fn sharing(&self, peer: &Peer) -> impl Iterator<Item = IpNet> {
        let lowest = match self.family {
            Family::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Family::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        };
        let address = peer.public_ip;
        let by_address = self
            .addresses
            .range((address, lowest)..)
            .take_while(move |(other, _)| *other == address);
        let by_mac = peer.vtep().into_iter().flat_map(move |vtep| {
            self.macs
                .range((vtep.mac, lowest)..)
                .take_while(move |(other, _)| *other == vtep.mac)
                .map(|(_, subnet)| *subnet)
        });
        by_address.map(|(_, subnet)| *subnet).chain(by_mac)
    }
}
