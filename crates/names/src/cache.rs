//! The names that are known, each for a time, and bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// For this long the pods of a node are not asked for again.
pub(super) const FRESH: Duration = Duration::from_mins(1);
/// Likewise if an address in the node's subnet is not among them, because pods come and go.
pub(super) const FRESH_WITHOUT: Duration = Duration::from_secs(10);
/// Likewise after a failure.
pub(super) const FAILED: Duration = Duration::from_secs(30);
/// Likewise after a refusal: the role does not allow it.
pub(super) const REFUSED: Duration = Duration::from_mins(5);
/// Nodes whose pods are kept. The one that was listed first makes room.
pub(super) const NODES: usize = 256;

/// The kind of answer that was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupOutcome {
    Listed,
    Failed,
    Refused,
}

/// NameTable by address.
pub(super) type NameTable = BTreeMap<IpAddr, String>;

#[derive(Debug)]
struct NodePods {
    at: Instant,
    outcome: LookupOutcome,
    names: NameTable,
}

impl NodePods {
    fn is_fresh(&self, address: IpAddr, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.at);
        age < match self.outcome {
            LookupOutcome::Refused => REFUSED,
            LookupOutcome::Failed => FAILED,
            LookupOutcome::Listed if self.names.contains_key(&address) => FRESH,
            LookupOutcome::Listed => FRESH_WITHOUT,
        }
    }
}

/// The names that are known.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pods: BTreeMap<Arc<str>, NodePods>,
    services: Option<(Instant, NameTable)>,
    hosts: Option<(Instant, NameTable)>,
    /// Nodes that are being asked for.
    pub(super) asked: BTreeSet<Arc<str>>,
    /// True while Services, and hosts, are being asked for.
    pub(super) asked_services: bool,
    pub(super) asked_hosts: bool,
}

impl Cache {
    /// The pod that has an address, and true if the answer is fresh. A stale name is still shown
    /// while a new one is looked up.
    pub(super) fn pod(&self, node: &str, address: IpAddr, now: Instant) -> (Option<String>, bool) {
        self.pods.get(node).map_or((None, false), |pods| {
            (
                pods.names.get(&address).cloned(),
                pods.is_fresh(address, now),
            )
        })
    }

    /// Keeps the pods of a node. A failure keeps the names that are known.
    pub(super) fn set_pods(
        &mut self,
        node: Arc<str>,
        outcome: LookupOutcome,
        names: NameTable,
        now: Instant,
    ) {
        self.asked.remove(&node);
        let former = self.pods.remove(&node);
        let names = if outcome == LookupOutcome::Listed {
            names
        } else {
            former.map(|pods| pods.names).unwrap_or_default()
        };
        if self.pods.len() >= NODES
            && let Some(oldest) = self
                .pods
                .iter()
                .min_by_key(|(_, pods)| pods.at)
                .map(|(node, _)| node.clone())
        {
            self.pods.remove(&oldest);
        }
        self.pods.insert(
            node,
            NodePods {
                at: now,
                outcome,
                names,
            },
        );
    }

    /// True if the names of Services are fresh.
    pub(super) fn has_services(&self, now: Instant) -> bool {
        is_fresh(self.services.as_ref(), now)
    }

    pub(super) fn set_services(&mut self, names: NameTable, now: Instant) {
        self.asked_services = false;
        self.services = Some((now, names));
    }

    pub(super) fn service(&self, address: IpAddr) -> Option<String> {
        self.services
            .as_ref()
            .and_then(|(_, names)| names.get(&address).cloned())
    }

    /// True if the names of hosts are fresh.
    pub(super) fn has_hosts(&self, now: Instant) -> bool {
        is_fresh(self.hosts.as_ref(), now)
    }

    pub(super) fn set_hosts(&mut self, names: NameTable, now: Instant) {
        self.asked_hosts = false;
        self.hosts = Some((now, names));
    }

    pub(super) fn host(&self, address: IpAddr) -> Option<String> {
        self.hosts
            .as_ref()
            .and_then(|(_, names)| names.get(&address).cloned())
    }
}

fn is_fresh(kept: Option<&(Instant, NameTable)>, now: Instant) -> bool {
    kept.is_some_and(|(at, _)| now.saturating_duration_since(*at) < FRESH)
}
