//! The verbs of [`SubnetManager`] for Kubernetes.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{
    annotate,
    entry::Annotations,
    error::KubeError,
    events,
    manager::{Acquired, KubeManager},
    pods,
    source::KubeSource,
};
use crate::{
    AcquireError, Backoff, Hints, LeaseAttrs, LeaseRequest, NetworkAvailability, NodeReports,
    OptOuts, OwnLease, Precedence, StoreCounts, StoreEvent, SubnetManager, watcher::Watcher,
};

/// Before we look again whether a Node has a subnet; every node of a new cluster does that.
const ASSIGNMENT: Backoff =
    match Backoff::new(Duration::from_millis(250), Duration::from_secs(15), 20) {
        Some(backoff) => backoff,
        None => panic!("250 ms to 15 s is a valid back-off"),
    };

impl SubnetManager for KubeManager {
    type Error = KubeError;

    const ASSIGNS_SUBNETS: bool = true;

    const PRECEDENCE: Precedence = Precedence::FirstCreated;

    async fn network_config(&mut self) -> Result<String, KubeError> {
        let path = self.client.options().net_config.clone();
        tokio::fs::read_to_string(&path)
            .await
            .map_err(|source| KubeError::NetConfig { path, source })
    }

    async fn hints(&mut self) -> Result<Hints, KubeError> {
        let node = self.own_node().await?;
        let hints = annotate::hints(&Annotations {
            node: &node,
            prefix: &self.client.options().prefix,
        });
        self.settings = hints.settings.clone();
        Ok(hints)
    }

    fn network_availability(&mut self) -> NetworkAvailability {
        if !self.client.options().set_network_unavailable {
            return NetworkAvailability::unpublished();
        }
        let (availability, available) = NetworkAvailability::new();
        self.available = Some(available);
        availability
    }

    fn node_reports(&mut self) -> NodeReports {
        // The name is known once a lease is held.
        let Some(node) = self.node.clone() else {
            return NodeReports::unpublished();
        };
        let (reports, reported) = NodeReports::new();
        tokio::spawn(events::Publisher::new(self.client.clone(), node, reported).run());
        reports
    }

    fn opt_outs(&mut self) -> OptOuts {
        // The name is known once a lease is held.
        let Some(node) = self
            .node
            .clone()
            .filter(|_| self.client.options().pod_opt_out)
        else {
            return OptOuts::never();
        };
        let (opt_outs, publisher) = OptOuts::new();
        tokio::spawn(pods::PodWatcher::new(self.client.clone(), node, publisher).run());
        opt_outs
    }

    fn count_with(&mut self, counts: StoreCounts) {
        self.counts = counts;
    }

    async fn acquire(&mut self, request: &LeaseRequest) -> Acquired<OwnLease> {
        if let Some(delays) = &mut self.assignment {
            tokio::time::sleep(delays.next_delay()).await;
        }
        let result = self.try_acquire(request).await;
        match &result {
            Ok(key) => (self.assignment, self.held) = (None, Some(*key)),
            Err(AcquireError::Store(KubeError::NoPodCidr { .. })) => {
                self.assignment.get_or_insert(ASSIGNMENT.delays());
            }
            Err(_) => {}
        }
        result.map(|key| OwnLease {
            key,
            expires_at: None,
        })
    }

    async fn run(
        mut self,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) {
        let mut delays = ASSIGNMENT.delays();
        let own = loop {
            match self.node_name().await {
                Ok(name) => break name,
                // Only without an acquired lease: the name is known since.
                Err(error) => tracing::warn!("{error}"),
            }
            tokio::select! {
                () = events.closed() => return,
                () = tokio::time::sleep(delays.next_delay()) => {}
            }
        };
        let counts = self.counts.clone();
        Watcher::new(KubeSource::new(self, own, request), counts, attrs, events)
            .run()
            .await;
    }
}
