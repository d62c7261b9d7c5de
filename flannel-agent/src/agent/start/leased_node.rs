//! A node that has its lease.

use std::{collections::BTreeMap, sync::Arc};

use flannel_backend_api::{Backend, OwnEnd, PodNetwork};
use flannel_backends::wireguard::WireguardKeys;
use flannel_claims::Claims;
use flannel_host::family::Family;
use flannel_reconcile::networks::NetworksRecord;
use flannel_store::{LeaseRequest, OwnLease, config::NetworkConfig};
use ipnet::IpNet;

use crate::agent::{external::External, node_settings::NodeOverrides, published::Published};

/// A node with a lease.
pub(in crate::agent) struct LeasedNode {
    pub(in crate::agent) config: NetworkConfig,
    pub(in crate::agent) networks: BTreeMap<Family, PodNetwork>,
    pub(in crate::agent) node: NodeOverrides,
    pub(in crate::agent) external: External,
    pub(in crate::agent) backend: Arc<dyn Backend>,
    pub(in crate::agent) ends: BTreeMap<Family, OwnEnd>,
    pub(in crate::agent) keys: Option<WireguardKeys>,
    /// Pod networks of an earlier life.
    pub(in crate::agent) former: Vec<IpNet>,
    pub(in crate::agent) published: Published,
    pub(in crate::agent) request: LeaseRequest,
    pub(in crate::agent) own: OwnLease,
    /// The objects that this agent is the only owner of.
    pub(in crate::agent) claims: Claims,
    pub(in crate::agent) networks_record: NetworksRecord,
}

impl LeasedNode {
    /// The pod network of each family.
    pub(in crate::agent) fn prefixes(&self) -> Vec<IpNet> {
        self.networks
            .values()
            .map(|network| network.prefix)
            .collect()
    }
}
