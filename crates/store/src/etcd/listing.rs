//! All entries at one revision.

use std::sync::Arc;

use etcd_client::{GetOptions, GetResponse, KeyValue};

use super::{client::EtcdClient, error::EtcdError, keys::Keys, position::Position};
use crate::{Entry, Lease, etcd::lease::question::claimed_by};

/// The most entries of an answer.
const PAGE: i64 = 1000;
/// The largest answer that is read, in bytes. Memory for one is taken for a moment. A value of etcd
/// may have [1.5 MiB](https://etcd.io/docs/v3.5/dev-guide/limit/) unless `--max-request-bytes`
/// allows more.
const LARGEST: usize = 8 << 20;
/// The number of listings that compaction may overtake before we report it.
const TRIES: u32 = 3;

/// An entry with what etcd says about it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The entry; `entry.modified` is the revision of its last change.
    pub(super) entry: Arc<Entry>,
    /// The etcd lease the key hangs on; 0 for a reservation.
    pub(super) etcd_lease: i64,
    /// The machine that asks the holder whether it lives; see [`crate::etcd::lease::claim`].
    pub(super) claimed_by: Option<Box<str>>,
}

impl Stored {
    /// Reads a key and its value. `None` when the key is a neighbour's.
    pub(super) fn read(keys: &Keys, kv: &KeyValue) -> Option<Self> {
        let name = keys.name_of(kv.key())?;
        let entry = Entry::parse(&name, kv.value(), kv.create_revision(), kv.mod_revision());
        Some(Self {
            entry: entry.into(),
            etcd_lease: kv.lease(),
            claimed_by: claimed_by(kv.value()),
        })
    }

    /// Reads a key whose value is too large to be asked for.
    fn unread(keys: &Keys, kv: &KeyValue) -> Option<Self> {
        let name = keys.name_of(kv.key())?;
        let entry = Entry::too_large(&name, LARGEST, kv.create_revision(), kv.mod_revision());
        Some(Self {
            entry: entry.into(),
            etcd_lease: kv.lease(),
            claimed_by: None,
        })
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

/// Lists all entries, page by page at the revision of the first page. Starts over a few times if
/// that revision is compacted away before the last page.
pub(super) async fn list(client: &mut EtcdClient, keys: &Keys) -> Result<LeaseList, EtcdError> {
    for _ in 1..TRIES {
        match Lister::new(client, keys).list().await {
            Err(error) if error.is_compacted() => {
                tracing::debug!(
                    "the store compacted the revision that was being listed; listing again"
                );
            }
            result => return result,
        }
    }
    Lister::new(client, keys).list().await
}

/// A listing in progress.
struct Lister<'a> {
    client: &'a mut EtcdClient,
    keys: &'a Keys,
    /// The most entries of the next answer.
    page: i64,
    /// The revision of the first answer; 0 before.
    revision: i64,
    cluster: u64,
}

impl<'a> Lister<'a> {
    const fn new(client: &'a mut EtcdClient, keys: &'a Keys) -> Self {
        Self {
            client,
            keys,
            page: PAGE,
            revision: 0,
            cluster: 0,
        }
    }

    async fn list(mut self) -> Result<LeaseList, EtcdError> {
        let (mut leases, mut next) = (Vec::new(), Some(self.keys.prefix().as_bytes().to_vec()));
        while let Some(from) = next {
            next = self.read_page(from, &mut leases).await?;
        }
        Ok(LeaseList {
            leases,
            position: Position {
                next: self.revision + 1,
                cluster: self.cluster,
            },
        })
    }

    /// Reads a page, or plans a smaller one where that is too large. Returns the key to go on with.
    async fn read_page(
        &mut self,
        from: Vec<u8>,
        leases: &mut Vec<Stored>,
    ) -> Result<Option<Vec<u8>>, EtcdError> {
        let options = GetOptions::new().with_limit(self.page);
        match self.get(from.clone(), options).await {
            Ok(page) => {
                leases.extend(
                    page.kvs()
                        .iter()
                        .filter_map(|kv| Stored::read(self.keys, kv)),
                );
                // Large values are few: after them pages grow again.
                self.page = (self.page * 2).min(PAGE);
                Ok(after(&page))
            }
            Err(error) if error.is_too_large() && self.page > 1 => {
                // Without values the answer says how many entries it was for. The server sends each
                // answer that is too large in vain, so the next one is to fit.
                let keys = GetOptions::new().with_limit(self.page).with_keys_only();
                let count = self.get(from.clone(), keys).await?.kvs().len();
                self.page = (i64::try_from(count).unwrap_or(PAGE) / 4).max(1);
                Ok(Some(from))
            }
            Err(error) if error.is_too_large() => {
                let page = self
                    .get(from, GetOptions::new().with_limit(1).with_keys_only())
                    .await?;
                leases.extend(
                    page.kvs()
                        .iter()
                        .filter_map(|kv| Stored::unread(self.keys, kv)),
                );
                Ok(after(&page))
            }
            Err(error) => Err(error),
        }
    }

    async fn get(&mut self, from: Vec<u8>, options: GetOptions) -> Result<GetResponse, EtcdError> {
        let options = options
            .with_range(prefix_end(self.keys.prefix()))
            .with_revision(self.revision);
        let get = self.client.call("listing the leases", |etcd| {
            let (from, options) = (from.clone(), options.clone());
            let mut kv = etcd.kv_client().max_decoding_message_size(LARGEST);
            async move { kv.get(from, Some(options)).await }
        });
        let page = get.await?;
        if let Some(header) = page.header().filter(|_| self.revision == 0) {
            (self.revision, self.cluster) = (header.revision(), header.cluster_id());
        }
        Ok(page)
    }
}

/// The first key after a page; `None` if no page follows.
fn after(page: &GetResponse) -> Option<Vec<u8>> {
    page.kvs()
        .last()
        .filter(|_| page.more())
        .map(|last| [last.key(), b"\0"].concat())
}

/// The first key after all that start with `prefix`, which ends in ASCII.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
