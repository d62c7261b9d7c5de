//! Asks the holder of a lease that looks like ours whether it lives.
//!
//! The question is a write of the lease as it stands, with the field `ClaimedBy` in addition, which
//! other nodes and stock flannel ignore: for them nothing changes. An agent that holds the lease
//! writes its own value back at once (see [`crate::etcd::lease::renewal`]). If no client writes the
//! key within [`PATIENCE`], the holder is gone, or is stock flannel, and the lease is taken over.
//!
//! A machine that was answered once waits for [`SILENCE`] before it takes the lease over, so that a
//! restart of the other machine's agent costs that machine nothing.

use std::{fs, time::Duration};

use flannel_host::clock::BootTime;
use tokio::time::sleep;

use crate::etcd::lease::{
    publish::{Guard, Outcome, Publication, revoke},
    question::{Claim, with_claim},
};
use crate::{
    LeaseAttrs,
    etcd::{error::EtcdError, listing::Stored, manager::EtcdManager},
};

/// The time that a holder has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between looks for an answer.
const LOOK: Duration = Duration::from_millis(200);
/// The time for which a holder that answered before has to be silent.
const SILENCE: Duration = Duration::from_mins(5);

/// The result of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::etcd) enum Answer {
    /// No answer. The lease may be written over this revision.
    Silence(i64),
    /// The holder lives.
    Alive,
    /// The lease is no longer as it was listed.
    Changed,
}

impl EtcdManager {
    /// Asks the holder of a lease.
    pub(in crate::etcd) async fn ask_holder(
        &mut self,
        stored: &Stored,
        own: &LeaseAttrs,
    ) -> Result<Answer, EtcdError> {
        let Some(claim) = self.ask(stored, own).await? else {
            return Ok(Answer::Changed);
        };
        let path = self.keys.entry(&claim.name);
        let patience = if self.answered.is_some() {
            SILENCE
        } else {
            PATIENCE
        };
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            sleep(LOOK).await;
            let key = path.as_str();
            let look = self
                .client
                .call("waiting for the holder of a lease", |mut etcd| async move {
                    etcd.get(key, None).await
                });
            match look.await?.kvs().first() {
                Some(kv) if kv.mod_revision() == claim.modified => {}
                found => {
                    let is_deleted = found.is_none();
                    self.claim = None;
                    if claim.etcd_lease != 0 {
                        // The key does not hang on it any more.
                        revoke(&mut self.client, claim.etcd_lease).await;
                    }
                    if is_deleted {
                        return Ok(Answer::Changed);
                    }
                    self.answered = Some(BootTime::now());
                    return Ok(Answer::Alive);
                }
            }
        }
        if BootTime::now().since(claim.since) < patience && self.answered.is_some() {
            return Ok(Answer::Alive);
        }
        (self.claim, self.answered) = (None, None);
        Ok(Answer::Silence(claim.modified))
    }

    /// Writes the question, unless it is there from before. `None` if the lease changed under it.
    async fn ask(&mut self, stored: &Stored, own: &LeaseAttrs) -> Result<Option<Claim>, EtcdError> {
        let is_there = |claim: &&Claim| {
            *claim.name == *stored.entry.name && claim.modified == stored.entry.modified
        };
        if let Some(claim) = self.claim.as_ref().filter(is_there) {
            return Ok(Some(claim.clone()));
        }
        let Some(lease) = stored.lease() else {
            return Ok(None);
        };
        let publication = Publication {
            key: self.keys.entry(&stored.entry.name),
            value: with_claim(&lease.attrs, &name_of(own)),
            guard: Guard::Unchanged(stored.entry.modified),
            ttl: Some(self.term.ttl).filter(|_| stored.etcd_lease != 0),
        };
        let Outcome::Done(published) = publication.publish(&mut self.client).await? else {
            return Ok(None);
        };
        let (name, modified) = (stored.entry.name.to_string(), published.modified);
        let claim = Claim {
            name,
            modified,
            etcd_lease: published.etcd_lease,
            since: BootTime::now(),
        };
        Ok(Some(self.claim.insert(claim).clone()))
    }
}

/// By what this machine is known to others: its name and its end of the tunnel.
fn name_of(own: &LeaseAttrs) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim())
        .filter(|host| !host.is_empty())
        .map(|host| format!("host {host}"));
    host.into_iter()
        .chain(own.end())
        .collect::<Vec<_>>()
        .join(", ")
}
