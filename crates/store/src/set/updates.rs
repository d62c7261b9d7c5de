//! Changes of the entries, and of what we know of ourselves.

use std::sync::Arc;

use super::{HostAddresses, LeaseSet, dirty_set::DirtySet, named::Named};
use crate::{Entry, LeaseAttrs, LeaseKey, StoreEvent};

/// Changes of what we publish that the store may not have yet.
const FORMER_ATTRS: usize = 16;

impl LeaseSet {
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
}
