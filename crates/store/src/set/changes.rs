//! The effect of a change of the set on its verdicts.
//!
//! Leases are judged against each other only where they are tied: the same VTEP MAC, or subnets
//! that overlap. So the verdict on those that changed and on all they are tied to, were tied to,
//! and so on, is their verdict in the whole set, and that of the others stands. It is the same
//! judgement on fewer entries.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    LeaseSet, Peer, Rejected, Resolved,
    conflicts::{Conflicts, Tie},
    dirty_set::DirtySet,
};
use crate::{Entry, Lease};

/// The consequences of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Peers that are not named are gone.
    pub all: bool,
    /// The peers as they are now, or `None` where there is none. Some may be as they were.
    pub peers: BTreeMap<IpNet, Option<Peer>>,
    /// The entries that are refused and were not before, or for another reason.
    pub refused: Vec<Rejected>,
}

impl LeaseSet {
    /// Takes note that an entry is about to change.
    pub(super) fn touch(&mut self, name: &str) {
        if matches!(self.touched, DirtySet::All) {
            return;
        }
        let former = self.entry(name);
        let ties = former.map(|entry| self.ties_of(entry)).unwrap_or_default();
        let (name, former) = former.map_or_else(
            || (Arc::from(name), Vec::new()),
            |entry| (Arc::clone(&entry.name), subnets_of(entry).collect()),
        );
        let DirtySet::Some { names, subnets } = &mut self.touched else {
            return;
        };
        subnets.extend(former);
        for tie in ties {
            self.ties.remove(&name, tie);
            names.extend(self.ties.with(tie));
        }
        names.insert(name);
    }

    /// The peers that may have changed since the last call.
    pub fn changes(&mut self) -> Changes {
        match std::mem::replace(&mut self.touched, DirtySet::nothing()) {
            DirtySet::All => self.judge_all(),
            DirtySet::Some { names, subnets } => self.judge_touched(names, subnets),
        }
    }

    fn judge_all(&mut self) -> Changes {
        let mut ties = Vec::new();
        let Resolved { peers, rejected } = self.judge(self.entries(), |entry, tie| {
            ties.push((Arc::clone(&entry.name), tie));
        });
        self.ties = Conflicts::of(&ties);
        let former = std::mem::take(&mut self.rejected);
        let refused = rejected
            .iter()
            .filter(|one| former.get(&(one.key.clone(), one.family)) != Some(&one.reason));
        let refused = refused.cloned().collect();
        self.rejected = rejected
            .into_iter()
            .map(|one| ((one.key, one.family), one.reason))
            .collect();
        let peers = peers
            .into_iter()
            .map(|peer| (peer.subnet, Some(peer)))
            .collect();
        Changes {
            all: true,
            peers,
            refused,
        }
    }

    fn judge_touched(
        &mut self,
        touched: BTreeSet<Arc<str>>,
        mut subnets: BTreeSet<IpNet>,
    ) -> Changes {
        let names = self.tied_to(touched);
        let entries = || names.iter().filter_map(|name| self.entry(name));
        subnets.extend(entries().flat_map(subnets_of));
        let Resolved { peers, rejected } = self.judge(entries(), |_, _| ());
        let mut changes = Changes {
            all: false,
            peers: subnets.into_iter().map(|subnet| (subnet, None)).collect(),
            refused: Vec::new(),
        };
        changes
            .peers
            .extend(peers.into_iter().map(|peer| (peer.subnet, Some(peer))));
        let former: BTreeMap<_, _> = self
            .rejected
            .extract_if(.., |(name, _), _| names.contains(name.as_str()))
            .collect();
        for Rejected {
            key,
            family,
            reason,
        } in rejected
        {
            if former.get(&(key.clone(), family)) != Some(&reason) {
                changes.refused.push(Rejected {
                    key: key.clone(),
                    family,
                    reason: reason.clone(),
                });
            }
            self.rejected.insert((key, family), reason);
        }
        changes
    }

    /// These names and all that are tied to them, directly or by others.
    fn tied_to(&mut self, touched: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        for name in &touched {
            for tie in self
                .entry(name)
                .map(|entry| self.ties_of(entry))
                .unwrap_or_default()
            {
                self.ties.add(name, tie);
            }
        }
        let mut waiting: Vec<_> = touched.iter().cloned().collect();
        let mut names = touched;
        while let Some(name) = waiting.pop() {
            for tie in self
                .entry(&name)
                .map(|entry| self.ties_of(entry))
                .unwrap_or_default()
            {
                waiting.extend(
                    self.ties
                        .with(tie)
                        .into_iter()
                        .filter(|other| names.insert(Arc::clone(other))),
                );
            }
        }
        names
    }

    /// By what an entry is tied to others.
    fn ties_of(&self, entry: &Entry) -> Vec<Tie> {
        let mut ties = Vec::new();
        self.judge(std::iter::once(entry), |_, tie| ties.push(tie));
        ties
    }
}

fn subnets_of(entry: &Entry) -> impl Iterator<Item = IpNet> {
    let key = entry.lease.as_ref().ok().map(|Lease { key, .. }| *key);
    key.into_iter().flat_map(|key| {
        key.v4
            .map(IpNet::from)
            .into_iter()
            .chain(key.v6.map(IpNet::from))
    })
}
