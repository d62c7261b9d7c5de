//! Our own Node after start-up: its subnet followed, its annotations kept.
//!
//! Does not watch by itself; [`super::source`] passes on what it sees of the Node, and asks when
//! the next thing is due. What the receiver must know is returned as events. A lease is held once
//! it is published.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::{
    annotate::patch_for, entry::Annotations, manager::KubeManager, position::is_older,
    prefix::AnnotationPrefix, record::NodeRecord,
};
use crate::{
    Backoff, Delays, LeaseAttrs, LeaseKey, LeaseRequest, LogThrottle, LostCause, OwnLease,
    StoreCounts, StoreEvent,
};

/// Between attempts to write, and before our annotations are written over someone else's.
const AGAIN: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(1), 20) {
    Some(backoff) => backoff,
    None => panic!("1 s to 60 s is a valid back-off"),
};
/// Time after our last write during which another client's write counts as a quarrel.
const QUIET: Duration = Duration::from_mins(5);

/// Keeps our lease.
pub(super) struct Holder {
    request: LeaseRequest,
    prefix: AnnotationPrefix,
    held: Option<LeaseKey>,
    /// The reason last reported why no lease is held.
    reported: Option<String>,
    /// The Node as last seen; `None` while it is gone.
    node: Option<NodeRecord>,
    due: Option<Instant>,
    written: Option<Instant>,
    again: Delays,
    complaint: LogThrottle,
    counts: StoreCounts,
}

impl Holder {
    pub(super) fn new(manager: &KubeManager, request: LeaseRequest) -> Self {
        Self {
            request,
            prefix: manager.client.options().prefix.clone(),
            held: manager.held,
            reported: None,
            node: None,
            due: None,
            written: None,
            again: AGAIN.delays(),
            complaint: LogThrottle::default(),
            counts: manager.counts.clone(),
        }
    }

    /// When [`Self::act`] should run; `None` while there is nothing to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns true if `node` is older than the version we know. That happens because our own
    /// writes are answered before the watch reports them.
    pub(super) fn is_newer(&self, node: &NodeRecord) -> bool {
        let newer = |known: &NodeRecord| {
            known.uid == node.uid && is_older(&node.resource_version, &known.resource_version)
        };
        self.node.as_ref().is_some_and(newer)
    }

    /// Returns true if `node` is not the Node we know: one created again under the same name, or
    /// the first one seen.
    pub(super) fn is_replacement(&self, node: &NodeRecord) -> bool {
        self.node.as_ref().is_none_or(|known| known.uid != node.uid)
    }

    /// The Node as the server has it now; `None` when it is gone.
    pub(super) fn see(&mut self, found: Option<NodeRecord>) -> Vec<StoreEvent> {
        self.node = found;
        let Some(node) = &self.node else {
            return self.lose(LostCause::NodeDeleted);
        };
        let key = match KubeManager::assigned(node, &self.request.config) {
            Ok(key) => key,
            Err(error) => {
                return self.lose(LostCause::Unassigned {
                    reason: error.to_string(),
                });
            }
        };
        let differs = patch_for(
            &Annotations {
                node,
                prefix: &self.prefix,
            },
            &self.request.attrs,
        )
        .is_some();
        let mut events = Vec::new();
        if self.held.is_some_and(|held| held != key) {
            events = self.lose(LostCause::Reassigned { to: key });
        }
        if differs {
            self.plan_write();
            return events;
        }
        self.due = None;
        if self.held.replace(key) != Some(key) {
            info!("holding lease {key}");
            events.push(StoreEvent::OwnLease(OwnLease {
                key,
                expires_at: None,
            }));
        }
        events
    }

    /// Publishes these attributes from now on, and writes them at once. Returns true if the node
    /// has other addresses than before.
    pub(super) fn republish(&mut self, attrs: LeaseAttrs) -> bool {
        let former = std::mem::replace(&mut self.request.attrs, attrs);
        self.again.reset();
        self.due = Some(Instant::now());
        !former.addresses().eq(self.request.attrs.addresses())
    }

    fn plan_write(&mut self) {
        if self.due.is_some() {
            return;
        }
        let now = Instant::now();
        let quarrel =
            self.held.is_some() && self.written.is_some_and(|written| now - written < QUIET);
        if quarrel {
            warn!("our annotations were changed by another client; writing them again");
            self.due = Some(now + self.again.next_delay());
        } else {
            self.again.reset();
            self.due = Some(now);
        }
    }

    /// Writes our annotations.
    pub(super) async fn act(&mut self, manager: &mut KubeManager) -> Vec<StoreEvent> {
        self.due = None;
        let Some(node) = &self.node else {
            return Vec::new();
        };
        let Some(patch) = patch_for(
            &Annotations {
                node,
                prefix: &self.prefix,
            },
            &self.request.attrs,
        ) else {
            return Vec::new();
        };
        match manager.patch_node("writing our annotations", &patch).await {
            Ok(node) => {
                self.counts.renewals.add();
                self.written = Some(Instant::now());
                self.complaint.clear();
                self.see(Some(node))
            }
            Err(error) => {
                self.counts.renewal_failures.add();
                self.complain(&format!("our annotations are not written: {error}"));
                self.due = Some(Instant::now() + self.again.next_delay());
                Vec::new()
            }
        }
    }

    fn lose(&mut self, cause: LostCause) -> Vec<StoreEvent> {
        self.due = None;
        let Some(key) = self.held.take() else {
            self.complain(&format!("no lease: {cause}"));
            let reason = cause.to_string();
            let is_known = self
                .reported
                .replace(reason.clone())
                .is_some_and(|reported| reported == reason);
            let event = (!is_known).then_some(StoreEvent::NotAcquired {
                reason,
                address_taken: false,
            });
            return event.into_iter().collect();
        };
        self.reported = Some(cause.to_string());
        self.counts.losses.add();
        vec![StoreEvent::OwnLeaseLost { key, cause }]
    }

    fn complain(&mut self, problem: &str) {
        if self.complaint.is_due(problem, Instant::now()) {
            warn!("{problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::NetworkConfig,
        kube::{KubeOptions, Liveness, NodeIdentity},
    };

    fn holder() -> Holder {
        let options = KubeOptions {
            api_url: None,
            kubeconfig: None,
            prefix: AnnotationPrefix::default(),
            net_config: "/net-conf.json".into(),
            set_network_unavailable: false,
            pod_opt_out: false,
        };
        let manager = KubeManager::new(
            options,
            NodeIdentity::Node("a".to_owned()),
            Liveness::default(),
        );
        let text = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#;
        let config = NetworkConfig::parse_assigned(text).expect("a configuration");
        let attrs = LeaseAttrs {
            public_ip: Some([192, 0, 2, 1].into()),
            ..LeaseAttrs::default()
        };
        Holder::new(
            &manager,
            LeaseRequest {
                config,
                attrs,
                previous: None,
            },
        )
    }

    fn node(version: &str, uid: &str, ip: &str) -> NodeRecord {
        let text = format!(
            r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"{version}","annotations":{{"p/kube-subnet-manager":"true","p/backend-type":"","p/backend-data":"null","p/public-ip":"{ip}"}}}},"spec":{{"podCIDR":"10.5.1.0/24"}}}}"#
        );
        serde_json::from_str(&text.replace("p/", "flannel.alpha.coreos.com/")).expect("a node")
    }

    #[test]
    fn a_change_older_than_our_own_write_is_no_news() {
        let mut holder = holder();
        assert!(
            !holder.is_newer(&node("9", "u", "192.0.2.1")),
            "nothing is known yet"
        );
        holder.see(Some(node("10", "u", "192.0.2.1")));
        for (version, uid, known) in [
            ("9", "u", true),
            ("10", "u", false),
            ("11", "u", false),
            ("9", "other", false),
        ] {
            assert_eq!(
                holder.is_newer(&node(version, uid, "192.0.2.9")),
                known,
                "{version} {uid}"
            );
        }
    }

    #[test]
    fn who_writes_over_us_is_answered_at_once_and_then_ever_slower() {
        let mut holder = holder();
        assert!(matches!(
            holder.see(Some(node("1", "u", "192.0.2.1")))[..],
            [StoreEvent::OwnLease(_)]
        ));
        assert_eq!(holder.due(), None);
        assert_eq!(holder.see(Some(node("2", "u", "192.0.2.9"))), []);
        assert!(holder.due().expect("due") <= Instant::now());
        (holder.due, holder.written) = (None, Some(Instant::now()));
        let mut last = Duration::ZERO;
        for _ in 0..3 {
            let before = Instant::now();
            holder.see(Some(node("3", "u", "192.0.2.9")));
            let due = holder.due().expect("due");
            holder.see(Some(node("4", "u", "192.0.2.9")));
            assert_eq!(holder.due(), Some(due), "a heartbeat does not put it off");
            assert!(due - before > last, "{:?} after {last:?}", due - before);
            last = due - before;
            holder.due = None;
        }
    }
}
