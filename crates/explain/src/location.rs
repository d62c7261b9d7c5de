//! The place of an address, seen from this node.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::PodEntry,
        node::{FamilyConfig, NodeConfig},
    },
    packet::addr::Mac,
};
use flannel_datapath::{
    PinRoot,
    maps::PeerMap,
    maps::{
        flows::PodMap,
        peers::{PinnedPeer, family_config, subnet, subnet_index},
    },
};
use flannel_host::family::Family;
use flannel_inspect::reported_cluster::ReportedCluster;
use flannel_netlink::{Address, Link, Netlink, NetlinkError};
use ipnet::IpNet;

/// The place of an address.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// In a pod of this node.
    Pod(Box<LocalPod>),
    /// On this node itself: the name of the interface.
    Node(String),
    /// In the subnet of this node, and no pod has it.
    Vacant(IpNet),
    /// In the subnet of a peer.
    Peer(PinnedPeer),
    /// In the pod network, in a subnet without a peer.
    Unleased(IpNet),
    /// Elsewhere.
    Outside,
    /// Neither on this node nor in a pod here; without pins and without an agent the pod network is
    /// not known.
    Unknown,
}

/// The cluster, by the best source there is.
pub(super) enum KnownCluster {
    /// Its own data, and the pinned peer maps.
    Pinned(NodeConfig),
    /// The agent's status.
    Reported(ReportedCluster),
    /// Neither.
    Unknown,
}

impl KnownCluster {
    /// The node's own data.
    pub(super) const fn config(&self) -> Option<&NodeConfig> {
        match self {
            Self::Pinned(config) => Some(config),
            Self::Reported(reported) => Some(&reported.config),
            Self::Unknown => None,
        }
    }
}

/// The device by which packets of a peer come in.
pub(super) const fn enters_by(peer: &PinnedPeer, config: &FamilyConfig) -> u32 {
    if peer.entry.word.has(EntryState::DIRECT) {
        peer.entry.oif
    } else {
        config.tunnel_ifindex
    }
}

/// A pod of this node, by its veth.
#[derive(Clone, Debug)]
pub(super) struct LocalPod {
    pub(super) veth: Link,
    /// The bridge the veth is on; none where pods are routed.
    pub(super) bridge: Option<Link>,
    /// Ethernet address of the pod's own end.
    pub(super) mac: Option<Mac>,
    /// Its entry in the pod map of mode `fast`.
    pub(super) entry: Option<PodEntry>,
}

impl LocalPod {
    /// Interface index of the device by which its packets reach the host's routing.
    pub(super) fn routed_by(&self) -> u32 {
        self.bridge
            .as_ref()
            .map_or(self.veth.index, |bridge| bridge.index)
    }

    /// The Ethernet address its packets to other subnets are sent to.
    pub(super) fn gateway_mac(&self) -> Option<Mac> {
        self.bridge.as_ref().unwrap_or(&self.veth).mac
    }
}

/// The state of the node in which every address is looked up.
pub(super) struct Context<'a> {
    pub(super) netlink: &'a Netlink,
    pub(super) pins: &'a PinRoot,
    pub(super) cluster: KnownCluster,
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) addresses: Vec<Address>,
    /// The subnets a running agent holds.
    pub(super) leased: Vec<IpNet>,
}

impl Context<'_> {
    /// Returns the place of this address.
    pub(super) async fn place(&self, address: IpAddr) -> Result<Location, NetlinkError> {
        if let Some(own) = self.addresses.iter().find(|own| own.key.addr == address) {
            return Ok(Location::Node(self.name(own.key.ifindex)));
        }
        if let Some(pod) = self.pod(address).await? {
            return Ok(Location::Pod(Box::new(pod)));
        }
        let Some(config) = self.cluster.config() else {
            return Ok(Location::Unknown);
        };
        let family = Family::of(address);
        let Some(index) = subnet_index(config, address) else {
            return Ok(Location::Outside);
        };
        let subnet = subnet(family, family_config(config, family), index);
        if self.is_ours(subnet) {
            return Ok(Location::Vacant(subnet));
        }
        let entry = match &self.cluster {
            KnownCluster::Reported(reported) => reported
                .peers
                .iter()
                .find(|peer| peer.subnet == subnet)
                .map(|peer| peer.entry),
            _ => PeerMap::open(self.pins, family)
                .and_then(|map| map.get(index))
                .ok(),
        };
        Ok(
            match entry.filter(|entry| entry.word.has(EntryState::VALID)) {
                Some(entry) => Location::Peer(PinnedPeer {
                    index,
                    subnet,
                    entry,
                }),
                None => Location::Unleased(subnet),
            },
        )
    }

    /// The name of a device, or its number where it is gone.
    pub(super) fn name(&self, index: u32) -> String {
        self.links
            .get(&index)
            .map_or_else(|| format!("device {index}"), |link| link.name.clone())
    }

    /// Returns true if the subnet belongs to this node. The tunnel device and the bridge of the
    /// pods have addresses in it; before either exists, the agent's lease names it.
    fn is_ours(&self, subnet: IpNet) -> bool {
        self.leased.contains(&subnet)
            || self
                .addresses
                .iter()
                .any(|own| subnet.contains(&own.key.addr))
    }

    /// The pod with this address: the kernel is asked for the addresses at the other end of every
    /// veth.
    async fn pod(&self, address: IpAddr) -> Result<Option<LocalPod>, NetlinkError> {
        let veths = self
            .links
            .values()
            .filter(|link| link.kind.as_deref() == Some("veth") && link.netns.is_some());
        for veth in veths {
            if self
                .netlink
                .addresses_of_peer(veth)
                .await?
                .contains(&address)
            {
                return Ok(Some(LocalPod {
                    veth: veth.clone(),
                    bridge: veth
                        .controller
                        .and_then(|index| self.links.get(&index))
                        .cloned(),
                    mac: self.netlink.link_peer(veth).await?.and_then(|end| end.mac),
                    entry: PodMap::open(self.pins)
                        .and_then(|map| map.get(veth.index))
                        .ok()
                        .flatten(),
                }));
            }
        }
        Ok(None)
    }
}
