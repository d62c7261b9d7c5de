//! Our own lease after start-up: renewed in time, watched, and acquired again when it is lost.
//!
//! Does not watch by itself; [`crate::etcd::source`] passes on what it sees of our key, and asks
//! when the next thing is due. What the receiver must know is returned as events.

use std::time::{Duration, Instant};

use flannel_host::clock::BootTime;
use tracing::{info, warn};

use crate::etcd::lease::{
    acquire::known_by,
    held::Held,
    publish::{self, Guard, Outcome, Publication},
};
use crate::{
    AcquireError, Backoff, Delays, EndMatch, LeaseAttrs, LeaseRequest, LogThrottle, LostCause,
    StoreEvent,
    etcd::{listing::Stored, manager::EtcdManager},
};

/// Between attempts to acquire again, and before our attributes are written over someone else's.
const AGAIN: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(1), 20) {
    Some(backoff) => backoff,
    None => panic!("1 s to 60 s is a valid back-off"),
};

/// The shortest time between two answers to machines that ask for our lease.
const ANSWER_GAP: Duration = Duration::from_secs(1);
/// For so long a write by another machine shows that the holder lives from whom we took the lease
/// over.
const PROBATION: Duration = Duration::from_secs(30);
/// The number of times that we write over another machine with our address.
const DEFENCES: u32 = 3;
/// After so long without another machine's write its former ones do not count.
const QUIET: Duration = Duration::from_mins(10);

/// Keeps our lease.
pub(in crate::etcd) struct Holder {
    request: LeaseRequest,
    /// The attributes our key was last written with, if ours changed since. Until ours are written,
    /// a lease with these attributes is ours as well.
    outdated: Option<LeaseAttrs>,
    /// When [`Self::act`] should run; `None` while there is nothing to do.
    due: Option<BootTime>,
    renewals: Delays,
    again: Delays,
    /// Writes by other machines with our address since the last quiet time, and the last of them.
    contests: (u32, Option<BootTime>),
    answered: Option<BootTime>,
    complaint: LogThrottle,
}

/// The author of a write of our key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Author {
    /// This node, or an operator: the lease stays ours.
    Us,
    /// Another machine with our public address asks whether we live.
    Claimant(String),
    /// Another machine with our public address.
    SameAddress(String),
    /// A node with another address.
    Other,
}

impl Holder {
    pub(in crate::etcd) fn new(manager: &EtcdManager, request: LeaseRequest) -> Self {
        let retry = manager.term.retry();
        let renewals = Backoff::new(retry, retry, 20).unwrap_or(AGAIN).delays();
        let due = manager
            .held
            .as_ref()
            .map_or(Some(BootTime::now()), |held| held.renew_at(manager.term));
        Self {
            request,
            outdated: None,
            due,
            renewals,
            again: AGAIN.delays(),
            contests: (0, None),
            answered: None,
            complaint: LogThrottle::default(),
        }
    }

    /// Sets the attributes to publish. A change is written at once.
    pub(in crate::etcd) fn republish(&mut self, attrs: LeaseAttrs) {
        let former = std::mem::replace(&mut self.request.attrs, attrs);
        if former == self.request.attrs {
            return;
        }
        let LeaseAttrs {
            public_ip,
            public_ipv6,
            ..
        } = &self.request.attrs;
        info!(?public_ip, ?public_ipv6, "what we publish changed");
        self.outdated.get_or_insert(former);
        self.due = Some(BootTime::now());
    }

    /// When [`Self::act`] should run.
    pub(in crate::etcd) fn due(&self, manager: &EtcdManager) -> Option<BootTime> {
        let rewrite = manager.held.as_ref().and_then(|held| held.rewrite_at);
        rewrite.into_iter().chain(self.due).min()
    }

    /// Plans an immediate attempt, after an outage of the store, if a renewal or write is overdue.
    pub(in crate::etcd) fn retry_now(&mut self, manager: &EtcdManager) {
        let overdue = manager
            .held
            .as_ref()
            .is_none_or(|held| held.is_due(manager.term, BootTime::now()));
        if overdue || self.outdated.is_some() {
            self.due = Some(BootTime::now());
        }
    }

    /// Renews the lease, writes it again, or acquires one if we hold none.
    pub(in crate::etcd) async fn act(&mut self, manager: &mut EtcdManager) -> Vec<StoreEvent> {
        if self.due.is_none_or(|due| due > BootTime::now())
            && let Some(held) = &mut manager.held
        {
            held.rewrite_at = None;
            self.rewrite(manager).await;
            return Vec::new();
        }
        match manager.held.take() {
            Some(held) => self.renew(manager, held).await,
            None => self.acquire(manager).await,
        }
    }

    /// Writes the lease as it is, on the same etcd lease. Without effect if another client changed
    /// the key: the watch reports that.
    async fn rewrite(&mut self, manager: &mut EtcdManager) {
        let Some(held) = &mut manager.held else {
            return;
        };
        let value = self.request.attrs.to_json();
        match publish::rewrite(
            &mut manager.client,
            &held.path,
            value,
            held.modified,
            held.etcd_lease,
        )
        .await
        {
            Ok(Some(modified)) => held.modified = modified,
            Ok(None) => {}
            Err(error) => {
                self.complain(&format!("our lease is not written a second time: {error}"));
                // The etcd lease may be gone.
                self.due = Some(BootTime::now() + self.renewals.next_delay());
            }
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
                let taken_over = held.taken_over;
                let renewed = Held {
                    taken_over,
                    ..Held::new(held.key, held.path, published)
                };
                let held = if self.outdated.is_some() {
                    renewed.with_new_content()
                } else {
                    renewed
                };
                let held = manager.held.insert(held);
                self.settled(held.renew_at(manager.term));
                let own = held.own_lease();
                manager.record(&self.request.attrs).await;
                vec![StoreEvent::OwnLease(own)]
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
                if kept {
                    vec![StoreEvent::OwnLease(own)]
                } else {
                    Vec::new()
                }
            }
        }
    }

    async fn acquire(&mut self, manager: &mut EtcdManager) -> Vec<StoreEvent> {
        match manager.acquire_lease(&self.request).await {
            Ok(own) => {
                info!("acquired lease {}", own.key);
                self.again.reset();
                self.settled(
                    manager
                        .held
                        .as_ref()
                        .and_then(|held| held.renew_at(manager.term)),
                );
                vec![StoreEvent::OwnLease(own)]
            }
            Err(error) => {
                self.complain(&format!("cannot acquire a lease: {error}"));
                self.due = Some(BootTime::now() + self.again.next_delay());
                let address_taken = matches!(error, AcquireError::AddressTaken(_));
                vec![StoreEvent::NotAcquired {
                    reason: error.to_string(),
                    address_taken,
                }]
            }
        }
    }

    /// Our key as the store has it now; `None` when it is gone. It may be older than what we wrote,
    /// in a store that was restored from a backup.
    pub(in crate::etcd) async fn see(
        &mut self,
        manager: &mut EtcdManager,
        found: Option<&Stored>,
    ) -> Vec<StoreEvent> {
        let Some(held) = &manager.held else {
            return Vec::new();
        };
        let Some(stored) = found else {
            return self.lost(manager, LostCause::Deleted);
        };
        // Another store may have our key at the same revision, but not on the same etcd lease.
        if (stored.entry.modified, stored.etcd_lease) == (held.modified, held.etcd_lease) {
            return Vec::new();
        }
        match self.author(held, stored) {
            Author::Us => {
                let ours = stored
                    .lease()
                    .is_some_and(|lease| lease.attrs == self.request.attrs);
                self.adopt(manager, stored, ours).await
            }
            Author::Claimant(by) => self.answer(manager, stored, by),
            Author::SameAddress(by) => self.contest(manager, stored, by),
            Author::Other => {
                let by = stored.lease().and_then(|lease| lease.attrs.node_address());
                self.lost(manager, LostCause::TakenOver { by })
            }
        }
    }

    fn author(&self, held: &Held, stored: &Stored) -> Author {
        let Some(lease) = stored.lease() else {
            return Author::Other;
        };
        let (attrs, ours) = (&lease.attrs, || {
            self.outdated.iter().chain([&self.request.attrs])
        });
        if !ours().any(|ours| attrs.is_same_node(ours)) {
            return Author::Other;
        }
        if let Some(by) = &stored.claimed_by {
            return Author::Claimant(by.to_string());
        }
        // An operator's write hangs on no etcd lease, or on ours.
        let is_on_another = stored.etcd_lease != 0 && stored.etcd_lease != held.etcd_lease;
        if is_on_another && ours().all(|ours| attrs.compare_ends(ours) == EndMatch::Other) {
            return Author::SameAddress(known_by(attrs));
        }
        Author::Us
    }

    /// Shows a machine that asks for our lease that we live: writes our value back, on our etcd
    /// lease.
    fn answer(
        &mut self,
        manager: &mut EtcdManager,
        stored: &Stored,
        by: String,
    ) -> Vec<StoreEvent> {
        let Some(held) = &mut manager.held else {
            return Vec::new();
        };
        let now = BootTime::now();
        let earliest = self
            .answered
            .map_or(now, |answered| (answered + ANSWER_GAP).max(now));
        self.answered = Some(earliest);
        (held.modified, held.rewrite_at) = (stored.entry.modified, Some(earliest));
        self.complain(&format!(
            "another machine ({by}) has our public address and asks for our lease {}; give one of \
             the two another address",
            held_key(manager)
        ));
        vec![StoreEvent::Contested { by }]
    }

    /// Another machine with our address wrote our key. We write our value over it, unless we took
    /// the lease over from a machine that proves to live so, or that machine persists.
    fn contest(
        &mut self,
        manager: &mut EtcdManager,
        stored: &Stored,
        by: String,
    ) -> Vec<StoreEvent> {
        let Some(held) = &mut manager.held else {
            return Vec::new();
        };
        let now = BootTime::now();
        let (count, last) = self.contests;
        let count = if last.is_some_and(|last| now.since(last) < QUIET) {
            count
        } else {
            0
        };
        self.contests = (count + 1, Some(now));
        let is_new = held
            .taken_over
            .is_some_and(|taken| now.since(taken) < PROBATION);
        if is_new || count >= DEFENCES {
            manager.answered = Some(now);
            return self.lost(manager, LostCause::SameAddress { by });
        }
        (held.modified, held.rewrite_at) =
            (stored.entry.modified, Some(now + self.again.next_delay()));
        self.complain(&format!(
            "another machine ({by}) has our public address and wrote our lease {}; give one of the \
             two another address. \
             Writing our attributes again",
            held_key(manager)
        ));
        vec![StoreEvent::Contested { by }]
    }

    /// Adopts our key after another process wrote it with our address: for an operator who made it
    /// a reservation, or as flanneld on this node.
    async fn adopt(
        &mut self,
        manager: &mut EtcdManager,
        stored: &Stored,
        as_we_write: bool,
    ) -> Vec<StoreEvent> {
        let expiry = match stored.etcd_lease {
            0 => None,
            // Unknown is as good as over: renew at once.
            etcd_lease => {
                let left = publish::remaining(&mut manager.client, etcd_lease)
                    .await
                    .ok()
                    .flatten();
                Some(left.unwrap_or_else(BootTime::now))
            }
        };
        let Some(held) = &mut manager.held else {
            return Vec::new();
        };
        (held.modified, held.etcd_lease, held.expiry) =
            (stored.entry.modified, stored.etcd_lease, expiry);
        let own = held.own_lease();
        self.due = held.renew_at(manager.term);
        if as_we_write {
            manager.record(&self.request.attrs).await;
        } else {
            warn!(
                "lease {} was written by another client with our address; writing our attributes \
                 again",
                own.key
            );
            self.due = Some(BootTime::now() + self.again.next_delay());
        }
        vec![StoreEvent::OwnLease(own)]
    }

    fn lost(&mut self, manager: &mut EtcdManager, cause: LostCause) -> Vec<StoreEvent> {
        let Some(Held { key, .. }) = manager.held.take() else {
            return Vec::new();
        };
        manager.counts.losses.add();
        self.request.previous = Some(key);
        let pause = match cause {
            LostCause::SameAddress { .. } => self.again.next_delay(),
            _ => Duration::ZERO,
        };
        self.due = Some(BootTime::now() + pause);
        vec![StoreEvent::OwnLeaseLost { key, cause }]
    }

    fn settled(&mut self, next: Option<BootTime>) {
        self.due = next;
        self.outdated = None;
        self.renewals.reset();
        self.complaint.clear();
    }

    fn complain(&mut self, problem: &str) {
        if self.complaint.is_due(problem, Instant::now()) {
            warn!("{problem}");
        }
    }
}

/// The lease we hold, for a message.
fn held_key(manager: &EtcdManager) -> String {
    manager
        .held
        .as_ref()
        .map_or_else(String::new, |held| held.key.to_string())
}

/// Keeps a lease alive that the store refuses to write again. Returns true if that moved its end.
async fn keep_alive(manager: &mut EtcdManager, held: &mut Held) -> bool {
    if held.etcd_lease == 0 {
        return false;
    }
    let expiry = publish::keep_alive(&mut manager.client, held.etcd_lease)
        .await
        .ok()
        .flatten();
    held.expiry = expiry.or(held.expiry);
    expiry.is_some()
}
