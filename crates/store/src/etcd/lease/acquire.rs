//! The way to a lease: chosen, created or taken over, and recorded.

use std::net::Ipv4Addr;

use flannel_host::{clock::BootTime, error_chain::chain};
use tracing::{debug, info, warn};

use crate::etcd::lease::{
    choose::{Choice, Identity, Proof, Useless, choose},
    claim::Answer,
    held::Held,
    publish::{Guard, Outcome, Publication, Published, delete_unchanged, keep_alive},
};
use crate::etcd::{
    error::EtcdError,
    listing::{Stored, list},
    manager::EtcdManager,
};
use crate::{
    AcquireError, AddressTaken, LeaseAttrs, LeaseKey, LeaseRequest, OwnLease, memory::Recorded,
};

/// Attempts to acquire before the store counts as too busy.
const TRIES: u32 = 10;

impl EtcdManager {
    /// Finds or creates a lease, and holds it.
    pub(in crate::etcd) async fn acquire_lease(
        &mut self,
        request: &LeaseRequest,
    ) -> Result<OwnLease, AcquireError<EtcdError>> {
        for _ in 0..TRIES {
            if let Some(held) = self.try_acquire(request).await? {
                let own = held.own_lease();
                self.held = Some(held);
                self.held_by_others.clear();
                self.answered = None;
                self.record(&request.attrs).await;
                return Ok(own);
            }
        }
        Err(AcquireError::Conflict { tries: TRIES })
    }

    fn identity<'a>(&'a self, request: &'a LeaseRequest) -> Identity<'a> {
        Identity {
            request,
            recorded: &self.recorded,
            held_by_others: &self.held_by_others,
        }
    }

    /// One attempt. `None` when the store changed under it.
    async fn try_acquire(
        &mut self,
        request: &LeaseRequest,
    ) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let leases = self.list().await?;
        let choice = choose(&self.identity(request), &leases, &mut rand::rng())?;
        let held = match choice {
            Choice::Discard(stored, why) => {
                self.discard(stored, why)
                    .await
                    .map_err(AcquireError::Store)?;
                None
            }
            Choice::Reuse(stored, key, Proof::Record) => {
                self.reuse(stored, key, stored.entry.modified, request)
                    .await?
            }
            Choice::Reuse(stored, key, Proof::Likeness) => {
                self.take_over(stored, key, request).await?
            }
            Choice::Create(key) => self.create(key, request).await?,
        };
        if let Some(held) = &held {
            self.drop_surplus(request, &leases, &held.path).await;
        }
        Ok(held)
    }

    /// Writes a lease that does not exist.
    async fn create(
        &mut self,
        key: LeaseKey,
        request: &LeaseRequest,
    ) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let (path, ttl) = (self.keys.lease(key), Some(self.term.ttl));
        let publication = Publication {
            key: path,
            value: request.attrs.to_json(),
            guard: Guard::Absent,
            ttl,
        };
        let published = match publication
            .publish(&mut self.client)
            .await
            .map_err(AcquireError::Store)?
        {
            Outcome::Done(published) => published,
            Outcome::Conflict(_) => return Ok(None),
        };
        // A key of one subnet keeps others from it; one of two does not.
        let needs_confirmation = key.v4.is_some() && key.v6.is_some();
        if needs_confirmation && !self.confirm(request, published).await? {
            return Ok(None);
        }
        Ok(Some(
            Held::new(key, publication.key, published).with_new_content(),
        ))
    }

    /// Takes over a lease that looks like ours, unless its holder answers.
    async fn take_over(
        &mut self,
        stored: &Stored,
        key: LeaseKey,
        request: &LeaseRequest,
    ) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let modified = match self.ask_holder(stored, &request.attrs).await {
            Ok(Answer::Silence(modified)) => modified,
            Ok(Answer::Changed) => return Ok(None),
            Ok(Answer::Alive) => return self.refuse(stored, request),
            // A store that is out of space takes no question either.
            Err(error) if error.is_refusal() => stored.entry.modified,
            Err(error) => return Err(AcquireError::Store(error)),
        };
        let held = self.reuse(stored, key, modified, request).await?;
        Ok(held.map(|held| Held {
            taken_over: Some(BootTime::now()),
            ..held
        }))
    }

    /// The lease is that of another machine, which lives. With our address we cannot have another:
    /// packets for it would reach the wrong one of the two.
    fn refuse(
        &mut self,
        stored: &Stored,
        request: &LeaseRequest,
    ) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let lease = stored.entry.name.to_string();
        let attrs = stored.lease().map(|lease| &lease.attrs);
        if let Some(attrs) = attrs.filter(|attrs| attrs.is_same_node(&request.attrs)) {
            let address = attrs.node_address().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            return Err(AddressTaken {
                address,
                lease,
                by: known_by(attrs),
            }
            .into());
        }
        warn!(
            "lease {lease} has our VTEP MAC or public key, and another machine holds it: this one \
             is a copy of it"
        );
        self.held_by_others.insert(lease);
        Ok(None)
    }

    /// Writes our attributes into a lease that is ours.
    async fn reuse(
        &mut self,
        stored: &Stored,
        key: LeaseKey,
        modified: i64,
        request: &LeaseRequest,
    ) -> Result<Option<Held>, AcquireError<EtcdError>> {
        let publication = Publication {
            key: self.keys.entry(&stored.entry.name),
            value: request.attrs.to_json(),
            guard: Guard::Unchanged(modified),
            // A reservation stays one.
            ttl: Some(self.term.ttl).filter(|_| stored.etcd_lease != 0),
        };
        match publication.publish(&mut self.client).await {
            Ok(Outcome::Done(published)) => {
                let held = Held::new(key, publication.key, published);
                let is_same = stored
                    .lease()
                    .is_some_and(|lease| lease.attrs == request.attrs);
                Ok(Some(if is_same {
                    held
                } else {
                    held.with_new_content()
                }))
            }
            Ok(Outcome::Conflict(_)) => Ok(None),
            Err(error) => {
                let held = if error.is_refusal() {
                    self.keep(stored, key, request, &error).await
                } else {
                    None
                };
                held.map(Some).ok_or(AcquireError::Store(error))
            }
        }
    }

    /// Deletes what this node left behind. A failure costs a lease that ends by itself.
    async fn drop_surplus(&mut self, request: &LeaseRequest, leases: &[Stored], path: &str) {
        let Some(held) = self
            .keys
            .name_of(path.as_bytes())
            .map(std::borrow::Cow::into_owned)
        else {
            return;
        };
        let surplus: Vec<_> = self.identity(request).surplus(leases, &held).collect();
        for stored in surplus {
            if let Err(error) = self.discard(stored, Useless::Surplus).await {
                warn!("our former lease stays until it ends: {error}");
            }
        }
    }

    /// Records the lease we hold, with the value that it was written with.
    pub(in crate::etcd) async fn record(&mut self, attrs: &LeaseAttrs) {
        let Some((memory, held)) = self.memory.as_ref().zip(self.held.as_ref()) else {
            return;
        };
        let Some(name) = self.keys.name_of(held.path.as_bytes()) else {
            return;
        };
        let Some(record) = memory.record(&name, held.etcd_lease, attrs.to_json()) else {
            return;
        };
        if self.recorded == Recorded::Lease(record.clone()) {
            return;
        }
        let (memory, written) = (memory.clone(), record.clone());
        match tokio::task::spawn_blocking(move || memory.write(&written)).await {
            Ok(Ok(())) => self.recorded = Recorded::Lease(record),
            Ok(Err(error)) => warn!("our lease is not recorded: {}", chain(&error)),
            Err(error) => debug!("our lease is not recorded: {error}"),
        }
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
        if stored
            .lease()
            .is_none_or(|lease| lease.attrs != request.attrs)
        {
            return None;
        }
        let expiry = match stored.etcd_lease {
            0 => None,
            etcd_lease => Some(keep_alive(&mut self.client, etcd_lease).await.ok()??),
        };
        let (path, modified) = (self.keys.entry(&stored.entry.name), stored.entry.modified);
        warn!("{refusal}; our lease {key} is good as it is, and kept alive");
        Some(Held::new(
            key,
            path,
            Published {
                modified,
                etcd_lease: stored.etcd_lease,
                expiry,
            },
        ))
    }

    async fn list(&mut self) -> Result<Vec<Stored>, AcquireError<EtcdError>> {
        Ok(list(&mut self.client, &self.keys)
            .await
            .map_err(AcquireError::Store)?
            .leases)
    }

    /// Returns true if the lease just created is still the choice, now that every older one is
    /// visible. Discards our own lease if it cannot be used.
    async fn confirm(
        &mut self,
        request: &LeaseRequest,
        published: Published,
    ) -> Result<bool, AcquireError<EtcdError>> {
        let leases = self.list().await?;
        let choice = choose(&self.identity(request), &leases, &mut rand::rng())?;
        match choice {
            Choice::Reuse(stored, _, _) => Ok(stored.entry.modified == published.modified),
            Choice::Discard(stored, why) => {
                self.discard(stored, why)
                    .await
                    .map_err(AcquireError::Store)?;
                Ok(false)
            }
            Choice::Create(_) => Ok(false),
        }
    }

    async fn discard(&mut self, stored: &Stored, why: Useless) -> Result<(), EtcdError> {
        let name = &stored.entry.name;
        info!("our lease {name} {why}; deleting it");
        let deleted = delete_unchanged(
            &mut self.client,
            &self.keys.entry(name),
            stored.entry.modified,
        )
        .await?;
        if !deleted {
            debug!("lease {name} changed before it was deleted");
        }
        Ok(())
    }
}

/// By what a machine with these attributes is known, for a message.
pub(in crate::etcd) fn known_by(attrs: &LeaseAttrs) -> String {
    attrs
        .end()
        .unwrap_or_else(|| "which publishes no VTEP MAC or public key".to_owned())
}
