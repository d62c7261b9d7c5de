//! The set, and the questions about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    Conflict, HostAddresses, RejectReason, Rejected,
    conflicts::{Conflicts, Tie},
    dirty_set::DirtySet,
    end::EndReader,
    named::Named,
};
use crate::{
    Entry, LeaseAttrs, LeaseKey, Precedence,
    config::{BackendKind, NetworkConfig},
};

/// Every lease entry of the store, and what we know of ourselves.
#[derive(Clone, Debug)]
pub struct LeaseSet {
    pub(super) networks: Networks,
    pub(super) backend: BackendKind,
    pub(super) ends: EndReader,
    pub(super) precedence: Precedence,
    pub(super) own_attrs: LeaseAttrs,
    /// The attributes that we published before: the store has them until it has the present ones.
    pub(super) former_attrs: Vec<LeaseAttrs>,
    pub(super) own_key: Option<LeaseKey>,
    pub(super) host: HostAddresses,
    pub(super) entries: BTreeSet<Named>,
    pub(super) ties: Conflicts,
    pub(super) touched: DirtySet,
    /// The verdicts as of the last look at what changed.
    pub(super) rejected: BTreeMap<(String, Option<Family>), RejectReason>,
}

/// The pod networks; `None` for a family that is off, whose parts of leases are not looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Networks {
    pub(super) v4: Option<Ipv4Net>,
    pub(super) v6: Option<Ipv6Net>,
}

impl LeaseSet {
    /// An empty set for a cluster with this store, on the node that publishes `own_attrs`.
    pub fn new(config: &NetworkConfig, precedence: Precedence, own_attrs: LeaseAttrs) -> Self {
        Self {
            networks: Networks {
                v4: config.ipv4.map(|family| family.network),
                v6: config.ipv6.map(|family| family.network),
            },
            backend: config.backend.kind(),
            ends: EndReader::of(config),
            precedence,
            own_attrs,
            former_attrs: Vec::new(),
            own_key: None,
            host: HostAddresses::default(),
            entries: BTreeSet::new(),
            ties: Conflicts::default(),
            touched: DirtySet::All,
            rejected: BTreeMap::new(),
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|Named(entry)| &**entry)
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|Named(entry)| &**entry)
    }

    /// Returns the IPv4 subnets of all entries but ours, accepted or not.
    pub fn others_v4(&self) -> impl Iterator<Item = Ipv4Net> {
        let own = self.own_key.and_then(|key| key.v4);
        let key_of = |entry: &Entry| {
            entry
                .lease
                .as_ref()
                .map_or_else(|_| entry.name.parse().ok(), |lease| Some(lease.key))
        };
        let subnets = self.entries().filter_map(move |entry| key_of(entry)?.v4);
        subnets.filter(move |subnet| Some(*subnet) != own)
    }

    /// Returns the name of a lease of another node that overlaps a subnet, as of the last
    /// [`Self::changes`].
    pub fn holder(&self, subnet: IpNet) -> Option<Arc<str>> {
        self.ties.with(Tie { subnet, end: None }).into_iter().next()
    }

    /// Returns the number of refused entries that claim what another node has, as of the last
    /// [`Self::changes`].
    pub fn conflicts(&self, conflict: Conflict) -> usize {
        self.rejected
            .values()
            .filter(|reason| reason.conflict() == Some(conflict))
            .count()
    }

    /// Returns the entries that were refused because they claim what this node has, as of the last
    /// [`Self::changes`].
    pub fn conflicts_with_us(&self) -> impl Iterator<Item = (Rejected, Conflict)> {
        self.rejected
            .iter()
            .filter(|(_, reason)| reason.is_with_us())
            .filter_map(|((key, family), reason)| {
                let lease = Rejected {
                    key: key.clone(),
                    family: *family,
                    reason: reason.clone(),
                };
                Some((lease, reason.conflict()?))
            })
    }

    /// Returns the refused entries, as of the last [`Self::changes`].
    pub fn rejected(&self) -> impl ExactSizeIterator<Item = Rejected> {
        self.rejected
            .iter()
            .map(|((key, family), reason)| Rejected {
                key: key.clone(),
                family: *family,
                reason: reason.clone(),
            })
    }
}
