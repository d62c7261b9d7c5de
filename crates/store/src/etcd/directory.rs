//! The leases of a cluster for an operator: listed with their ends, and released by hand.

use std::time::Duration;

use flannel_host::clock::BootTime;

use super::{
    client::{EtcdClient, Liveness},
    error::EtcdError,
    keys::Keys,
    listing::{Stored, list},
    options::EtcdOptions,
};
use crate::{
    Lease,
    etcd::lease::publish::{delete_unchanged, remaining},
};

/// A lease as etcd has it.
#[derive(Clone, Debug)]
pub struct ListedLease {
    /// The last part of its key, such as `10.5.34.0-24`.
    pub name: String,
    /// Its whole key.
    pub key: String,
    /// The lease, or the reason why the entry is none.
    pub lease: Result<Lease, String>,
    /// The etcd lease on which the key hangs; absent for a reservation, which does not end.
    pub etcd_lease: Option<i64>,
    /// The time until it ends; absent for a reservation, and if the etcd lease is gone.
    pub expires_in: Option<Duration>,
    /// The revision of its last change.
    pub modified: i64,
}

/// The leases below one prefix.
pub struct LeaseDirectory {
    client: EtcdClient,
    keys: Keys,
}

impl LeaseDirectory {
    /// Returns the directory. It connects on its first request.
    pub fn new(options: &EtcdOptions) -> Self {
        Self {
            client: EtcdClient::new(options, Liveness::default()),
            keys: Keys::new(&options.prefix),
        }
    }

    /// Lists all leases, in the order of their keys.
    pub async fn leases(&mut self) -> Result<Vec<ListedLease>, EtcdError> {
        let stored = list(&mut self.client, &self.keys).await?.leases;
        let mut leases = Vec::with_capacity(stored.len());
        for entry in stored {
            leases.push(self.listed(&entry).await?);
        }
        Ok(leases)
    }

    async fn listed(&mut self, stored: &Stored) -> Result<ListedLease, EtcdError> {
        let etcd_lease = Some(stored.etcd_lease).filter(|lease| *lease != 0);
        let end = match etcd_lease {
            Some(lease) => remaining(&mut self.client, lease).await?,
            None => None,
        };
        Ok(ListedLease {
            name: stored.entry.name.to_string(),
            key: self.keys.entry(&stored.entry.name),
            lease: stored.entry.lease.clone().map_err(|bad| bad.to_string()),
            etcd_lease,
            expires_in: end.map(|end| end.since(BootTime::now())),
            modified: stored.entry.modified,
        })
    }

    /// Deletes a lease, unless it has changed since it was listed. Returns false if it has.
    pub async fn release(&mut self, lease: &ListedLease) -> Result<bool, EtcdError> {
        delete_unchanged(&mut self.client, &lease.key, lease.modified).await
    }
}
