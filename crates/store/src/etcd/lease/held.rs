//! The lease we hold, as etcd has it.

use std::time::Duration;

use flannel_host::clock::BootTime;

use crate::{
    LeaseKey, OwnLease,
    etcd::lease::{publish::Published, term::Term},
};

/// After a lease was written with new content it is written once more. Stock flannel 0.20 reads
/// only the first change of an answer of its watch, so that it may miss one of two that come
/// together (`ev := wresp.Events[0]` in pkg/subnet/etcd/registry.go,
/// <https://github.com/flannel-io/flannel/blob/v0.20.0/pkg/subnet/etcd/registry.go>).
const SECOND_WRITE: Duration = Duration::from_secs(1);

/// The lease we hold, as etcd has it.
#[derive(Clone, Debug)]
pub(in crate::etcd) struct Held {
    pub(in crate::etcd) key: LeaseKey,
    /// The full key in etcd, which may spell the IPv6 subnet differently from us.
    pub(in crate::etcd) path: String,
    /// The revision of the last write we know.
    pub(in crate::etcd) modified: i64,
    /// 0 for a reservation.
    pub(in crate::etcd) etcd_lease: i64,
    pub(in crate::etcd) expiry: Option<BootTime>,
    /// When to write it again as it is.
    pub(in crate::etcd) rewrite_at: Option<BootTime>,
    /// When it was taken over from a holder that did not answer.
    pub(in crate::etcd) taken_over: Option<BootTime>,
}

impl Held {
    pub(in crate::etcd) fn new(key: LeaseKey, path: String, published: Published) -> Self {
        let Published {
            modified,
            etcd_lease,
            expiry,
        } = published;
        Self {
            key,
            path,
            modified,
            etcd_lease,
            expiry,
            rewrite_at: None,
            taken_over: None,
        }
    }

    /// It was written with new content.
    pub(in crate::etcd) fn with_new_content(self) -> Self {
        Self {
            rewrite_at: Some(BootTime::now() + SECOND_WRITE),
            ..self
        }
    }

    pub(in crate::etcd) fn own_lease(&self) -> OwnLease {
        OwnLease {
            key: self.key,
            expires_at: self.expiry,
        }
    }

    /// When to renew; `None` for a reservation.
    pub(in crate::etcd) fn renew_at(&self, term: Term) -> Option<BootTime> {
        self.expiry.map(|expiry| expiry.before(term.margin))
    }

    /// Returns true if at most the margin of `term` is left before the expiry, so that it is time
    /// to renew.
    pub(in crate::etcd) fn is_due(&self, term: Term, now: BootTime) -> bool {
        self.renew_at(term).is_some_and(|renew_at| renew_at <= now)
    }
}
