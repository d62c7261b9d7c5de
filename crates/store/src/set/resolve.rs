//! From entries to peers.
//!
//! Per family, each lease is checked by itself and against ourselves (`check`), then the remaining
//! ones against each other.
//!
//! * Overlapping subnets: the lease created first counts (then the lexically first name), so that a
//!   newcomer cannot take away what another node is using. It counts although it may be wider than
//!   others: a cluster whose node masks were changed has subnets of several lengths.
//! * One VTEP MAC or public key, several public addresses: the lease that the store's
//!   [`Precedence`] chooses counts. The same MAC with the same address is one node with two leases,
//!   and no conflict. The same address with another MAC is none either: see
//!   docs/concepts/security.md.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use flannel_host::{excerpt::excerpt, networks::overlap};

use super::{
    EndId, LeaseSet, Peer, RejectReason, Rejected,
    check::{Candidate, Local},
    conflicts::Tie,
    lease_family::LeaseFamily,
};
use crate::{
    config::Prefix,
    {Entry, Lease, Precedence},
};

/// The verdict on a whole set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The accepted leases of others, by subnet. Subnets are disjoint, lie in the pod network and
    /// do not overlap ours; one end of a tunnel has one public address.
    pub peers: Vec<Peer>,
    /// The refused ones, by key.
    pub rejected: Vec<Rejected>,
}

impl LeaseSet {
    /// The verdict on everything, as a fresh process would come to it.
    pub fn resolve(&self) -> Resolved {
        self.judge(self.entries(), |_, _| ())
    }

    /// Returns the verdict on these entries, regardless of any others. For each entry that is valid
    /// by itself, passes to the callback what may tie it to others.
    pub(super) fn judge<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
        mut report_tie: impl FnMut(&'a Entry, Tie),
    ) -> Resolved {
        let mut resolved = Resolved::default();
        if !self.backend.properties().has_peers {
            // The backend sends to no peer, so no lease is accepted or refused.
            return resolved;
        }
        let leases: Vec<_> = entries
            .filter_map(|entry| self.check_entry(entry, &mut resolved))
            .collect();
        if let Some(network) = self.networks.v4 {
            self.judge_family(network, &leases, &mut resolved, &mut report_tie);
        }
        if let Some(network) = self.networks.v6 {
            self.judge_family(network, &leases, &mut resolved, &mut report_tie);
        }
        resolved.peers.sort();
        resolved
            .rejected
            .sort_by(|a, b| (&a.key, a.family).cmp(&(&b.key, b.family)));
        resolved
    }

    /// Makes the checks that do not depend on a family. Returns `None` for refused entries and for
    /// our own.
    fn check_entry<'a>(
        &self,
        entry: &'a Entry,
        resolved: &mut Resolved,
    ) -> Option<(&'a Entry, &'a Lease)> {
        let ours = self.backend.properties().lease_name;
        let reason = match &entry.lease {
            Err(malformed) => RejectReason::Malformed(malformed.clone()),
            Ok(lease) if self.is_own(lease) => return None,
            Ok(lease) if lease.attrs.backend_type != ours => RejectReason::BackendType {
                theirs: format!("{:?}", excerpt(&lease.attrs.backend_type)),
                ours,
            },
            Ok(lease) => return Some((entry, lease)),
        };
        resolved.rejected.push(Rejected {
            key: entry.name.to_string(),
            family: None,
            reason,
        });
        None
    }

    /// Returns true for our lease: the key we hold, written by us. After a change of our address
    /// the store has what we published before, for a moment or while it is away. The same key in
    /// the name of another node is a foreign claim, also if that node has our former address.
    pub(super) fn is_own(&self, lease: &Lease) -> bool {
        let is_ours = || {
            lease.attrs.is_same_node(&self.own_attrs) || self.former_attrs.contains(&lease.attrs)
        };
        self.own_key == Some(lease.key) && is_ours()
    }

    fn judge_family<'a, P: LeaseFamily>(
        &self,
        network: P,
        leases: &[(&'a Entry, &'a Lease)],
        resolved: &mut Resolved,
        report_tie: &mut impl FnMut(&'a Entry, Tie),
    ) {
        let local = Local::new(
            network,
            self.ends,
            self.own_key,
            &self.own_attrs,
            &self.host,
        );
        let mut refuse = |entry: &Entry, reason| {
            resolved.rejected.push(Rejected {
                key: entry.name.to_string(),
                family: Some(P::FAMILY),
                reason,
            });
        };
        let mut candidates = Vec::with_capacity(leases.len());
        for (entry, lease) in leases {
            let Some(subnet) = P::subnet_of(lease.key) else {
                continue;
            };
            match local.check(entry, lease, subnet) {
                Ok(candidate) => {
                    report_tie(
                        entry,
                        Tie {
                            subnet: subnet.into(),
                            end: candidate.end_id(),
                        },
                    );
                    candidates.push(candidate);
                }
                Err(reason) => refuse(entry, reason),
            }
        }
        // Overlaps are dropped first, so a lease that lost its subnet takes no end from another
        // lease.
        let candidates = drop_overlaps(candidates, &mut refuse);
        let believed = drop_duplicate_ends(candidates, self.precedence, &mut refuse);
        resolved
            .peers
            .extend(believed.into_iter().map(|candidate| Peer {
                subnet: candidate.subnet.into(),
                public_ip: candidate.public_ip,
                end: candidate.end,
                key: Arc::clone(&candidate.entry.name),
            }));
    }
}

fn drop_duplicate_ends<'a, P>(
    candidates: Vec<Candidate<'a, P>>,
    precedence: Precedence,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    let winners = winners_of_contested(&candidates, precedence);
    let believed = |candidate: &Candidate<'a, P>| {
        let Some(end) = candidate.end_id() else {
            return true;
        };
        let Some((winner, _)) = winners
            .get(&end)
            .filter(|(_, public_ip)| candidate.public_ip != *public_ip)
        else {
            return true;
        };
        let winner = winner.name.to_string();
        refuse(
            candidate.entry,
            RejectReason::DuplicateEnd {
                end,
                winner,
                precedence,
            },
        );
        false
    };
    let mut candidates = candidates;
    candidates.retain(believed);
    candidates
}

/// Returns the accepted lease of each end of a tunnel that several claim, with its public address.
fn winners_of_contested<'a, P>(
    candidates: &[Candidate<'a, P>],
    precedence: Precedence,
) -> BTreeMap<EndId, (&'a Entry, IpAddr)> {
    let claim = |candidate| Some((Candidate::end_id(candidate)?, candidate));
    let mut claims: Vec<(EndId, &Candidate<'a, P>)> = candidates.iter().filter_map(claim).collect();
    claims.sort_by_key(|(end, _)| *end);
    let winner = |claims: &[(EndId, &Candidate<'a, P>)]| {
        let entries: Vec<_> = claims.iter().map(|(_, claim)| claim.entry).collect();
        let winner = precedence.choose(&entries)?;
        let (end, claim) = claims
            .iter()
            .find(|(_, claim)| claim.entry.name == winner.name)?;
        Some((*end, (winner, claim.public_ip)))
    };
    let contested = claims
        .chunk_by(|(one, _), (other, _)| one == other)
        .filter(|claims| claims.len() > 1);
    contested.filter_map(winner).collect()
}

fn drop_overlaps<'a, P: Prefix>(
    mut candidates: Vec<Candidate<'a, P>>,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    candidates.sort_by_key(|candidate| (candidate.entry.created, &candidate.entry.name));
    let mut taken: BTreeMap<u128, Candidate<'a, P>> = BTreeMap::new();
    for candidate in candidates {
        // What is taken is disjoint, so of all that starts at or before our end only the last can
        // reach us.
        let before = taken.range(..=candidate.subnet.last()).next_back();
        match before.filter(|(_, other)| overlap(other.subnet, candidate.subnet)) {
            Some((_, winner)) => {
                let (subnet, winner) = (candidate.subnet.into(), winner.entry.name.to_string());
                refuse(candidate.entry, RejectReason::Overlap { subnet, winner });
            }
            None => {
                taken.insert(candidate.subnet.first(), candidate);
            }
        }
    }
    taken.into_values().collect()
}
