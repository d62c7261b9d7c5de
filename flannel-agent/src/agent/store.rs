//! The store and our own lease, as the main loop knows them from the store's events.

use std::time::Duration;

use flannel_host::clock::BootTime;
use flannel_status::StoreStatus;
use flannel_store::{LostCause, OwnLease, StoreEvent};
use tracing::{debug, error, info};

/// For so long another machine counts as contesting our lease after it last did. A machine that is
/// refused asks at least once a minute.
const CONTESTED: Duration = Duration::from_mins(5);

/// The known state of the store and of our lease in it.
#[derive(Debug)]
pub(super) struct Store {
    state: State,
    /// The time at which it entered that state.
    since: BootTime,
    /// The time of the last change of any lease.
    last_change: Option<BootTime>,
    is_lost: bool,
    /// The reason why no lease is held, while it is lost.
    loss: Option<String>,
    /// True if that is another machine with our public address.
    address_taken: bool,
    /// The last time another machine with our public address asked for our lease or wrote it, and
    /// by what it is known.
    contested: Option<(BootTime, String)>,
    lapsed: bool,
}

/// The state of the store's event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Not read yet.
    Unseen,
    /// Changes arrive.
    InSync,
    /// Changes do not arrive, for this reason.
    Away(String),
}

impl Store {
    /// Of a store that has said nothing yet.
    pub(super) fn new() -> Self {
        Self {
            state: State::Unseen,
            since: BootTime::now(),
            last_change: None,
            is_lost: false,
            loss: None,
            address_taken: false,
            contested: None,
            lapsed: false,
        }
    }

    /// Takes in what happened.
    pub(super) fn apply_event(&mut self, event: &StoreEvent) {
        match event {
            StoreEvent::InSync { snapshot } => {
                if self.is_in_sync() {
                    debug!(entries = snapshot.len(), "the store was listed again");
                } else {
                    info!(entries = snapshot.len(), "the store is in sync");
                }
                self.enter(State::InSync);
            }
            // The store's task logs the outage and its end.
            StoreEvent::Resumed => self.enter(State::InSync),
            StoreEvent::OutOfSync { reason } => self.enter(State::Away(reason.clone())),
            StoreEvent::OwnLease(_) => {
                (self.is_lost, self.lapsed, self.loss, self.address_taken) =
                    (false, false, None, false);
            }
            StoreEvent::OwnLeaseLost { key, cause } => {
                error!("our lease {key} is lost: {cause}; acquiring again");
                self.lose(
                    format!("our lease {key} is lost: {cause}"),
                    matches!(cause, LostCause::SameAddress { .. }),
                );
            }
            StoreEvent::NotAcquired {
                reason,
                address_taken,
            } => {
                self.lose(format!("no lease is acquired: {reason}"), *address_taken);
            }
            StoreEvent::Contested { by } => {
                error!("another machine has our public address and contests our lease: {by}");
                self.contested = Some((BootTime::now(), by.clone()));
            }
            StoreEvent::Put(_) | StoreEvent::Delete { .. } => {
                self.last_change = Some(BootTime::now());
            }
            StoreEvent::Settings(_) => {}
        }
    }

    fn lose(&mut self, why: String, address_taken: bool) {
        (self.is_lost, self.loss, self.address_taken) = (true, Some(why), address_taken);
    }

    /// Returns true if another machine has our public address, and our lease or an interest in it.
    pub(super) fn is_contested(&self) -> bool {
        self.address_taken || self.contestant().is_some()
    }

    fn contestant(&self) -> Option<&str> {
        let (at, by) = self.contested.as_ref()?;
        (BootTime::now().since(*at) < CONTESTED).then_some(by)
    }

    /// Returns what is wrong with our lease, if anything is.
    pub(super) fn lease_problem(&self) -> Option<String> {
        let contested = |by| {
            format!(
                "another machine has our public address and contests our lease: {by}; give one of \
                 the two another"
            )
        };
        self.loss
            .clone()
            .or_else(|| self.contestant().map(contested))
    }

    /// Compares the lease with the clock. Returns true if it expired since the last call, and the
    /// store has not reported its loss.
    pub(super) fn look_at_clock(&mut self, own: &OwnLease) -> bool {
        let lapsed = !self.is_lost && own.has_lapsed(BootTime::now());
        let newly = lapsed && !self.lapsed;
        if newly {
            error!(lease = %own.key, "our lease ran out before it could be renewed; another node \
                may have it by now");
        }
        self.lapsed = lapsed;
        newly
    }

    /// Returns true if the leases were read once.
    pub(super) fn is_seen(&self) -> bool {
        self.state != State::Unseen
    }

    /// Returns true if its changes arrive.
    pub(super) fn is_in_sync(&self) -> bool {
        self.state == State::InSync
    }

    /// Returns true if our lease is neither reported as lost nor expired.
    pub(super) fn is_valid(&self, own: &OwnLease) -> bool {
        !self.is_lost && !own.has_lapsed(BootTime::now())
    }

    /// For the status document.
    pub(super) fn status(&self, endpoints: Vec<String>) -> StoreStatus {
        let reason = match &self.state {
            State::Away(reason) => Some(reason.clone()),
            State::Unseen | State::InSync => None,
        };
        StoreStatus {
            endpoints,
            in_sync: self.is_in_sync(),
            reason,
            since: Some(self.since.unix()),
            last_change: self.last_change.map(BootTime::unix),
        }
    }

    fn enter(&mut self, state: State) {
        if std::mem::discriminant(&self.state) != std::mem::discriminant(&state) {
            self.since = BootTime::now();
        }
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(expires_at: Option<BootTime>) -> OwnLease {
        OwnLease {
            key: "10.5.1.0-24".parse().expect("a key"),
            expires_at,
        }
    }

    fn away() -> StoreEvent {
        StoreEvent::OutOfSync {
            reason: "gone".to_owned(),
        }
    }

    #[test]
    fn a_lease_that_ran_out_is_reported_once_and_not_believed() {
        let (mut store, now) = (Store::new(), BootTime::now());
        let lapsed = own(Some(now));
        for good in [own(None), own(Some(now + Duration::from_hours(1)))] {
            assert!(store.is_valid(&good) && !store.look_at_clock(&good));
        }
        assert!(!store.is_valid(&lapsed));
        assert!(
            store.look_at_clock(&lapsed) && !store.look_at_clock(&lapsed),
            "told once"
        );
        store.apply_event(&StoreEvent::OwnLease(own(None)));
        assert!(
            store.look_at_clock(&lapsed),
            "and again after another was held"
        );
        store.apply_event(&StoreEvent::OwnLeaseLost {
            key: lapsed.key,
            cause: LostCause::Deleted,
        });
        assert!(
            !store.look_at_clock(&lapsed) && !store.is_valid(&own(None)),
            "the store has said it already"
        );
    }

    #[test]
    fn the_status_shows_since_when() {
        let mut store = Store::new();
        assert!(!store.is_seen() && store.status(Vec::new()).reason.is_none());
        store.apply_event(&StoreEvent::InSync {
            snapshot: Vec::new(),
        });
        let first = store.since;
        store.apply_event(&StoreEvent::InSync {
            snapshot: Vec::new(),
        });
        assert_eq!(store.since, first, "in sync all the time");
        assert_eq!(store.status(Vec::new()).last_change, None);
        store.apply_event(&away());
        store.apply_event(&StoreEvent::Delete { name: "a".into() });
        let status = store.status(Vec::new());
        assert_eq!(
            (
                status.in_sync,
                status.reason.as_deref(),
                status.last_change.is_some()
            ),
            (false, Some("gone"), true)
        );
        assert!(store.is_seen() && store.since > first);
        store.apply_event(&StoreEvent::Resumed);
        assert!(store.is_in_sync() && store.status(Vec::new()).reason.is_none());
    }
}
