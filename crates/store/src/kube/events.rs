//! Events on our own Node about what is wrong with it: `kubectl describe node` shows them.
//!
//! Only the nodes concerned write one, so that a conflict in a large cluster makes two and not
//! thousands. The name of an Event is made of its reason and identity: what was written before, by
//! an earlier agent too, is not written again for as long as the server keeps it. A node whose
//! problems change all the time gets one Event in [`GAP`].

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};
use tracing::warn;

use super::error::KubeError;
use crate::{
    Backoff, Delays, LogThrottle, NodeReport,
    kube::connection::{client::KubeClient, requests},
};

/// Between two Events.
const GAP: Duration = Duration::from_secs(15);
/// The time after which a problem that goes on is written again: servers keep Events for an hour
/// by default (`--event-ttl`, one of the API server's
/// [flags](https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/)).
const REPEAT: Duration = Duration::from_hours(1);
/// Between attempts.
const RETRY: Backoff = match Backoff::new(Duration::from_secs(5), Duration::from_mins(5), 20) {
    Some(backoff) => backoff,
    None => panic!("5 s to 5 min is a valid back-off"),
};
/// Bytes of a message; the server takes 1024.
const LONGEST: usize = 1000;
/// Bytes of the Node's name in that of an Event, which has [at most
/// 253](https://kubernetes.io/docs/concepts/overview/working-with-objects/names/).
const LONGEST_NAME: usize = 200;

/// Writes them.
pub(super) struct Publisher {
    client: KubeClient,
    node: String,
    reports: watch::Receiver<BTreeSet<NodeReport>>,
    history: History,
    retry: Delays,
    complaint: LogThrottle,
}

impl Publisher {
    pub(super) fn new(
        client: KubeClient,
        node: String,
        reports: watch::Receiver<BTreeSet<NodeReport>>,
    ) -> Self {
        let (history, retry) = (History::default(), RETRY.delays());
        Self {
            client,
            node,
            reports,
            history,
            retry,
            complaint: LogThrottle::default(),
        }
    }

    /// Until the reporting end is gone.
    pub(super) async fn run(mut self) {
        loop {
            let due = self
                .history
                .first_due(&self.reports.borrow_and_update(), Instant::now());
            let Some(report) = due else {
                tokio::select! {
                    changed = self.reports.changed() => if changed.is_err() { return },
                    () = sleep(REPEAT) => {}
                }
                continue;
            };
            let pause = self.publish(&report).await;
            sleep(pause).await;
        }
    }

    /// Writes one. Returns the pause before the next.
    async fn publish(&mut self, report: &NodeReport) -> Duration {
        let request = requests::create_event(&event(&self.node, report, Timestamp::now()));
        match self.client.call::<Value>("writing an event", request).await {
            Err(error) if !error.exists() => self.fail(&error),
            _ => {
                self.history.add(report, Instant::now());
                self.retry.reset();
                self.complaint.clear();
                GAP
            }
        }
    }

    fn fail(&mut self, error: &KubeError) -> Duration {
        let problem = format!("a problem of this node is not published as an event: {error}");
        if self.complaint.is_due(&problem, Instant::now()) {
            warn!("{problem}");
        }
        self.retry.next_delay()
    }
}

/// Reason and identity of the reports written recently, each with the time of writing.
#[derive(Debug, Default)]
struct History(BTreeMap<(&'static str, String), Instant>);

impl History {
    fn first_due(&mut self, reports: &BTreeSet<NodeReport>, now: Instant) -> Option<NodeReport> {
        self.0
            .retain(|_, written| now.duration_since(*written) < REPEAT);
        reports
            .iter()
            .find(|report| !self.0.contains_key(&Self::key(report)))
            .cloned()
    }

    fn add(&mut self, report: &NodeReport, now: Instant) {
        self.0.insert(Self::key(report), now);
    }

    fn key(report: &NodeReport) -> (&'static str, String) {
        (report.reason, report.identity.clone())
    }
}

/// As the kubelet writes them: about a Node, in the namespace `default`, with the name for the UID.
fn event(node: &str, report: &NodeReport, now: Timestamp) -> Value {
    let end = report.message.floor_char_boundary(LONGEST);
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name(node, report), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node },
        "type": "Warning",
        "reason": report.reason,
        "message": report.message[..end],
        "source": { "component": "flannel-agent", "host": node },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}

fn name(node: &str, report: &NodeReport) -> String {
    let mut hasher = DefaultHasher::new();
    (report.reason, &report.identity).hash(&mut hasher);
    let node = &node[..node.floor_char_boundary(LONGEST_NAME)];
    format!(
        "{}.{:016x}",
        node.trim_end_matches(['-', '.']),
        hasher.finish()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(identity: &str) -> NodeReport {
        NodeReport {
            reason: "PeerSilent",
            identity: identity.to_owned(),
            message: format!("{identity} is silent"),
        }
    }

    #[test]
    fn an_event_is_about_our_node_and_named_by_what_it_says() {
        let now = Timestamp::from_second(9).expect("a time");
        let one = event("n1", &report("a"), now);
        assert_eq!(
            one["involvedObject"],
            json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"})
        );
        assert_eq!(
            (&one["reason"], &one["message"]),
            (&json!("PeerSilent"), &json!("a is silent"))
        );
        assert_eq!(one["firstTimestamp"], "1970-01-01T00:00:09Z");
        let name = |report: NodeReport| event("n1", &report, now)["metadata"]["name"].clone();
        let later = NodeReport {
            message: "a is silent for 9s".to_owned(),
            ..report("a")
        };
        assert_eq!(name(later), one["metadata"]["name"]);
        assert_ne!(name(report("b")), one["metadata"]["name"]);
        assert_ne!(
            name(NodeReport {
                reason: "LeaseContested",
                ..report("a")
            }),
            one["metadata"]["name"]
        );
        let long = event(
            &format!("{}-{}", "n".repeat(199), "m".repeat(53)),
            &report(&"ä".repeat(900)),
            now,
        );
        let length = |value: &Value| value.as_str().map(str::len);
        assert_eq!(
            length(&long["metadata"]["name"]),
            Some(199 + 17),
            "no label ends in a dash"
        );
        assert_eq!(length(&long["message"]), Some(LONGEST));
    }

    #[test]
    fn a_problem_is_written_once_in_an_hour_however_often_it_comes_and_goes() {
        let start = Instant::now();
        let (none, both) = (BTreeSet::new(), BTreeSet::from([report("a"), report("b")]));
        let mut history = History::default();
        assert_eq!(history.first_due(&none, start), None);
        assert_eq!(history.first_due(&both, start), Some(report("a")));
        history.add(&report("a"), start);
        assert_eq!(history.first_due(&both, start), Some(report("b")));
        history.add(&report("b"), start);
        assert_eq!(history.first_due(&none, start), None);
        assert_eq!(history.first_due(&both, start + REPEAT / 2), None);
        assert_eq!(history.first_due(&both, start + REPEAT), Some(report("a")));
    }
}
