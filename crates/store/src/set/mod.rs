//! All leases of the cluster, and the verdict on each.
//!
//! Pure. The set keeps every entry the store has, valid or not. The peers depend only on the
//! content of the set and not on how it came about, so a resync and a stream of changes cannot
//! disagree, and the deletion of an entry admits those it kept out. [`LeaseSet::changes`] judges
//! again what changed and what that is tied to; the other entries keep their verdict.
//!
//! A bad entry is refused without effect on others, with a reason, and stays listed until it is
//! deleted or corrected.

mod changes;
mod check;
mod conflicts;
mod end;
mod named;
mod node_address;
mod reject;
mod resolve;

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use self::{
    changes::Changes,
    end::{EndId, TunnelEnd, Vtep, WireguardEnd},
    node_address::{AddressFault, HostAddresses},
    reject::{Conflict, RejectReason, Rejected},
};
use self::{
    changes::DirtySet,
    conflicts::{Conflicts, Tie},
    end::EndReader,
    named::Named,
};
use super::{Entry, LeaseAttrs, LeaseKey, Precedence, StoreEvent};
use crate::config::{BackendKind, NetworkConfig};

/// Changes of what we publish that the store may not have yet.
const FORMER_ATTRS: usize = 16;

/// A node to send to: one family of one accepted lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its pods.
    pub subnet: IpNet,
    /// The address at which the node is reached, of the family of the subnet.
    pub public_ip: IpAddr,
    /// The node's end of the tunnel; `None` where the backend has no tunnels.
    pub end: Option<TunnelEnd>,
    /// The name of the store entry it comes from.
    pub key: Arc<str>,
}

impl Peer {
    /// The node's end of a VXLAN tunnel.
    pub fn vtep(&self) -> Option<Vtep> {
        self.end.as_ref().and_then(TunnelEnd::vtep)
    }

    /// Returns true if the node is reached through our tunnel.
    pub fn has_tunnel(&self) -> bool {
        self.end.as_ref().and_then(TunnelEnd::id).is_some()
    }

    /// The text that the node published for the commands of the backend extension.
    pub fn text(&self) -> Option<&str> {
        match &self.end {
            Some(TunnelEnd::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// The verdict on a whole set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The accepted leases of others, by subnet. Subnets are disjoint, lie in the pod network and
    /// do not overlap ours; one end of a tunnel has one public address.
    pub peers: Vec<Peer>,
    /// The refused ones, by key.
    pub rejected: Vec<Rejected>,
}

/// Every lease entry of the store, and what we know of ourselves.
#[derive(Clone, Debug)]
pub struct LeaseSet {
    networks: Networks,
    backend: BackendKind,
    ends: EndReader,
    precedence: Precedence,
    own_attrs: LeaseAttrs,
    /// The attributes that we published before: the store has them until it has the present ones.
    former_attrs: Vec<LeaseAttrs>,
    own_key: Option<LeaseKey>,
    host: HostAddresses,
    entries: BTreeSet<Named>,
    ties: Conflicts,
    touched: DirtySet,
    /// The verdicts as of the last look at what changed.
    rejected: BTreeMap<(String, Option<Family>), RejectReason>,
}

/// The pod networks; `None` for a family that is off, whose parts of leases are not looked at.
#[derive(Clone, Copy, Debug)]
struct Networks {
    v4: Option<Ipv4Net>,
    v6: Option<Ipv6Net>,
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

    /// Takes in what a manager reports. Returns true if there may be [`Self::changes`].
    pub fn apply(&mut self, event: StoreEvent) -> bool {
        match event {
            StoreEvent::InSync { snapshot } => self.replace(snapshot),
            StoreEvent::Put(entry) => self.put(entry),
            StoreEvent::Delete { name } => self.delete(&name),
            StoreEvent::OwnLease(own) => self.set_own_key(own.key),
            // The subnet counts as ours until we hold another: no foreign claim to it may reach the
            // kernel.
            StoreEvent::OwnLeaseLost { .. }
            | StoreEvent::NotAcquired { .. }
            | StoreEvent::Contested { .. }
            | StoreEvent::OutOfSync { .. }
            | StoreEvent::Resumed
            | StoreEvent::Settings(_) => return false,
        }
        true
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|Named(entry)| &**entry)
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|Named(entry)| &**entry)
    }

    /// Everything the store has, instead of what was known.
    pub fn replace(&mut self, snapshot: impl IntoIterator<Item: Into<Arc<Entry>>>) {
        self.touched = DirtySet::All;
        self.entries = snapshot
            .into_iter()
            .map(|entry| Named(entry.into()))
            .collect();
    }

    /// A new or changed entry.
    pub fn put(&mut self, entry: impl Into<Arc<Entry>>) {
        let entry = entry.into();
        self.touch(&entry.name);
        self.entries.replace(Named(entry));
    }

    /// An entry is gone.
    pub fn delete(&mut self, name: &str) {
        self.touch(name);
        self.entries.remove(name);
    }

    /// Sets the attributes that we publish.
    pub fn set_own_attrs(&mut self, attrs: LeaseAttrs) {
        self.touched = DirtySet::All;
        let former = std::mem::replace(&mut self.own_attrs, attrs);
        self.former_attrs
            .retain(|known| *known != former && *known != self.own_attrs);
        self.former_attrs.push(former);
        let too_many = self.former_attrs.len().saturating_sub(FORMER_ATTRS);
        self.former_attrs.drain(..too_many);
    }

    /// The addresses of this host. Judges the leases again whose address was or is among them.
    pub fn set_host_addresses(&mut self, host: HostAddresses) {
        if self.host == host {
            return;
        }
        let concerned = |entry: &&Entry| {
            let addresses = entry
                .lease
                .as_ref()
                .ok()
                .map(|lease| lease.attrs.addresses())
                .into_iter()
                .flatten();
            addresses
                .into_iter()
                .any(|address| host.differs_on(&self.host, address))
        };
        let names: Vec<_> = self
            .entries()
            .filter(concerned)
            .map(|entry| Arc::clone(&entry.name))
            .collect();
        // Before the change: by the former verdict they are tied to others.
        for name in &names {
            self.touch(name);
        }
        self.host = host;
    }

    /// The lease we hold.
    pub fn set_own_key(&mut self, key: LeaseKey) {
        if self.own_key.replace(key) != Some(key) {
            self.touched = DirtySet::All;
        }
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
