//! Asks the holder of a lease that looks like ours whether it lives.
//!
//! The question is a write of the lease as it stands, with the field [`CLAIMED_BY`] in addition,
//! which other nodes and stock flannel ignore: for them nothing changes. An agent that holds the
//! lease writes its own value back at once (see [`super::renewal`]). If no client writes the key
//! within [`PATIENCE`], the holder is gone, or is stock flannel, and the lease is taken over.
//!
//! A machine that was answered once waits for [`SILENCE`] before it takes the lease over, so that a
//! restart of the other machine's agent costs that machine nothing.

use std::{fmt::Write as _, fs, time::Duration};

use flannel_host::{clock::BootTime, excerpt::excerpt};
use tokio::time::sleep;

use super::{
    EtcdManager,
    error::EtcdError,
    listing::Stored,
    publish::{Guard, Outcome, Publication, revoke},
};
use crate::{LeaseAttrs, config::gojson::Fields};

/// The field of a lease's value with the machine that asks.
const CLAIMED_BY: &str = "ClaimedBy";
/// The time that a holder has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between looks for an answer.
const LOOK: Duration = Duration::from_millis(200);
/// The time for which a holder that answered before has to be silent.
const SILENCE: Duration = Duration::from_mins(5);

/// A question that was asked.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The name of the lease.
    name: String,
    /// The revision of the question.
    modified: i64,
    etcd_lease: i64,
    since: BootTime,
}

/// The result of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// No answer. The lease may be written over this revision.
    Silence(i64),
    /// The holder lives.
    Alive,
    /// The lease is no longer as it was listed.
    Changed,
}

impl EtcdManager {
    /// Asks the holder of a lease.
    pub(super) async fn ask_holder(
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

/// The value of a lease with a question in it.
fn with_claim(attrs: &LeaseAttrs, name: &str) -> String {
    let mut value = attrs.to_json();
    let name = serde_json::to_string(name).expect("a text always serialises");
    if value.pop() == Some('}') {
        let _infallible = write!(value, ",\"{CLAIMED_BY}\":{name}}}");
    }
    value
}

/// The machine that asks, in a lease's value.
pub(super) fn claimed_by(value: &[u8]) -> Option<Box<str>> {
    let text = str::from_utf8(value)
        .ok()
        .filter(|text| text.contains(CLAIMED_BY))?;
    let name: String = Fields::parse(text).ok()?.value(CLAIMED_BY).ok()??;
    Some(excerpt(&name).to_string().into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_changes_no_attribute_and_is_read_back() {
        let text = r#"{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"host-gw"}"#;
        let attrs = LeaseAttrs::parse(text.as_bytes()).expect("attributes");
        let asked = with_claim(&attrs, "host \"b\"");
        assert_eq!(
            LeaseAttrs::parse(asked.as_bytes()).expect("attributes"),
            attrs
        );
        assert_eq!(claimed_by(asked.as_bytes()).as_deref(), Some("host \"b\""));
        for other in [text, "ClaimedBy", r#"{"ClaimedBy":7}"#] {
            assert_eq!(claimed_by(other.as_bytes()), None, "{other}");
        }
    }
}
