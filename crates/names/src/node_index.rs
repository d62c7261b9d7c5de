//! The node of an address, by the leases.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use flannel_reconcile::SharedPeers;
use flannel_status::Status;
use flannel_store::LeaseKey;
use ipnet::IpNet;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeId {
    /// The name of its lease; with etcd that is its subnet, and not a name.
    pub(super) key: Arc<str>,
    pub(super) is_own: bool,
}

impl NodeId {
    /// The name of the node; `None` if the store has none.
    pub(super) fn name(&self) -> Option<&str> {
        Some(&*self.key).filter(|key| !key.is_empty() && key.parse::<LeaseKey>().is_err())
    }
}

/// The place of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressPlace {
    /// In the subnet of a node.
    PodOf(NodeId),
    /// In a pod network, and in no subnet of a lease.
    PodNetwork,
    /// An address of a node.
    Node(NodeId),
    /// Elsewhere.
    Outside,
}

/// The leases of all nodes, to be searched by address.
#[derive(Debug, Default)]
pub(super) struct NodeIndex {
    /// By the first address of the subnet.
    subnets: BTreeMap<IpAddr, (IpNet, NodeId)>,
    addresses: BTreeMap<IpAddr, NodeId>,
    networks: Vec<IpNet>,
}

impl NodeIndex {
    /// Reads the peers, and this node from its status.
    pub(super) fn read(peers: &SharedPeers, status: &Status, own_name: &str) -> Self {
        let mut index = Self::default();
        peers.list(|way| {
            let node = NodeId {
                key: way.peer.key.clone(),
                is_own: false,
            };
            index.add(Some(way.peer.subnet), Some(way.peer.public_ip), &node);
        });
        let own = NodeId {
            key: own_name.into(),
            is_own: true,
        };
        if let Some(lease) = &status.lease {
            let subnets = [Some(&lease.subnet), lease.ipv6_subnet.as_ref()];
            let addresses = [Some(&lease.public_ip), lease.public_ipv6.as_ref()];
            for (subnet, address) in subnets.into_iter().zip(addresses) {
                index.add(
                    subnet.and_then(|text| text.parse().ok()),
                    address.and_then(|text| text.parse().ok()),
                    &own,
                );
            }
        }
        if let Some(interface) = &status.interface {
            for address in [Some(&interface.address), interface.ipv6_address.as_ref()] {
                index.add(None, address.and_then(|text| text.parse().ok()), &own);
            }
        }
        let networks = status.network.iter().flat_map(|network| &network.networks);
        index.networks = networks.filter_map(|text| text.parse().ok()).collect();
        index
    }

    fn add(&mut self, subnet: Option<IpNet>, address: Option<IpAddr>, node: &NodeId) {
        if let Some(subnet) = subnet {
            self.subnets
                .insert(subnet.network(), (subnet, node.clone()));
        }
        if let Some(address) = address {
            self.addresses.insert(address, node.clone());
        }
    }

    /// The place of an address.
    pub(super) fn place(&self, address: IpAddr) -> AddressPlace {
        let last = self.subnets.range(..=address).next_back();
        if let Some((_, (subnet, node))) = last.filter(|(_, (subnet, _))| subnet.contains(&address))
        {
            let node = node.clone();
            return if is_of_devices(subnet, address) {
                AddressPlace::Node(node)
            } else {
                AddressPlace::PodOf(node)
            };
        }
        if let Some(node) = self.addresses.get(&address) {
            return AddressPlace::Node(node.clone());
        }
        if self
            .networks
            .iter()
            .any(|network| network.contains(&address))
        {
            return AddressPlace::PodNetwork;
        }
        AddressPlace::Outside
    }
}

/// The first address of a subnet is that of the tunnel device, with which the node itself talks to
/// pods of others, and the second that of the pods' bridge (`FLANNEL_SUBNET` in subnet.env).
fn is_of_devices(subnet: &IpNet, address: IpAddr) -> bool {
    let offset = match (subnet.network(), address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => u128::from(address.to_bits() - first.to_bits()),
        (IpAddr::V6(first), IpAddr::V6(address)) => address.to_bits() - first.to_bits(),
        _ => return false,
    };
    offset < 2
}
