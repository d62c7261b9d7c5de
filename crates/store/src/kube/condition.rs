//! The [`NetworkUnavailable`
//! condition](https://kubernetes.io/docs/reference/node/node-status/#condition) of our Node:
//! `False` as soon as its pod network works, `True` again when it no longer does.
//!
//! While the condition is `True` the cluster keeps new pods off the node, so short troubles are
//! waited out, and a node whose network never worked is left as it is: its initial condition says
//! so already. An outage of the API server does not affect the pod network; what changed during one
//! is written after it, if it still holds.
//!
//! Other clients write the condition too, such as a cloud's route controller, which does not know
//! that the routes are ours. So the agent reads it after changes of the Node, and sets it right.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::{Liveness, manager::KubeManager, record::NETWORK_UNAVAILABLE};
use crate::{Backoff, Delays, LogThrottle};

const RETRY: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(1), 20) {
    Some(backoff) => backoff,
    None => panic!("1 s to 60 s is a valid back-off"),
};

/// The last value that the agent wrote to the Node's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// The agent has not written the condition yet.
    Never,
    /// `true`: it says that the network is available.
    Known(bool),
    /// The server may have applied a write whose answer was lost.
    Unknown,
}

/// Makes the condition follow the state of the network.
pub(super) struct Condition {
    /// `None` where the state is not reported, or the condition is not ours to write.
    available: Option<watch::Receiver<bool>>,
    written: Written,
    due: Option<Instant>,
    grace: Duration,
    retry: Delays,
    complaint: LogThrottle,
    review: Review,
}

/// Looks at the condition that the Node has.
struct Review {
    due: Option<Instant>,
    last: Option<Instant>,
    pause: Duration,
    complaint: LogThrottle,
}

impl Review {
    /// Plans a look, at most one in each pause.
    fn plan(&mut self) {
        let now = Instant::now();
        let earliest = self.last.map_or(now, |last| last + self.pause);
        self.due.get_or_insert(earliest.max(now));
    }
}

impl Condition {
    pub(super) fn new(available: Option<watch::Receiver<bool>>, liveness: Liveness) -> Self {
        let review = Review {
            due: None,
            last: None,
            pause: liveness.review,
            complaint: LogThrottle::default(),
        };
        let mut condition = Self {
            available,
            written: Written::Never,
            due: None,
            grace: liveness.grace,
            retry: RETRY.delays(),
            complaint: LogThrottle::default(),
            review,
        };
        condition.plan();
        condition
    }

    /// When [`Self::act`] should run; `None` while there is nothing to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.review.due).min()
    }

    /// The Node has changed: another client may have written the condition.
    pub(super) fn node_changed(&mut self) {
        if self.is_available().is_some() && self.written != Written::Never {
            self.review.plan();
        }
    }

    /// Waits for a change of the reported state.
    pub(super) async fn changed(&mut self) {
        if let Some(available) = &mut self.available
            && available.changed().await.is_ok()
        {
            return self.plan();
        }
        // The main loop is gone, and we shall be soon.
        std::future::pending::<()>().await;
    }

    /// The Node is a new one: what was written is gone.
    pub(super) fn forget(&mut self) {
        self.written = Written::Never;
        self.plan();
    }

    fn plan(&mut self) {
        let now = Instant::now();
        self.due = match (self.is_available(), self.written) {
            (Some(available), Written::Known(written)) if available == written => None,
            (Some(true), _) => Some(now),
            (Some(false), Written::Known(_) | Written::Unknown) => Some(now + self.grace),
            (Some(false), Written::Never) | (None, _) => None,
        };
    }

    fn is_available(&self) -> Option<bool> {
        self.available.as_ref().map(|available| *available.borrow())
    }

    /// Writes the condition, or looks whether it is as written.
    pub(super) async fn act(&mut self, manager: &mut KubeManager) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            if self.write(manager).await {
                let status = self.is_available().map(unavailable).unwrap_or_default();
                info!("set the node's NetworkUnavailable condition to {status}");
            }
        } else {
            self.look(manager).await;
        }
    }

    async fn look(&mut self, manager: &mut KubeManager) {
        (self.review.due, self.review.last) = (None, Some(Instant::now()));
        // A write is planned, or the state is one that is not written.
        let Some(available) = self
            .is_available()
            .filter(|now| self.written == Written::Known(*now))
        else {
            return;
        };
        let found = match manager.own_condition().await {
            Ok(found) => found,
            Err(error) => {
                debug!("cannot read the node's NetworkUnavailable condition: {error}");
                self.review.plan();
                return;
            }
        };
        if found.status == unavailable(available) {
            self.review.complaint.clear();
            return;
        }
        let problem = format!(
            "another client set the node's NetworkUnavailable condition to {:?} (reason {:?}); \
             setting it to {}",
            found.status,
            found.reason,
            unavailable(available)
        );
        if self.review.complaint.is_due(&problem, Instant::now()) {
            warn!("{problem}");
        }
        self.write(manager).await;
    }

    /// Writes the condition. Returns true if the server has it.
    async fn write(&mut self, manager: &mut KubeManager) -> bool {
        let Some(available) = self.is_available() else {
            self.due = None;
            return false;
        };
        let patch = patch(available, Timestamp::now());
        match manager
            .patch_node("setting the NetworkUnavailable condition", &patch)
            .await
        {
            Ok(_node) => {
                self.written = Written::Known(available);
                self.retry.reset();
                self.complaint.clear();
                self.plan();
                true
            }
            Err(error) => {
                let problem =
                    format!("cannot set the node's NetworkUnavailable condition: {error}");
                if self.complaint.is_due(&problem, Instant::now()) {
                    warn!("{problem}");
                }
                self.written = Written::Unknown;
                self.due = Some(Instant::now() + self.retry.next_delay());
                false
            }
        }
    }
}

fn unavailable(available: bool) -> &'static str {
    if available { "False" } else { "True" }
}

/// Conditions are merged by their type.
fn patch(available: bool, now: Timestamp) -> Value {
    let (reason, message) = if available {
        ("FlannelIsUp", "Flannel is running on this node")
    } else {
        (
            "FlannelIsDown",
            "The pod network does not work on this node; see flannel-agent status",
        )
    };
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({ "status": { "conditions": [{
        "type": NETWORK_UNAVAILABLE,
        "status": unavailable(available),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetworkAvailability;

    const GRACE: Duration = Duration::from_mins(1);

    fn liveness() -> Liveness {
        Liveness {
            grace: GRACE,
            review: GRACE,
            ..Liveness::default()
        }
    }

    #[test]
    fn the_condition_is_written_as_flannel_writes_it() {
        let patch = patch(true, Timestamp::from_second(9).expect("a time"));
        let expected = r#"{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp","message":"Flannel is running on this node","lastHeartbeatTime":"1970-01-01T00:00:09Z","lastTransitionTime":"1970-01-01T00:00:09Z"}]}}"#;
        assert_eq!(patch.to_string(), expected);
    }

    #[test]
    fn good_news_is_written_at_once_and_bad_news_after_a_grace() {
        let (availability, available) = NetworkAvailability::new();
        let mut condition = Condition::new(Some(available), liveness());
        assert_eq!(
            condition.due(),
            None,
            "never available, nothing to take back"
        );
        availability.set(true);
        condition.plan();
        assert!(condition.due().expect("due") <= Instant::now());
        condition.written = Written::Known(true);
        availability.set(false);
        condition.plan();
        assert!(condition.due().expect("due") > Instant::now() + GRACE / 2);
        availability.set(true);
        condition.plan();
        assert_eq!(condition.due(), None, "over in time");
        condition.written = Written::Unknown;
        condition.plan();
        assert!(condition.due().is_some(), "the Node may say otherwise");
        condition.forget();
        assert!(condition.due().is_some(), "a new Node has no condition");
        assert_eq!(Condition::new(None, liveness()).due(), None);
    }

    #[test]
    fn the_node_is_looked_at_once_in_a_while() {
        let (availability, available) = NetworkAvailability::new();
        let mut condition = Condition::new(Some(available), liveness());
        condition.node_changed();
        assert_eq!(condition.due(), None, "nothing was written");
        availability.set(true);
        condition.plan();
        (condition.written, condition.due) = (Written::Known(true), None);
        condition.node_changed();
        assert!(condition.due().expect("a look") <= Instant::now());
        (condition.review.due, condition.review.last) = (None, Some(Instant::now()));
        condition.node_changed();
        assert!(condition.due().expect("a look") > Instant::now() + GRACE / 2);
    }
}
