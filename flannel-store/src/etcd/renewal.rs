//! Our own lease after start-up: renewed in time, watched, and acquired again when it is lost.
//!
//! Does not watch by itself; [`super::source`] passes on what it sees of our key, and asks when
//! the next thing is due. What the receiver must know is returned as events.

use std::time::{Duration, Instant};

use flannel_host::clock::BootTime;
use tracing::{info, warn};

use super::{EtcdManager, Guard, Held, Outcome, Publication, Stored, publish};
use crate::{Backoff, Delays, LeaseAttrs, LeaseRequest, LogThrottle, LostCause, StoreEvent, SubnetManager as _};

/// Between attempts to acquire again, and before our attributes are written over someone else's.
const AGAIN: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(1), 20) {
    Some(backoff) => backoff,
    None => panic!("1 s to 60 s is a valid back-off"),
};

/// Keeps our lease.
pub(super) struct Holder {
    request: LeaseRequest,
    /// The attributes our key was last written with, if ours changed since. Until ours are written,
    /// a lease with these attributes is ours as well.
    outdated: Option<LeaseAttrs>,
    /// When [`Self::act`] should run; `None` while there is nothing to do.
    due: Option<BootTime>,
    renewals: Delays,
    again: Delays,
    complaint: LogThrottle,
}

impl Holder {
    pub(super) fn new(manager: &EtcdManager, request: LeaseRequest) -> Self {
        let retry = manager.term.retry();
        let renewals = Backoff::new(retry, retry, 20).unwrap_or(AGAIN).delays();
        let due = manager.held.as_ref().map_or(Some(BootTime::now()), |held| held.renew_at(manager.term));
        Self { request, outdated: None, due, renewals, again: AGAIN.delays(), complaint: LogThrottle::default() }
    }

    /// We publish these attributes from here on, and at once.
    pub(super) fn republish(&mut self, attrs: LeaseAttrs) {
        let former = std::mem::replace(&mut self.request.attrs, attrs);
        if former == self.request.attrs {
            return;
        }
        let LeaseAttrs { public_ip, public_ipv6, .. } = &self.request.attrs;
        info!(?public_ip, ?public_ipv6, "what we publish changed");
        self.outdated.get_or_insert(former);
        self.due = Some(BootTime::now());
    }

    /// When [`Self::act`] should run.
    pub(super) fn due(&self) -> Option<BootTime> {
        self.due
    }

    /// The store is back: do at once what failed meanwhile.
    pub(super) fn retry_now(&mut self, manager: &EtcdManager) {
        let overdue = manager.held.as_ref().is_none_or(|held| held.is_due(manager.term, BootTime::now()));
        if overdue || self.outdated.is_some() {
            self.due = Some(BootTime::now());
        }
    }

    /// Renews the lease, or acquires one if we hold none.
    pub(super) async fn act(&mut self, manager: &mut EtcdManager) -> Vec<StoreEvent> {
        match manager.held.take() {
            Some(held) => self.renew(manager, held).await,
            None => self.acquire(manager).await,
        }
    }

    async fn renew(&mut self, manager: &mut EtcdManager, mut held: Held) -> Vec<StoreEvent> {
        let publication = Publication {
            key: held.path.clone(),
            value: self.request.attrs.to_json(),
            guard: Guard::Unchanged(held.modified),
            ttl: Some(manager.term.ttl).filter(|_| held.etcd_lease != 0),
        };
        match publication.publish(&mut manager.client).await {
            Ok(Outcome::Done(published)) => {
                manager.counts.renewals.add();
                if held.is_due(manager.term, BootTime::now()) {
                    // A quiet term is over; only quarrels over the key keep the delays long.
                    self.again.reset();
                }
                let held = manager.held.insert(Held::new(held.key, held.path, published));
                self.settled(held.renew_at(manager.term));
                vec![StoreEvent::OwnLease(held.own_lease())]
            }
            Ok(Outcome::Conflict(found)) => {
                manager.held = Some(held);
                let found = found.and_then(|kv| Stored::read(&manager.keys, &kv));
                self.see(manager, found.as_ref()).await
            }
            Err(error) => {
                manager.counts.renewal_failures.add();
                self.complain(&format!("cannot renew our lease {}: {error}", held.key));
                let kept = error.is_refusal() && keep_alive(manager, &mut held).await;
                let own = held.own_lease();
                manager.held = Some(held);
                self.due = Some(BootTime::now() + self.renewals.next_delay());
                if kept { vec![StoreEvent::OwnLease(own)] } else { Vec::new() }
            }
        }
    }

    async fn acquire(&mut self, manager: &mut EtcdManager) -> Vec<StoreEvent> {
        match manager.acquire(&self.request).await {
            Ok(own) => {
                info!("acquired lease {}", own.key);
                self.again.reset();
                self.settled(manager.held.as_ref().and_then(|held| held.renew_at(manager.term)));
                vec![StoreEvent::OwnLease(own)]
            }
            Err(error) => {
                self.complain(&format!("cannot acquire a lease: {error}"));
                self.due = Some(BootTime::now() + self.again.next_delay());
                Vec::new()
            }
        }
    }

    /// Our key as the store has it now; `None` when it is gone. It may be older than what we wrote,
    /// in a store that was restored from a backup.
    pub(super) async fn see(&mut self, manager: &mut EtcdManager, found: Option<&Stored>) -> Vec<StoreEvent> {
        let Some(held) = &manager.held else { return Vec::new() };
        let Some(stored) = found else { return self.lost(manager, LostCause::Deleted) };
        // Another store may have our key at the same revision, but not on the same etcd lease.
        if (stored.entry.modified, stored.etcd_lease) == (held.modified, held.etcd_lease) {
            return Vec::new();
        }
        let attrs = stored.lease().map(|lease| &lease.attrs);
        if !attrs.is_some_and(|attrs| self.is_us(attrs)) {
            return self.lost(manager, LostCause::TakenOver { by: attrs.and_then(LeaseAttrs::node_address) });
        }
        let ours = attrs == Some(&self.request.attrs);
        self.adopt(manager, stored, ours).await
    }

    fn is_us(&self, attrs: &LeaseAttrs) -> bool {
        attrs.is_same_node(&self.request.attrs)
            || self.outdated.as_ref().is_some_and(|outdated| attrs.is_same_node(outdated))
    }

    /// Adopts our key after another process wrote it with our address: for an operator who made it
    /// a reservation, or as flanneld on this node.
    async fn adopt(&mut self, manager: &mut EtcdManager, stored: &Stored, as_we_write: bool) -> Vec<StoreEvent> {
        let expiry = match stored.etcd_lease {
            0 => None,
            // Unknown is as good as over: renew at once.
            etcd_lease => {
                let left = publish::remaining(&mut manager.client, etcd_lease).await.ok().flatten();
                Some(left.unwrap_or_else(BootTime::now))
            }
        };
        let Some(held) = &mut manager.held else { return Vec::new() };
        (held.modified, held.etcd_lease, held.expiry) = (stored.entry.modified, stored.etcd_lease, expiry);
        let own = held.own_lease();
        self.due = held.renew_at(manager.term);
        if !as_we_write {
            warn!("lease {} was written by another client with our address; writing our attributes again", held.key);
            self.due = Some(BootTime::now() + self.again.next_delay());
        }
        vec![StoreEvent::OwnLease(own)]
    }

    fn lost(&mut self, manager: &mut EtcdManager, cause: LostCause) -> Vec<StoreEvent> {
        let Some(Held { key, .. }) = manager.held.take() else { return Vec::new() };
        manager.counts.losses.add();
        self.request.previous = Some(key);
        self.due = Some(BootTime::now());
        vec![StoreEvent::OwnLeaseLost { key, cause }]
    }

    fn settled(&mut self, next: Option<BootTime>) {
        self.due = next;
        self.outdated = None;
        self.renewals.reset();
        self.complaint.settle();
    }

    fn complain(&mut self, problem: &str) {
        if self.complaint.is_due(problem, Instant::now()) {
            warn!("{problem}");
        }
    }
}

/// Keeps a lease alive that the store refuses to write again. Whether that moved its end.
async fn keep_alive(manager: &mut EtcdManager, held: &mut Held) -> bool {
    if held.etcd_lease == 0 {
        return false;
    }
    let expiry = publish::keep_alive(&mut manager.client, held.etcd_lease).await.ok().flatten();
    held.expiry = expiry.or(held.expiry);
    expiry.is_some()
}
