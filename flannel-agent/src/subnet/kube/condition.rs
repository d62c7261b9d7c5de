//! The `NetworkUnavailable` condition of our Node: `False` as soon as we are ready, `True` again when we no longer are.
//!
//! While the condition is `True` the cluster keeps new pods off the node, so short troubles are waited out, and a node
//! that was never ready is left as it is: who set it up said so already.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use super::KubeManager;
use crate::subnet::{Backoff, Complaint, Delays};

const RETRY: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(1), 20) {
    Some(backoff) => backoff,
    None => panic!("1 s to 60 s is a valid back-off"),
};

/// Makes the condition follow our readiness.
pub(super) struct Condition {
    /// `None` when nobody tells, or the operator does not want it.
    ready: Option<watch::Receiver<bool>>,
    /// What the Node says, as far as we wrote it.
    written: Option<bool>,
    due: Option<Instant>,
    grace: Duration,
    retry: Delays,
    complaint: Complaint,
}

impl Condition {
    pub(super) fn new(ready: Option<watch::Receiver<bool>>, grace: Duration) -> Self {
        let mut condition =
            Self { ready, written: None, due: None, grace, retry: RETRY.delays(), complaint: Complaint::default() };
        condition.plan();
        condition
    }

    /// When [`Self::act`] should run; `None` while there is nothing to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Waits until something else was told than before.
    pub(super) async fn changed(&mut self) {
        if let Some(ready) = &mut self.ready
            && ready.changed().await.is_ok()
        {
            return self.plan();
        }
        // The main loop is gone, and we shall be soon.
        std::future::pending::<()>().await;
    }

    /// The Node is a new one: what was written is gone.
    pub(super) fn forget(&mut self) {
        self.written = None;
        self.plan();
    }

    fn plan(&mut self) {
        let now = Instant::now();
        self.due = match (self.wanted(), self.written) {
            (Some(ready), Some(written)) if ready == written => None,
            (Some(true), _) => Some(now),
            (Some(false), Some(_)) => Some(now + self.grace),
            _ => None,
        };
    }

    fn wanted(&self) -> Option<bool> {
        self.ready.as_ref().map(|ready| *ready.borrow())
    }

    /// Writes the condition.
    pub(super) async fn act(&mut self, manager: &mut KubeManager) {
        let Some(ready) = self.wanted() else { return self.due = None };
        match manager.patch_node("setting the NetworkUnavailable condition", &patch(ready, Timestamp::now())).await {
            Ok(_node) => {
                info!("set the node's NetworkUnavailable condition to {}", unavailable(ready));
                self.written = Some(ready);
                self.retry.reset();
                self.complaint.settle();
                self.plan();
            }
            Err(error) => {
                let problem = format!("cannot set the node's NetworkUnavailable condition: {error}");
                if self.complaint.is_due(&problem, Instant::now()) {
                    warn!("{problem}");
                }
                self.due = Some(Instant::now() + self.retry.next_delay());
            }
        }
    }
}

fn unavailable(ready: bool) -> &'static str {
    if ready { "False" } else { "True" }
}

/// Conditions are merged by their type.
fn patch(ready: bool, now: Timestamp) -> Value {
    let (reason, message) = if ready {
        ("FlannelIsUp", "Flannel is running on this node")
    } else {
        ("FlannelIsDown", "Flannel is not ready on this node; its status tells why")
    };
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({ "status": { "conditions": [{
        "type": "NetworkUnavailable",
        "status": unavailable(ready),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subnet::Readiness;

    const GRACE: Duration = Duration::from_mins(1);

    #[test]
    fn the_condition_is_written_as_flannel_writes_it() {
        let patch = patch(true, Timestamp::from_second(9).expect("a time"));
        let expected = r#"{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp","message":"Flannel is running on this node","lastHeartbeatTime":"1970-01-01T00:00:09Z","lastTransitionTime":"1970-01-01T00:00:09Z"}]}}"#;
        assert_eq!(patch.to_string(), expected);
    }

    #[test]
    fn good_news_is_told_at_once_and_bad_news_after_a_grace() {
        let (readiness, ready) = Readiness::new();
        let mut condition = Condition::new(Some(ready), GRACE);
        assert_eq!(condition.due(), None, "never ready, nothing to take back");
        readiness.set(true);
        condition.plan();
        assert!(condition.due().expect("due") <= Instant::now());
        condition.written = Some(true);
        readiness.set(false);
        condition.plan();
        assert!(condition.due().expect("due") > Instant::now() + GRACE / 2);
        readiness.set(true);
        condition.plan();
        assert_eq!(condition.due(), None, "over in time");
        condition.forget();
        assert!(condition.due().is_some(), "a new Node has to be told");
        assert_eq!(Condition::new(None, GRACE).due(), None);
    }
}
