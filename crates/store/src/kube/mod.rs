//! Leases as annotations of Kubernetes Nodes, side by side with stock flannel nodes.
//!
//! [`KubeManager`] implements [`SubnetManager`]. The cluster assigns each Node its subnet
//! (`spec.podCIDR`); a lease is that, with the annotations by which the node says how it is
//! reached. Our identity is the name of our Node. A Node is pruned while it is decoded (`record`),
//! and becomes the same entry a lease in etcd becomes (`entry`). Pods of this node may opt out of
//! mode `fast` (`pods`).

mod annotate;
mod client;
mod condition;
mod connect;
mod credential_plugin;
mod entry;
mod error;
mod events;
mod items;
mod listing;
mod options;
mod pod_lister;
mod pods;
mod position;
mod prefix;
#[cfg(test)]
mod properties;
mod prune;
mod record;
mod renewal;
mod requests;
mod settings;
mod source;
mod stream;
mod token;
mod transport;
mod unclear;

use std::time::Duration;

use flannel_host::family::Family;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tracing::info;

use self::{
    annotate::patch_for,
    client::KubeClient,
    entry::{Annotations, Families},
    record::{NetworkCondition, NodeRecord, PodRecord},
    source::KubeSource,
};
pub use self::{
    client::Liveness,
    error::{KubeError, Problem},
    options::{KubeOptions, NoIdentity, NodeIdentity},
    pod_lister::PodLister,
    prefix::{AnnotationPrefix, BadPrefix},
};
use super::{
    AcquireError, Backoff, BadPodCidr, Delays, Hints, LeaseAttrs, LeaseKey, LeaseRequest,
    NetworkAvailability, NodeReports, NodeSettings, OptOuts, OutsideNetwork, OwnLease, Precedence,
    StoreCounts, StoreEvent, SubnetManager, watcher::Watcher,
};
use crate::config::{NetworkConfig, Prefix};

/// Before we look again whether a Node has a subnet; every node of a new cluster does that.
const ASSIGNMENT: Backoff =
    match Backoff::new(Duration::from_millis(250), Duration::from_secs(15), 20) {
        Some(backoff) => backoff,
        None => panic!("250 ms to 15 s is a valid back-off"),
    };

/// Leases in Kubernetes.
pub struct KubeManager {
    client: KubeClient,
    identity: NodeIdentity,
    /// The name of our Node, once known.
    node: Option<String>,
    held: Option<LeaseKey>,
    /// While the Node has no subnet.
    assignment: Option<Delays>,
    /// The settings of our Node when they were last read.
    settings: NodeSettings,
    /// Reports for the condition.
    available: Option<watch::Receiver<bool>>,
    counts: StoreCounts,
}

type Acquired<T> = Result<T, AcquireError<KubeError>>;

impl KubeManager {
    /// Returns a manager for these options. It connects on its first request.
    pub fn new(options: KubeOptions, identity: NodeIdentity, liveness: Liveness) -> Self {
        let client = KubeClient::new(options, liveness);
        Self {
            client,
            identity,
            node: None,
            held: None,
            assignment: None,
            settings: NodeSettings::default(),
            available: None,
            counts: StoreCounts::default(),
        }
    }

    async fn node_name(&mut self) -> Result<String, KubeError> {
        if let Some(name) = &self.node {
            return Ok(name.clone());
        }
        let name = match self.identity.clone() {
            NodeIdentity::Node(name) => name,
            NodeIdentity::Pod { namespace, name } => self.node_of_pod(namespace, name).await?,
        };
        info!(node = name, "this is our node");
        Ok(self.node.insert(name).clone())
    }

    async fn node_of_pod(&mut self, namespace: String, name: String) -> Result<String, KubeError> {
        let request = requests::get_pod(&namespace, &name);
        let pod: PodRecord = self
            .client
            .call("reading our pod to learn its node", request)
            .await?;
        match pod.spec.node_name {
            node if node.is_empty() => Err(KubeError::PodWithoutNode { namespace, name }),
            node => Ok(node),
        }
    }

    async fn own_node(&mut self) -> Result<NodeRecord, KubeError> {
        let name = self.node_name().await?;
        self.client
            .call("reading our node", requests::get_node(&name))
            .await
    }

    async fn own_condition(&mut self) -> Result<NetworkCondition, KubeError> {
        let name = self.node_name().await?;
        self.client
            .call("reading our node's conditions", requests::get_node(&name))
            .await
    }

    async fn patch_node(
        &mut self,
        what: &'static str,
        patch: &Value,
    ) -> Result<NodeRecord, KubeError> {
        let name = self.node_name().await?;
        self.client
            .call(what, requests::patch_status(&name, patch))
            .await
    }

    /// The subnets of our Node: one in the network of each family that is on.
    fn assigned(node: &NodeRecord, config: &NetworkConfig) -> Acquired<LeaseKey> {
        let bad = |problem| KubeError::BadPodCidr {
            node: node.name.clone(),
            problem,
        };
        let key = entry::assigned(node, Families::of(config))
            .map_err(|bad_cidr| AcquireError::Store(bad(bad_cidr)))?;
        if let Some(family) = &config.ipv4 {
            contained(node, Family::V4, key.v4, family.network)?;
        }
        if let Some(family) = &config.ipv6 {
            contained(node, Family::V6, key.v6, family.network)?;
        }
        Ok(key)
    }

    async fn try_acquire(&mut self, request: &LeaseRequest) -> Acquired<LeaseKey> {
        let node = self.own_node().await.map_err(AcquireError::Store)?;
        let key = Self::assigned(&node, &request.config)?;
        let own = Annotations {
            node: &node,
            prefix: &self.client.options().prefix,
        };
        if let Some(patch) = patch_for(&own, &request.attrs) {
            self.patch_node("writing our annotations", &patch)
                .await
                .map_err(AcquireError::Store)?;
        }
        Ok(key)
    }
}

/// Checks that the subnet of this node can be served: it is in the network, and has an address for
/// the bridge next to the first one.
fn contained<P: Prefix>(
    node: &NodeRecord,
    family: Family,
    subnet: Option<P>,
    network: P,
) -> Acquired<()> {
    let node = node.name.clone();
    let Some(subnet) = subnet else {
        return Err(AcquireError::Store(KubeError::NoPodCidr { node, family }));
    };
    if subnet.length() > P::BITS - 2 {
        let problem = BadPodCidr::TooSmall {
            subnet: subnet.into(),
            longest: P::BITS - 2,
        };
        return Err(AcquireError::Store(KubeError::BadPodCidr { node, problem }));
    }
    if subnet.length() >= network.length()
        && (network.first()..=network.last()).contains(&subnet.first())
    {
        return Ok(());
    }
    Err(OutsideNetwork {
        node,
        subnet: subnet.into(),
        network: network.into(),
    }
    .into())
}

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
