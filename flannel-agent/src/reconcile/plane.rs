//! One address family of the node: its tunnel device, its entries in the kernel, its peer maps, and
//! the underlay of its paths.
//!
//! A plane fails alone: nothing here stops the other family. Its steps are [`Plane::prepare`], then
//! [`Plane::work`]; between the two the node's data for the programs is written, for all families
//! at once. Peers are worked in some at a time, so that events, the heart and the store have their
//! turn in a large cluster too: until [`Plane::has_backlog`] is false there is more to do.

use std::{sync::Arc, time::Instant};

use flannel_common::{node, program::Program};
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::{Link, Netlink, NetlinkError};
use flannel_store::{Peer, Vtep};

use super::{
    Cluster,
    device::{self, Device},
    entries::Entries,
    ownership::Ownership,
    peer_maps::PeerMaps,
    peers::{PeerBook, Peers, Turn},
    status::{Dirty, Repairs, UnreachableStatus},
    unreachable::{NotMade, UnreachableRoute},
    uplinks::UplinkSet,
};
use crate::{
    backend::{Backend, BackendError, Desired, Node, PeerWay, PodNetwork, TunnelUnderlay, usable_mtu},
    datapath::{Hook, Maps},
    iface::{End, ExternalInterface},
    underlay::Underlay,
};

/// Peers worked in at once. Small enough that what the kernel announces of them fits into the event
/// socket's buffer many times over.
const TURN: usize = 1024;

/// The settings with which a plane starts.
#[derive(Clone, Copy, Debug)]
pub struct PlaneSetup {
    /// The pod network.
    pub network: PodNetwork,
    /// Our end of the tunnel, as published; `None` where the backend has none.
    pub vtep: Option<Vtep>,
    /// Peers from which on IPv4 routes are made by nexthop objects.
    pub nexthops_from: usize,
    /// `Ok` if the unreachable route for the network is made, else the reason why it is not.
    pub unreachable_route: Result<(), NotMade>,
}

/// Errors that keep a plane from its desired state.
#[derive(Debug, thiserror::Error)]
enum PlaneError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    BackendError(#[from] BackendError),
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
    outlets: UplinkSet,
    pub(super) device: Option<Device>,
    pub(super) entries: Entries,
    pub(super) unreachable: UnreachableRoute,
    peer_maps: PeerMaps,
    pub(super) read_back: bool,
    /// As of the last time everything needed was known; the programs go by it meanwhile.
    node: Option<Node>,
    mtu: Option<u32>,
    /// The reason why no program can follow packets on the external interface, if none can.
    unfollowed: Option<String>,
    pub(super) peers: Peers,
    /// True while the former desired state is discarded and some peers are not yet in the new one.
    rebuilding: bool,
    /// The peers of the turn that is being worked in: before, and now.
    turn: (Vec<PeerWay>, Vec<PeerWay>),
    /// The number of times the device was found replaced, with another interface index.
    devices_replaced: u64,
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
        book: PeerBook,
    ) -> Self {
        Self {
            family,
            underlay: Underlay::new(backend.port()),
            outlets: UplinkSet::default(),
            backend,
            setup,
            external: external.index,
            external_name: external.name.clone(),
            end,
            device: None,
            entries: Entries::new(setup.nexthops_from),
            unreachable: UnreachableRoute::new(setup.network.prefix, setup.unreachable_route),
            peer_maps: PeerMaps::new(family),
            read_back: true,
            node: None,
            mtu: None,
            unfollowed: None,
            peers: Peers::new(family, book),
            rebuilding: false,
            turn: (Vec::new(), Vec::new()),
            devices_replaced: 0,
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
        self.invalidate_all();
    }

    /// Everything is to be read back and every path asked for again.
    pub(super) fn invalidate_all(&mut self) {
        self.read_back = true;
        self.doubt_paths();
    }

    /// Every path is to be asked for again.
    pub(super) fn doubt_paths(&mut self) {
        self.underlay.forget();
        self.peers.doubt_all();
    }

    /// Sees to the device and finds out what is there.
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
        self.be(Node {
            network: self.setup.network,
            subnet,
            source: self.end.source,
            external: self.external,
            tunnel: self.device.as_ref().map(|device| (device.index, device.mac)),
            port_range,
        });
        if self.read_back {
            let ours = self.ownership();
            self.entries.read_back(netlink, &ours, &mut self.unreachable).await?;
            self.read_maps_back(maps);
            self.read_back = false;
        }
        self.entries.want_unreachable(self.setup.network.prefix, self.unreachable.wanted(self.end.addr));
        if self.entries.count_peers(self.peers.len(), cluster.in_sync) {
            self.peers.doubt_all();
        }
        Ok(())
    }

    /// The node is this one. On another one every peer needs other entries.
    fn be(&mut self, node: Node) {
        let same = |known: Node| Node { port_range: node.port_range, ..known } == node;
        if !self.node.is_some_and(same) {
            self.entries.want_nothing();
            self.peer_maps.want_nothing();
            self.peers.doubt_all();
            self.rebuilding = true;
        }
        self.node = Some(node);
    }

    /// Works the next peers out: their paths, and what they want instead of what they wanted.
    async fn take_turn(&mut self, netlink: &Netlink, node: &Node) {
        let Turn { before, after } = self.peers.turn(TURN);
        let addresses = after.iter().map(|peer| peer.public_ip).collect();
        self.underlay.ask(netlink, self.end.source, addresses).await;
        let way = |peer: Peer| PeerWay { way: self.backend.way(node, &self.underlay, &peer), peer };
        let ways: Vec<PeerWay> = after.into_iter().map(way).collect();
        let wanted = if self.rebuilding { Desired::default() } else { self.backend.desired(node, &before) };
        let wants = self.backend.desired(node, &ways);
        self.peer_maps.change(&wanted, &wants);
        self.entries.change(&wanted, &wants);
        self.outlets.change(&before, &ways);
        self.turn = (before, ways);
        self.rebuilding &= !self.peers.is_settled();
    }

    /// The device as the backend wants it on the external interface as it is now: its MTU may have
    /// changed.
    async fn ensure_device(&mut self, netlink: &Netlink) -> Result<(), PlaneError> {
        let link = netlink.link_by_index(self.external).await?;
        let link = link.ok_or_else(|| device::vanished(&self.external_name))?;
        self.unfollowed = (link.arphrd != Link::ETHER).then(|| format!("{} is no Ethernet device", link.name));
        let external_mtu = link.mtu;
        self.mtu = Some(usable_mtu(self.backend.as_ref(), self.family, external_mtu)?);
        let mac = self.setup.vtep.map(|vtep| vtep.mac).unwrap_or_default();
        let lower = TunnelUnderlay { external: self.external, mtu: external_mtu, source: self.end.source, mac };
        let Some(spec) = self.backend.device(&lower) else { return Ok(()) };
        let device = device::ensure(netlink, &spec, false).await?;
        let replaced = self.device.as_ref().is_some_and(|known| known.index != device.index);
        self.devices_replaced += u64::from(replaced);
        self.read_back |= replaced || self.device.is_none();
        self.setup.vtep = Some(device.vtep());
        self.device = Some(device);
        Ok(())
    }

    fn read_maps_back(&mut self, maps: Option<&mut Maps>) {
        if let Some(maps) = maps
            && let Err(error) = self.peer_maps.read_back(maps)
        {
            tracing::warn!(family = %self.family, error = chain(&error), "cannot read the peer maps back");
        }
    }

    /// Leads packets to the next peers and, if the store has shown everything and all peers are
    /// worked in, away from those that are gone.
    pub(super) async fn work(&mut self, netlink: &Netlink, mut maps: Option<&mut Maps>, in_sync: bool) {
        let Some(node) = self.node.filter(|_| self.error.is_none()) else { return };
        self.take_turn(netlink, &node).await;
        let now = Instant::now();
        self.entries.upsert_before_routes(netlink, now).await;
        if let Some(maps) = &mut maps {
            self.peer_maps.upsert(maps, now);
        }
        self.entries.upsert_routes(netlink, now).await;
        if !in_sync || !self.is_complete() {
            return;
        }
        self.entries.sweep_routes(netlink, now).await;
        if let Some(maps) = maps {
            self.peer_maps.sweep(maps, now);
        }
        self.entries.sweep_after_routes(netlink, now).await;
    }

    /// Shows the peers as the work on them left them: who sees one finds its entries in the kernel.
    pub(super) fn show(&mut self) {
        let (before, ways) = std::mem::take(&mut self.turn);
        self.peers.settle(&before, ways);
    }

    /// Returns true if every peer has its entries, as far as the kernel accepted them. The way to a
    /// peer may still have to be computed again.
    pub(super) fn is_complete(&self) -> bool {
        self.peers.is_complete() && !self.rebuilding
    }

    /// Returns true if the programs know all peers as senders.
    pub(super) fn knows_every_sender(&self) -> bool {
        self.is_complete() && self.peer_maps.knows_every_sender()
    }

    /// Returns true if there are peers left to process and no error prevents it.
    pub(super) fn has_backlog(&self) -> bool {
        self.error.is_none() && !self.peers.is_settled()
    }

    /// Returns the hooks this plane needs. Packets come in by the external interface, by whatever
    /// device they leave; programs read frames, so it has to be an Ethernet device. Without a
    /// tunnel there are hooks only in mode `fast`.
    pub(super) fn hooks(&self, fast: bool) -> Vec<Hook> {
        let hook = |program, ifindex, ifname: &str| Hook { program, ifindex, ifname: ifname.to_owned() };
        let on_underlay =
            |index, name: &str| [Program::ToUnderlay, Program::FromUnderlay].map(|it| hook(it, index, name));
        let external = self.unfollowed.is_none().then(|| on_underlay(self.external, &self.external_name));
        let on_external = external.into_iter().flatten();
        match &self.device {
            Some(device) => {
                let to_note = fast.then(|| hook(Program::FromTunnel, device.index, &device.name));
                let on_outlets = self.outlets.devices().flat_map(|(index, name)| on_underlay(index, name));
                on_external
                    .chain(on_outlets)
                    .chain([hook(Program::ToTunnel, device.index, &device.name)])
                    .chain(to_note)
                    .collect()
            }
            None if fast && !self.has_tunnel() => on_external.collect(),
            None => Vec::new(),
        }
    }

    fn has_tunnel(&self) -> bool {
        self.backend.port().is_some()
    }

    /// Returns the reason why mode `fast` can do nothing for any peer, if there is one. `None` with
    /// a tunnel, where each peer has a reason of its own.
    pub(super) fn fast_refusal(&self) -> Option<&str> {
        self.unfollowed.as_deref().filter(|_| !self.has_tunnel())
    }

    pub(super) fn ownership(&self) -> Ownership {
        Ownership { tunnel: self.device.as_ref().map(|device| device.index), network: self.setup.network.prefix }
    }

    /// The unreachable route for the network.
    pub(super) fn unreachable_status(&self) -> UnreachableStatus {
        let network = self.setup.network.prefix;
        UnreachableStatus {
            network: network.to_string(),
            in_place: self.entries.has_unreachable(network),
            reason: self.unreachable.refusal(self.end.addr).map(|why| why.to_string()),
        }
    }

    /// Our end of the tunnel, as it is to be published: while there is no device, as it last was.
    pub(super) const fn vtep(&self) -> Option<Vtep> {
        self.setup.vtep
    }

    /// Returns this family's part of the node's data for the programs; zero if it is not known yet.
    pub(super) fn config(&self) -> node::FamilyConfig {
        self.node.as_ref().and_then(|node| self.backend.node_config(node)).unwrap_or_default()
    }

    /// Returns the MTU of pods in this family, once it is known.
    pub(super) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Returns the error that stopped the last round, if one did.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the entries that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.entries.dirty().chain(self.peer_maps.dirty())
    }

    /// Returns the number of repairs, by kind of object.
    pub(super) const fn repairs(&self) -> Repairs {
        Repairs { devices: self.devices_replaced, maps: self.peer_maps.repairs(), ..self.entries.repairs() }
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.entries.next_retry().into_iter().chain(self.peer_maps.next_retry()).min()
    }
}
