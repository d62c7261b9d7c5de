//! A node that has its lease.

use std::{collections::BTreeMap, sync::Arc};

use flannel_backend_api::{Backend, OwnEnd, PodNetwork};
use flannel_backends::wireguard::WireguardKeys;
use flannel_claims::Claims;
use flannel_host::family::Family;
use flannel_reconcile::networks::NetworksRecord;
use flannel_store::{LeaseRequest, OwnLease, config::NetworkConfig};
use ipnet::IpNet;

use super::{external::External, node_settings::NodeOverrides, published::Published};

/// A node with a lease.
pub(super) struct LeasedNode {
    pub(super) config: NetworkConfig,
    pub(super) networks: BTreeMap<Family, PodNetwork>,
    pub(super) node: NodeOverrides,
    pub(super) external: External,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) ends: BTreeMap<Family, OwnEnd>,
    pub(super) keys: Option<WireguardKeys>,
    /// Pod networks of an earlier life.
    pub(super) former: Vec<IpNet>,
    pub(super) published: Published,
    pub(super) request: LeaseRequest,
    pub(super) own: OwnLease,
    /// The objects that this agent is the only owner of.
    pub(super) claims: Claims,
    pub(super) networks_record: NetworksRecord,
}

impl LeasedNode {
    /// The pod network of each family.
    pub(super) fn prefixes(&self) -> Vec<IpNet> {
        self.networks
            .values()
            .map(|network| network.prefix)
            .collect()
    }
}
