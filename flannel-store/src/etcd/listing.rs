//! All entries at one revision.

use std::sync::Arc;

use etcd_client::{GetOptions, GetResponse, KeyValue};

use super::{client::EtcdClient, error::EtcdError, keys::Keys, position::Position};
use crate::{Entry, Lease};

/// Entries per request: far below the 4 MB a message may have.
const PAGE: i64 = 1000;

/// An entry with what etcd says about it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The entry; `entry.modified` is the revision of its last change.
    pub(super) entry: Arc<Entry>,
    /// The etcd lease the key hangs on; 0 for a reservation.
    pub(super) etcd_lease: i64,
}

impl Stored {
    /// Reads a key and its value. `None` when the key is a neighbour's.
    pub(super) fn read(keys: &Keys, kv: &KeyValue) -> Option<Self> {
        let name = keys.name_of(kv.key())?;
        let entry = Entry::parse(&name, kv.value(), kv.create_revision(), kv.mod_revision());
        Some(Self { entry: entry.into(), etcd_lease: kv.lease() })
    }

    /// The lease, if the entry is one.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.entry.lease.as_ref().ok()
    }
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct LeaseList {
    /// In key order.
    pub(super) leases: Vec<Stored>,
    /// The position from which changes to this listing continue.
    pub(super) position: Position,
}

/// Lists all entries, page by page at the revision of the first page. Starts over if that revision
/// is compacted away meanwhile.
pub(super) async fn list(client: &mut EtcdClient, keys: &Keys) -> Result<LeaseList, EtcdError> {
    loop {
        match list_once(client, keys).await {
            Err(error) if error.is_compacted() => {}
            result => return result,
        }
    }
}

async fn list_once(client: &mut EtcdClient, keys: &Keys) -> Result<LeaseList, EtcdError> {
    let mut page = get_page(client, keys.prefix().into(), prefix_end(keys.prefix()), 0).await?;
    let (revision, cluster) = page.header().map_or((0, 0), |header| (header.revision(), header.cluster_id()));
    let mut leases: Vec<_> = page.kvs().iter().filter_map(|kv| Stored::read(keys, kv)).collect();
    while let Some(last) = page.kvs().last().filter(|_| page.more()) {
        let after_last = [last.key(), b"\0"].concat();
        page = get_page(client, after_last, prefix_end(keys.prefix()), revision).await?;
        leases.extend(page.kvs().iter().filter_map(|kv| Stored::read(keys, kv)));
    }
    Ok(LeaseList { leases, position: Position { next: revision + 1, cluster } })
}

async fn get_page(
    client: &mut EtcdClient,
    from: Vec<u8>,
    end: Vec<u8>,
    revision: i64,
) -> Result<GetResponse, EtcdError> {
    let options = GetOptions::new().with_range(end).with_limit(PAGE).with_revision(revision);
    client
        .call("listing the leases", |mut etcd| {
            let (from, options) = (from.clone(), options.clone());
            async move { etcd.get(from, Some(options)).await }
        })
        .await
}

/// The first key after all that start with `prefix`, which ends in ASCII.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
