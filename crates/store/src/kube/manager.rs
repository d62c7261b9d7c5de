//! The manager: what it knows of our Node, and the requests about it.

use flannel_host::family::Family;
use serde_json::Value;
use tokio::sync::watch;
use tracing::info;

use super::{
    annotate::patch_for,
    entry::{self, Annotations, Families},
    error::KubeError,
    options::{KubeOptions, NodeIdentity},
    record::{NetworkCondition, NodeRecord, PodRecord},
};
use crate::kube::connection::{
    client::{KubeClient, Liveness},
    requests,
};
use crate::{
    AcquireError, BadPodCidr, Delays, LeaseKey, LeaseRequest, NodeSettings, OutsideNetwork,
    StoreCounts,
    config::{NetworkConfig, Prefix},
};

/// Leases in Kubernetes.
pub struct KubeManager {
    pub(super) client: KubeClient,
    identity: NodeIdentity,
    /// The name of our Node, once known.
    pub(super) node: Option<String>,
    pub(super) held: Option<LeaseKey>,
    /// While the Node has no subnet.
    pub(super) assignment: Option<Delays>,
    /// The settings of our Node when they were last read.
    pub(super) settings: NodeSettings,
    /// Reports for the condition.
    pub(super) available: Option<watch::Receiver<bool>>,
    pub(super) counts: StoreCounts,
}

pub(super) type Acquired<T> = Result<T, AcquireError<KubeError>>;

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

    pub(super) async fn node_name(&mut self) -> Result<String, KubeError> {
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

    pub(super) async fn own_node(&mut self) -> Result<NodeRecord, KubeError> {
        let name = self.node_name().await?;
        self.client
            .call("reading our node", requests::get_node(&name))
            .await
    }

    pub(super) async fn own_condition(&mut self) -> Result<NetworkCondition, KubeError> {
        let name = self.node_name().await?;
        self.client
            .call("reading our node's conditions", requests::get_node(&name))
            .await
    }

    pub(super) async fn patch_node(
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
    pub(super) fn assigned(node: &NodeRecord, config: &NetworkConfig) -> Acquired<LeaseKey> {
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

    pub(super) async fn try_acquire(&mut self, request: &LeaseRequest) -> Acquired<LeaseKey> {
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
