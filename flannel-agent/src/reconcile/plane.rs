//! One address family of the node: its tunnel device, its entries in the kernel, its peer maps, and the underlay of its
//! paths.
//!
//! A plane fails alone: nothing here stops the other family. Its steps are [`Plane::prepare`], then [`Plane::finish`];
//! between the two the node's data for the programs is written, for all families at once.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Instant};

use flannel_common::{node, program::Program};
use ipnet::IpNet;

use super::{
    Cluster, chain,
    device::{self, Device},
    entries::Entries,
    ownership::Ownership,
    peer_maps::PeerMaps,
    status::Dirty,
};
use crate::{
    backend::{Backend, Lower, Node, PeerWay, PodNetwork, Unfit, usable_mtu},
    datapath::{Hook, Maps},
    family::Family,
    iface::{End, ExternalInterface},
    netlink::{Netlink, NetlinkError},
    subnet::{Peer, Vtep},
    underlay::Underlay,
};

/// What a plane is told once.
#[derive(Clone, Copy, Debug)]
pub struct PlaneSetup {
    /// The pod network.
    pub network: PodNetwork,
    /// Our end of the tunnel, as published; `None` where the backend has none.
    pub vtep: Option<Vtep>,
    /// Peers from which on IPv4 routes are made by nexthop objects.
    pub nexthops_from: usize,
}

/// Why a plane is not as it should be.
#[derive(Debug, thiserror::Error)]
enum PlaneError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("the lease has no {0} subnet")]
    NoSubnet(Family),
}

/// Desired and actual state of one family.
pub(super) struct Plane {
    pub(super) family: Family,
    backend: Arc<dyn Backend>,
    setup: PlaneSetup,
    pub(super) external: u32,
    external_name: String,
    end: End,
    pub(super) underlay: Underlay,
    pub(super) device: Option<Device>,
    pub(super) entries: Entries,
    peer_maps: PeerMaps,
    pub(super) read_back: bool,
    /// As of the last time everything needed was known; the programs go by it meanwhile.
    node: Option<Node>,
    mtu: Option<u32>,
    ways: Vec<PeerWay>,
    error: Option<String>,
}

impl Plane {
    /// Nothing is known of the kernel yet.
    pub(super) fn new(
        family: Family,
        backend: Arc<dyn Backend>,
        setup: PlaneSetup,
        external: &ExternalInterface,
        end: End,
    ) -> Self {
        Self {
            family,
            underlay: Underlay::new(backend.port()),
            backend,
            setup,
            external: external.index,
            external_name: external.name.clone(),
            end,
            device: None,
            entries: Entries::new(setup.nexthops_from),
            peer_maps: PeerMaps::new(family),
            read_back: true,
            node: None,
            mtu: None,
            ways: Vec::new(),
            error: None,
        }
    }

    /// The external interface, or our end of it, is another from here on.
    pub(super) fn move_to(&mut self, external: &ExternalInterface, end: End) {
        if (self.external, self.end) == (external.index, end) && self.external_name == external.name {
            return;
        }
        (self.external, self.end) = (external.index, end);
        self.external_name.clone_from(&external.name);
        self.doubt_everything();
    }

    /// Everything is to be read back and every path asked for again.
    pub(super) fn doubt_everything(&mut self) {
        self.read_back = true;
        self.underlay.forget();
    }

    /// Finds out what should be and what is, and makes the device and what a route needs first. Whether that went through.
    pub(super) async fn prepare(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        cluster: &Cluster,
        port_range: (u16, u16),
    ) {
        let result = self.try_prepare(netlink, maps, cluster, port_range).await;
        if let Err(error) = &result
            && self.error.is_none()
        {
            tracing::warn!(family = %self.family, error = chain(error), "cannot reconcile; tried again");
        }
        self.error = result.err().map(|error| chain(&error));
    }

    async fn try_prepare(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        cluster: &Cluster,
        port_range: (u16, u16),
    ) -> Result<(), PlaneError> {
        let subnet = cluster.own.subnet(self.family).ok_or(PlaneError::NoSubnet(self.family))?;
        self.backend.accept(&self.end)?;
        self.ensure_device(netlink).await?;
        let peers: Vec<&Peer> = cluster.peers.iter().filter(|peer| self.is_for(peer.subnet)).collect();
        let addresses: BTreeSet<IpAddr> = peers.iter().map(|peer| peer.public_ip).collect();
        self.underlay.refresh(netlink, self.external, self.end.source, &addresses).await;
        if self.read_back {
            self.entries.read_nexthops_back(netlink, &self.ownership()).await?;
        }
        self.want(subnet, &peers, port_range, cluster.in_sync);
        if self.read_back {
            self.entries.read_back(netlink, &self.ownership()).await?;
            self.read_maps_back(maps);
            self.read_back = false;
        }
        self.entries.upsert_before_routes(netlink, Instant::now()).await;
        Ok(())
    }

    fn is_for(&self, subnet: IpNet) -> bool {
        Family::of(subnet.addr()) == self.family
    }

    /// The device as the backend wants it on the external interface as it is now: its MTU may have changed.
    async fn ensure_device(&mut self, netlink: &Netlink) -> Result<(), PlaneError> {
        let link = netlink.link_by_index(self.external).await?;
        let external_mtu = link.ok_or_else(|| device::vanished(&self.external_name))?.mtu;
        self.mtu = Some(usable_mtu(self.backend.as_ref(), self.family, external_mtu)?);
        let mac = self.setup.vtep.map(|vtep| vtep.mac).unwrap_or_default();
        let lower = Lower { external: self.external, mtu: external_mtu, source: self.end.source, mac };
        let Some(spec) = self.backend.device(&lower) else { return Ok(()) };
        let device = device::ensure(netlink, &spec, false).await?;
        self.read_back |= self.device.as_ref().is_none_or(|known| known.index != device.index);
        self.setup.vtep = Some(device.vtep());
        self.device = Some(device);
        Ok(())
    }

    fn want(&mut self, subnet: IpNet, peers: &[&Peer], port_range: (u16, u16), all: bool) {
        let node = Node {
            network: self.setup.network,
            subnet,
            source: self.end.source,
            external: self.external,
            tunnel: self.device.as_ref().map(|device| (device.index, device.mac)),
            port_range,
        };
        let way = |peer: &&Peer| {
            let way = self.backend.way(&node, &self.underlay, peer);
            PeerWay { peer: (*peer).clone(), way }
        };
        self.ways = peers.iter().map(way).collect();
        let mut desired = self.backend.desired(&node, &self.ways);
        let (peers, vteps) = (std::mem::take(&mut desired.peers), std::mem::take(&mut desired.vteps));
        self.peer_maps.want(peers, vteps);
        self.entries.want(desired, all);
        self.node = Some(node);
    }

    fn read_maps_back(&mut self, maps: Option<&mut Maps>) {
        if let Some(maps) = maps
            && let Err(error) = self.peer_maps.read_back(maps)
        {
            tracing::warn!(family = %self.family, error = chain(&error), "cannot read the peer maps back");
        }
    }

    /// Leads packets to the peers and, if the store has shown everything, away from those that are gone.
    pub(super) async fn finish(&mut self, netlink: &Netlink, mut maps: Option<&mut Maps>, sweep: bool) {
        if self.error.is_some() {
            return;
        }
        let now = Instant::now();
        if let Some(maps) = &mut maps {
            self.peer_maps.upsert(maps, now);
        }
        self.entries.upsert_routes(netlink, now).await;
        if !sweep {
            return;
        }
        self.entries.sweep_routes(netlink, now).await;
        if let Some(maps) = maps {
            self.peer_maps.sweep(maps, now);
        }
        self.entries.sweep_after_routes(netlink, now).await;
    }

    /// Where programs belong because of this plane.
    pub(super) fn hooks(&self, fast: bool) -> impl Iterator<Item = Hook> {
        let hook = |program, ifindex, ifname: &str| Hook { program, ifindex, ifname: ifname.to_owned() };
        self.device.iter().flat_map(move |device| {
            let hooks = [
                hook(Program::ToUnderlay, self.external, &self.external_name),
                hook(Program::FromUnderlay, self.external, &self.external_name),
                hook(Program::ToTunnel, device.index, &device.name),
            ];
            let to_note = fast.then(|| hook(Program::FromTunnel, device.index, &device.name));
            hooks.into_iter().chain(to_note)
        })
    }

    pub(super) fn ownership(&self) -> Ownership {
        Ownership { tunnel: self.device.as_ref().map(|device| device.index), network: self.setup.network.prefix }
    }

    /// Our end of the tunnel, as it is to be published: while there is no device, as it last was.
    pub(super) const fn vtep(&self) -> Option<Vtep> {
        self.setup.vtep
    }

    /// What the programs are to know of this plane.
    pub(super) fn config(&self) -> node::FamilyConfig {
        self.node.as_ref().and_then(|node| self.backend.node_config(node)).unwrap_or_default()
    }

    /// The peers and how packets reach them.
    pub(super) fn ways(&self) -> &[PeerWay] {
        &self.ways
    }

    /// What a pod's packet may measure, once that is known.
    pub(super) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Why the last round did not go through, if it did not.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.entries.dirty().chain(self.peer_maps.dirty())
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.entries.next_retry().into_iter().chain(self.peer_maps.next_retry()).min()
    }
}
