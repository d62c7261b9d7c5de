//! Leases in etcd, by its v3 API, side by side with stock flannel nodes.
//!
//! [`EtcdManager`] implements [`SubnetManager`]. Where flannel writes blindly we compare first: a
//! key is created only if absent, and rewritten only as long as its last change is known to us. A
//! key without an etcd lease is a reservation and stays one. The lifetime of a lease is asked of
//! etcd for our own key alone. Our identity is our public address, that of IPv4 where IPv4 is on.

mod choose;
mod client;
mod error;
mod keys;
mod listing;
mod meeting;
mod options;
mod position;
#[cfg(test)]
mod properties;
mod publish;
mod renewal;
mod source;
mod tls;
mod verify;

use std::time::Duration;

use flannel_host::clock::BootTime;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use self::{
    choose::{Choice, Useless, choose},
    client::EtcdClient,
    keys::Keys,
    listing::{Stored, list},
    publish::{Guard, Outcome, Publication, Published, delete_unchanged, keep_alive},
    source::EtcdSource,
};
pub use self::{
    client::Liveness,
    error::{EtcdError, Problem},
    meeting::MeetingPlace,
    options::{Credentials, EtcdOptions},
    tls::{ClientFiles, TlsError, TlsFiles},
};
use super::{
    AcquireError, LeaseAttrs, LeaseKey, LeaseRequest, OwnLease, Precedence, StoreCounts, StoreEvent, SubnetManager,
    watcher::Watcher,
};

/// Attempts to acquire before the store counts as too busy.
const TRIES: u32 = 10;
/// The longest wait between attempts to renew.
const RENEW_RETRY: Duration = Duration::from_mins(1);

/// Leases in etcd.
pub struct EtcdManager {
    client: EtcdClient,
    keys: Keys,
    term: Term,
    held: Option<Held>,
    counts: StoreCounts,
}

/// The lifetime of our leases.
#[derive(Clone, Copy, Debug)]
struct Term {
    ttl: Duration,
    /// So long before expiry a lease is renewed.
    margin: Duration,
}

impl Term {
    /// Between attempts to renew: a minute, or less if the margin leaves room for few attempts.
    fn retry(self) -> Duration {
        (self.margin / 10).clamp(Duration::from_millis(100), RENEW_RETRY)
    }
}

/// The lease we hold, as etcd has it.
#[derive(Clone, Debug)]
struct Held {
    key: LeaseKey,
    /// The full key in etcd, which may spell the IPv6 subnet differently from us.
    path: String,
    /// The revision of the last write we know.
    modified: i64,
    /// 0 for a reservation.
    etcd_lease: i64,
    expiry: Option<BootTime>,
}

impl Held {
    fn new(key: LeaseKey, path: String, published: Published) -> Self {
        let Published { modified, etcd_lease, expiry } = published;
        Self { key, path, modified, etcd_lease, expiry }
    }

    fn own_lease(&self) -> OwnLease {
        OwnLease { key: self.key, expires_at: self.expiry }
    }

    /// When to renew; `None` for a reservation.
    fn renew_at(&self, term: Term) -> Option<BootTime> {
        self.expiry.map(|expiry| expiry.before(term.margin))
    }

    /// Returns true if at most the margin of `term` is left before the expiry, so that it is time
    /// to renew.
    fn is_due(&self, term: Term, now: BootTime) -> bool {
        self.renew_at(term).is_some_and(|renew_at| renew_at <= now)
    }
}

impl EtcdManager {
    /// A manager for these options. Nothing is connected yet.
    pub fn new(options: &EtcdOptions, liveness: Liveness) -> Self {
        Self {
            client: EtcdClient::new(options, liveness),
            keys: Keys::new(&options.prefix),
            term: Term { ttl: options.lease_ttl, margin: options.renew_margin },
            held: None,
            counts: StoreCounts::default(),
        }
    }

    /// One attempt. `None` when the store changed under it.
    async fn try_acquire(&mut self, request: &LeaseRequest) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let leases = self.list().await?;
        let choice = choose(request, &leases, &mut rand::rng())?;
        let mut reusable = None;
        let (key, path, guard, ttl) = match choice {
            Choice::Discard(stored, why) => {
                self.discard(stored, why).await.map_err(AcquireError::Store)?;
                return Ok(None);
            }
            Choice::Reuse(stored, key) => {
                let reserved = stored.etcd_lease == 0;
                reusable = Some(stored);
                let guard = Guard::Unchanged(stored.entry.modified);
                (key, self.keys.entry(&stored.entry.name), guard, Some(self.term.ttl).filter(|_| !reserved))
            }
            Choice::Create(key) => (key, self.keys.lease(key), Guard::Absent, Some(self.term.ttl)),
        };
        let publication = Publication { key: path, value: request.attrs.to_json(), guard, ttl };
        let published = match publication.publish(&mut self.client).await {
            Ok(Outcome::Done(published)) => published,
            Ok(Outcome::Conflict(_)) => return Ok(None),
            Err(error) => {
                let held = match reusable {
                    Some(stored) if error.is_refusal() => self.keep(stored, key, request, &error).await,
                    _ => None,
                };
                return held.map(Some).ok_or(AcquireError::Store(error));
            }
        };
        // A key of one subnet keeps others from it; one of two does not.
        let needs_confirmation = matches!((guard, key.v4, key.v6), (Guard::Absent, Some(_), Some(_)));
        if needs_confirmation && !self.confirm(request, published).await? {
            return Ok(None);
        }
        Ok(Some(Held::new(key, publication.key, published)))
    }

    /// Holds a lease as it stands in a store that refuses to write it again. `None` unless it says
    /// what we would write, and lives.
    async fn keep(
        &mut self,
        stored: &Stored,
        key: LeaseKey,
        request: &LeaseRequest,
        refusal: &EtcdError,
    ) -> Option<Held> {
        if stored.lease().is_none_or(|lease| lease.attrs != request.attrs) {
            return None;
        }
        let expiry = match stored.etcd_lease {
            0 => None,
            etcd_lease => Some(keep_alive(&mut self.client, etcd_lease).await.ok()??),
        };
        let (path, modified) = (self.keys.entry(&stored.entry.name), stored.entry.modified);
        warn!("{refusal}; our lease {key} is good as it is, and kept alive");
        Some(Held { key, path, modified, etcd_lease: stored.etcd_lease, expiry })
    }

    async fn list(&mut self) -> Result<Vec<Stored>, AcquireError<EtcdError>> {
        Ok(list(&mut self.client, &self.keys).await.map_err(AcquireError::Store)?.leases)
    }

    /// Returns true if the lease just created is still the choice, now that every older one is
    /// visible. Discards a lease of ours that cannot be used.
    async fn confirm(&mut self, request: &LeaseRequest, published: Published) -> Result<bool, AcquireError<EtcdError>> {
        let leases = self.list().await?;
        let choice = choose(request, &leases, &mut rand::rng())?;
        match choice {
            Choice::Reuse(stored, _) => Ok(stored.entry.modified == published.modified),
            Choice::Discard(stored, why) => {
                self.discard(stored, why).await.map_err(AcquireError::Store)?;
                Ok(false)
            }
            Choice::Create(_) => Ok(false),
        }
    }

    async fn discard(&mut self, stored: &Stored, why: Useless) -> Result<(), EtcdError> {
        let name = &stored.entry.name;
        info!("our lease {name} {why}; deleting it");
        let deleted = delete_unchanged(&mut self.client, &self.keys.entry(name), stored.entry.modified).await?;
        if !deleted {
            debug!("lease {name} changed before it was deleted");
        }
        Ok(())
    }
}

impl SubnetManager for EtcdManager {
    type Error = EtcdError;

    const PRECEDENCE: Precedence = Precedence::FirstRenewed;

    async fn network_config(&mut self) -> Result<String, EtcdError> {
        let key = self.keys.config().to_owned();
        let asked = key.as_str();
        let answer = self
            .client
            .call("reading the network configuration", |mut etcd| async move { etcd.get(asked, None).await })
            .await?;
        let Some(kv) = answer.kvs().first() else { return Err(EtcdError::NoConfig { key }) };
        String::from_utf8(kv.value().to_vec()).map_err(|_binary| EtcdError::BinaryConfig { key })
    }

    fn count_with(&mut self, counts: StoreCounts) {
        self.counts = counts;
    }

    async fn acquire(&mut self, request: &LeaseRequest) -> Result<OwnLease, AcquireError<EtcdError>> {
        for _ in 0..TRIES {
            if let Some(held) = self.try_acquire(request).await? {
                let own = held.own_lease();
                self.held = Some(held);
                return Ok(own);
            }
        }
        Err(AcquireError::Conflict { tries: TRIES })
    }

    async fn run(self, request: LeaseRequest, attrs: watch::Receiver<LeaseAttrs>, events: mpsc::Sender<StoreEvent>) {
        let counts = self.counts.clone();
        Watcher::new(EtcdSource::new(self, request), counts, attrs, events).run().await;
    }
}
