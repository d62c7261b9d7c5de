//! From entries to peers.
//!
//! Per family: each lease is checked alone and against ourselves (`check`), then the survivors against each other.
//!
//! * One VTEP MAC, several public addresses: the lease written last counts. A node that came back with another
//!   address leaves its old lease behind for up to a day, and that one must not shut out the living node. The
//!   same MAC with the same address is one node with two leases, and no conflict.
//! * Overlapping subnets: the lease created first counts (then the lexically first name), so that a newcomer
//!   cannot take away what another node is using.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use flannel_common::addr::Mac;

use super::{
    LeaseSet, Peer, RejectReason, Rejected, Resolved,
    check::{Candidate, LeaseFamily, Local, overlap},
    ties::Tie,
};
use crate::{
    config::{BackendConfig, Prefix},
    excerpt::excerpt,
    subnet::{Entry, Lease},
};

impl LeaseSet {
    /// The verdict on everything, as a fresh process would come to it.
    pub fn resolve(&self) -> Resolved {
        self.judge(self.entries.values(), |_, _| ())
    }

    /// The verdict on some entries, as if there were no others. Tells by what each of them may be tied to others.
    pub(super) fn judge<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
        mut tell: impl FnMut(&'a Entry, Tie),
    ) -> Resolved {
        let mut resolved = Resolved::default();
        if self.backend == BackendConfig::Alloc {
            // Nothing is sent to anybody, so nobody is believed or refused.
            return resolved;
        }
        let leases: Vec<_> = entries.filter_map(|entry| self.check_entry(entry, &mut resolved)).collect();
        if let Some(network) = self.networks.v4 {
            self.judge_family(network, &leases, &mut resolved, &mut tell);
        }
        if let Some(network) = self.networks.v6 {
            self.judge_family(network, &leases, &mut resolved, &mut tell);
        }
        resolved.peers.sort();
        resolved.rejected.sort_by(|a, b| (&a.key, a.family).cmp(&(&b.key, b.family)));
        resolved
    }

    /// What does not depend on a family. `None` for refused entries and for our own.
    fn check_entry<'a>(&self, entry: &'a Entry, resolved: &mut Resolved) -> Option<(&'a Entry, &'a Lease)> {
        let ours = self.backend.type_name();
        let reason = match &entry.lease {
            Err(malformed) => RejectReason::Malformed(malformed.clone()),
            Ok(lease) if self.is_own(lease) => return None,
            Ok(lease) if lease.attrs.backend_type != ours => {
                RejectReason::BackendType { theirs: format!("{:?}", excerpt(&lease.attrs.backend_type)), ours }
            }
            Ok(lease) => return Some((entry, lease)),
        };
        resolved.rejected.push(Rejected { key: entry.name.clone(), family: None, reason });
        None
    }

    /// Our lease: the key we hold, written by us. The same key in the name of another node is somebody's claim.
    pub(super) fn is_own(&self, lease: &Lease) -> bool {
        self.own_key == Some(lease.key) && lease.attrs.is_same_node(&self.own_attrs)
    }

    fn judge_family<'a, P: LeaseFamily>(
        &self,
        network: P,
        leases: &[(&'a Entry, &'a Lease)],
        resolved: &mut Resolved,
        tell: &mut impl FnMut(&'a Entry, Tie),
    ) {
        let local = Local::new(network, &self.backend, self.own_key, &self.own_attrs);
        let mut refuse = |entry: &Entry, reason| {
            resolved.rejected.push(Rejected { key: entry.name.clone(), family: Some(P::FAMILY), reason });
        };
        let mut candidates = Vec::with_capacity(leases.len());
        for (entry, lease) in leases {
            let Some(subnet) = P::subnet_of(lease.key) else { continue };
            match local.check(entry, lease, subnet) {
                Ok(candidate) => {
                    tell(entry, Tie { subnet: subnet.into(), mac: candidate.vtep.map(|vtep| vtep.mac) });
                    candidates.push(candidate);
                }
                Err(reason) => refuse(entry, reason),
            }
        }
        let candidates = drop_duplicate_macs(candidates, &mut refuse);
        resolved.peers.extend(drop_overlaps(candidates, &mut refuse).into_iter().map(|candidate| Peer {
            subnet: candidate.subnet.into(),
            public_ip: candidate.public_ip,
            vtep: candidate.vtep,
            key: candidate.entry.name.clone(),
        }));
    }
}

fn drop_duplicate_macs<'a, P>(
    candidates: Vec<Candidate<'a, P>>,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    let mut winners: HashMap<Mac, (&'a Entry, IpAddr)> = HashMap::new();
    for candidate in &candidates {
        let Some(vtep) = candidate.vtep else { continue };
        let winner = winners.entry(vtep.mac).or_insert((candidate.entry, candidate.public_ip));
        if is_newer(candidate.entry, winner.0) {
            *winner = (candidate.entry, candidate.public_ip);
        }
    }
    let believed = |candidate: &Candidate<'a, P>| {
        let Some(vtep) = candidate.vtep else { return true };
        let (winner, public_ip) = winners[&vtep.mac];
        if candidate.public_ip == public_ip {
            return true;
        }
        refuse(candidate.entry, RejectReason::DuplicateMac { mac: vtep.mac, winner: winner.name.clone() });
        false
    };
    let mut candidates = candidates;
    candidates.retain(believed);
    candidates
}

/// Written later; of two written together, the lexically first.
fn is_newer(a: &Entry, b: &Entry) -> bool {
    (a.modified, Reverse(&a.name)) > (b.modified, Reverse(&b.name))
}

fn drop_overlaps<'a, P: Prefix>(
    mut candidates: Vec<Candidate<'a, P>>,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    candidates.sort_by_key(|candidate| (candidate.entry.created, &candidate.entry.name));
    let mut taken: BTreeMap<u128, Candidate<'a, P>> = BTreeMap::new();
    for candidate in candidates {
        // What is taken is disjoint, so of all that starts at or before our end only the last can reach us.
        let before = taken.range(..=candidate.subnet.last()).next_back();
        match before.filter(|(_, other)| overlap(other.subnet, candidate.subnet)) {
            Some((_, winner)) => {
                let (subnet, winner) = (candidate.subnet.into(), winner.entry.name.clone());
                refuse(candidate.entry, RejectReason::Overlap { subnet, winner });
            }
            None => {
                taken.insert(candidate.subnet.first(), candidate);
            }
        }
    }
    taken.into_values().collect()
}
