//! Writes our lease, and only where this overwrites no foreign one.

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Error, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use flannel_host::clock::BootTime;
use tracing::debug;

use crate::etcd::{client::EtcdClient, error::EtcdError};

/// The precondition of a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd) enum Guard {
    /// The key does not exist.
    Absent,
    /// The key was last changed by this revision.
    Unchanged(i64),
}

impl Guard {
    fn compare(self, key: &str) -> Compare {
        match self {
            Self::Absent => Compare::version(key, CompareOp::Equal, 0),
            Self::Unchanged(revision) => Compare::mod_revision(key, CompareOp::Equal, revision),
        }
    }
}

/// A write that happened.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd) struct Published {
    /// The revision of the write.
    pub(in crate::etcd) modified: i64,
    /// The etcd lease the key hangs on, 0 for none.
    pub(in crate::etcd) etcd_lease: i64,
    /// `None` when it hangs on none. Counted from before the grant, so never later than etcd's.
    pub(in crate::etcd) expiry: Option<BootTime>,
}

/// The result of a write.
#[derive(Debug)]
pub(in crate::etcd) enum Outcome {
    /// It happened.
    Done(Published),
    /// The guard failed. This is what the key holds; `None` when it does not exist.
    Conflict(Option<KeyValue>),
}

/// A write of one key.
#[derive(Clone, Debug)]
pub(in crate::etcd) struct Publication {
    pub(in crate::etcd) key: String,
    pub(in crate::etcd) value: String,
    pub(in crate::etcd) guard: Guard,
    /// The lifetime; `None` writes the key for good, as reservations are.
    pub(in crate::etcd) ttl: Option<Duration>,
}

impl Publication {
    /// Grants an [etcd lease](https://etcd.io/docs/v3.5/learning/api/#lease-api) and writes the key
    /// with it.
    pub(in crate::etcd) async fn publish(
        &self,
        client: &mut EtcdClient,
    ) -> Result<Outcome, EtcdError> {
        let (etcd_lease, expiry) = match self.ttl {
            Some(ttl) => grant(client, ttl)
                .await
                .map(|(lease, expiry)| (lease, Some(expiry)))?,
            None => (0, None),
        };
        let answer = match self.write(client, etcd_lease).await {
            Err(error) if error.is_refusal() && etcd_lease != 0 => {
                // Each try would leave one behind for a day.
                revoke(client, etcd_lease).await;
                return Err(error);
            }
            answer => answer?,
        };
        let modified = answer.header().map_or(0, ResponseHeader::revision);
        if answer.succeeded() {
            return Ok(Outcome::Done(Published {
                modified,
                etcd_lease,
                expiry,
            }));
        }
        let found = found(&answer);
        if let Some(ours) = found
            .as_ref()
            .filter(|kv| etcd_lease != 0 && kv.lease() == etcd_lease)
        {
            // The write happened and its answer was lost; this is what the second attempt ran into.
            return Ok(Outcome::Done(Published {
                modified: ours.mod_revision(),
                etcd_lease,
                expiry,
            }));
        }
        if etcd_lease != 0 {
            revoke(client, etcd_lease).await;
        }
        Ok(Outcome::Conflict(found))
    }

    async fn write(
        &self,
        client: &mut EtcdClient,
        etcd_lease: i64,
    ) -> Result<TxnResponse, EtcdError> {
        let put = TxnOp::put(
            self.key.as_str(),
            self.value.as_str(),
            Some(PutOptions::new().with_lease(etcd_lease)),
        );
        let txn = Txn::new()
            .when([self.guard.compare(&self.key)])
            .and_then([put])
            .or_else([TxnOp::get(self.key.as_str(), None)]);
        client
            .call("writing our lease", |mut etcd| {
                let txn = txn.clone();
                async move { etcd.txn(txn).await }
            })
            .await
    }
}

/// Writes a key that does not exist, on an etcd lease that does. Returns true if the key is ours,
/// also where the answer to an earlier attempt was lost.
pub(in crate::etcd) async fn create(
    client: &mut EtcdClient,
    key: &str,
    value: &str,
    etcd_lease: i64,
) -> Result<bool, EtcdError> {
    let publication = Publication {
        key: key.to_owned(),
        value: value.to_owned(),
        guard: Guard::Absent,
        ttl: None,
    };
    let answer = publication.write(client, etcd_lease).await?;
    Ok(answer.succeeded() || found(&answer).is_some_and(|kv| kv.lease() == etcd_lease))
}

fn found(answer: &TxnResponse) -> Option<KeyValue> {
    answer.op_responses().into_iter().find_map(|op| match op {
        TxnOpResponse::Get(get) => get.kvs().first().cloned(),
        _ => None,
    })
}

/// Writes a key again on the etcd lease that it had, if it was last changed by `modified`. Returns
/// the revision of the write; `None` if another client changed the key.
pub(in crate::etcd) async fn rewrite(
    client: &mut EtcdClient,
    key: &str,
    value: String,
    modified: i64,
    etcd_lease: i64,
) -> Result<Option<i64>, EtcdError> {
    let publication = Publication {
        key: key.to_owned(),
        value,
        guard: Guard::Unchanged(modified),
        ttl: None,
    };
    let answer = publication.write(client, etcd_lease).await?;
    Ok(answer
        .succeeded()
        .then(|| answer.header().map_or(0, ResponseHeader::revision)))
}

/// Deletes a key that was last changed by `modified`. Returns true if it did.
pub(in crate::etcd) async fn delete_unchanged(
    client: &mut EtcdClient,
    key: &str,
    modified: i64,
) -> Result<bool, EtcdError> {
    let txn = Txn::new()
        .when([Guard::Unchanged(modified).compare(key)])
        .and_then([TxnOp::delete(key, None)]);
    let answer = client
        .call("deleting our former lease", |mut etcd| {
            let txn = txn.clone();
            async move { etcd.txn(txn).await }
        })
        .await?;
    Ok(answer.succeeded())
}

/// When an etcd lease ends; `None` when it is gone.
pub(in crate::etcd) async fn remaining(
    client: &mut EtcdClient,
    etcd_lease: i64,
) -> Result<Option<BootTime>, EtcdError> {
    let asked = BootTime::now();
    let answer = client
        .call(
            "asking for the lifetime of our lease",
            |mut etcd| async move { etcd.lease_time_to_live(etcd_lease, None).await },
        )
        .await?;
    Ok(u64::try_from(answer.ttl())
        .ok()
        .map(|ttl| asked + Duration::from_secs(ttl)))
}

/// Restarts the lifetime of an etcd lease. This writes nothing, so a store accepts it even while it
/// is out of space. Returns the new expiry; `None` when the lease is gone.
pub(in crate::etcd) async fn keep_alive(
    client: &mut EtcdClient,
    etcd_lease: i64,
) -> Result<Option<BootTime>, EtcdError> {
    let kept = client.call("keeping our lease alive", |mut etcd| async move {
        match etcd.lease_keep_alive(etcd_lease).await {
            Ok(_one_answer_is_enough) => Ok(true),
            Err(Error::LeaseKeepAliveError(_gone)) => Ok(false),
            Err(error) => Err(error),
        }
    });
    if kept.await? {
        remaining(client, etcd_lease).await
    } else {
        Ok(None)
    }
}

/// Asks for an etcd lease; its number, and when it ends.
pub(in crate::etcd) async fn grant(
    client: &mut EtcdClient,
    ttl: Duration,
) -> Result<(i64, BootTime), EtcdError> {
    // Never 0: etcd would raise it to its minimum of about two seconds.
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
    let asked = BootTime::now();
    let answer = client
        .call("asking for a lease", |mut etcd| async move {
            etcd.lease_grant(seconds, None).await
        })
        .await?;
    let granted = Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0));
    Ok((answer.id(), asked + granted))
}

/// Gives back an etcd lease nothing hangs on. It would end by itself.
pub(in crate::etcd) async fn revoke(client: &mut EtcdClient, etcd_lease: i64) {
    let answer = client
        .call("giving back a lease", |mut etcd| async move {
            etcd.lease_revoke(etcd_lease).await
        })
        .await;
    if let Err(error) = answer {
        debug!("an unused etcd lease is left to expire: {error}");
    }
}
