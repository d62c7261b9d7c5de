//! Keeps the kernel as the leases want it.
//!
//! One value owns desired and actual state of every kind of object; one function, [`Reconciler::apply`], works off the
//! difference, in one order: device, address, neighbour, FDB, nexthop object, peer map entry, route, attachment; the reverse for
//! removal, after everything new is in place. Events only say what changed; they never touch the kernel.
//!
//! Invariants: nothing is removed before the store is in sync; one entry the kernel refuses holds up no other; a full
//! read-back and an event take the same path.

mod bpf;
pub mod device;
mod events;
mod nexthops;
mod object;
mod ownership;
pub mod status;
pub mod tracker;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use flannel_common::{addr::Mac, program::Program};

pub use bpf::Bpf;
pub(crate) use bpf::chain;
use device::Device;
use nexthops::Nexthops;
use object::{Addresses, Fdb, Neighbours, Routes, sweep, upsert};
use ownership::Ownership;
use status::Dirty;
use tracker::Tracker;

use crate::{
    backend::{
        Desired,
        vxlan::{self, Node, PeerWay},
    },
    config::{FamilyConfig, VxlanConfig},
    datapath::Hook,
    family::Family,
    iface::ExternalInterface,
    netlink::{AddressKey, FdbKey, Link, NeighbourKey, Netlink, NetlinkError, Route, RouteKey, VxlanSpec},
    subnet::Peer,
    underlay::Underlay,
};

/// What the reconciler is told once.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The backend's settings.
    pub config: VxlanConfig,
    /// The pod network.
    pub family: FamilyConfig<ipnet::Ipv4Net>,
    /// The external interface.
    pub external: ExternalInterface,
    /// Our outer source address.
    pub vtep: std::net::Ipv4Addr,
    /// Our VTEP's Ethernet address, as published.
    pub mac: Mac,
}

/// What is believed of the cluster right now.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Our own subnet.
    pub subnet: ipnet::Ipv4Net,
    /// The peers.
    pub peers: Vec<Peer>,
    /// Whether the store has shown everything, so that what is not wanted may go.
    pub in_sync: bool,
}

/// Desired and actual state.
pub struct Reconciler {
    netlink: Netlink,
    setup: Setup,
    port_range: (u16, u16),
    underlay: Underlay,
    device: Option<Device>,
    bpf: Option<Bpf>,
    addresses: Tracker<AddressKey, ()>,
    neighbours: Tracker<NeighbourKey, Mac>,
    fdb: Tracker<FdbKey, IpAddr>,
    nexthops: Nexthops,
    routes: Tracker<RouteKey, Route>,
    read_back: bool,
    error: Option<String>,
    ways: Vec<PeerWay>,
}

impl Reconciler {
    /// Nothing is known of the kernel yet. `port_range` is `net.ipv4.ip_local_port_range`.
    pub fn new(netlink: Netlink, setup: Setup, port_range: (u16, u16), bpf: Option<Bpf>) -> Self {
        let underlay = Underlay::new(setup.config.port);
        Self {
            netlink,
            setup,
            port_range,
            underlay,
            device: None,
            bpf,
            addresses: Tracker::default(),
            neighbours: Tracker::default(),
            fdb: Tracker::default(),
            nexthops: Nexthops::new(nexthops::MANY),
            routes: Tracker::default(),
            read_back: true,
            error: None,
            ways: Vec::new(),
        }
    }

    /// The BPF side, where there is one.
    pub fn bpf(&self) -> Option<&Bpf> {
        self.bpf.as_ref()
    }

    /// The BPF side, where there is one.
    pub fn bpf_mut(&mut self) -> Option<&mut Bpf> {
        self.bpf.as_mut()
    }

    /// The kernel chose another range of local ports. Whether it is another.
    pub fn set_port_range(&mut self, range: (u16, u16)) -> bool {
        std::mem::replace(&mut self.port_range, range) != range
    }

    /// The external interface, or our address on it, is another from here on. The next [`Self::apply`] makes the tunnel device
    /// anew where it has to.
    pub fn move_to(&mut self, external: ExternalInterface, vtep: std::net::Ipv4Addr) {
        (self.setup.external, self.setup.vtep) = (external, vtep);
        self.doubt_everything();
    }

    /// The next [`Self::apply`] reads everything back and asks for every path again.
    pub fn doubt_everything(&mut self) {
        self.read_back = true;
        self.underlay.forget();
    }

    /// Makes the kernel as the cluster wants it.
    pub async fn apply(&mut self, cluster: &Cluster) {
        let result = self.try_apply(cluster).await;
        if let Err(error) = &result
            && self.error.is_none()
        {
            tracing::warn!(error = chain(error), "cannot reconcile; tried again");
        }
        self.error = result.err().map(|error| chain(&error));
    }

    async fn try_apply(&mut self, cluster: &Cluster) -> Result<(), NetlinkError> {
        let external = self.external().await?;
        let device = self.ensure_device(external.mtu).await?;
        let peers: BTreeSet<IpAddr> = cluster.peers.iter().map(|peer| peer.public_ip).collect();
        self.underlay.refresh(&self.netlink, &self.setup.external, self.setup.vtep.into(), &peers).await;
        if self.read_back {
            self.nexthops.read_back(&self.netlink, &self.ownership(&device)).await?;
        }
        self.want(cluster, &device);
        if self.read_back {
            self.read_everything(&device).await?;
            self.read_back = false;
        }
        self.upsert(cluster, &device).await;
        if cluster.in_sync {
            self.sweep().await;
        }
        self.attach(&device);
        Ok(())
    }

    /// The external interface as it is now: its MTU may have changed.
    async fn external(&self) -> Result<Link, NetlinkError> {
        let index = self.setup.external.index;
        let link = self.netlink.link_by_index(index).await?;
        link.ok_or_else(|| device::vanished(&self.setup.external.name))
    }

    async fn ensure_device(&mut self, external_mtu: u32) -> Result<Device, NetlinkError> {
        let spec = self.setup.spec(external_mtu);
        let device = device::ensure(&self.netlink, &spec, false).await?;
        if self.device.as_ref().is_none_or(|known| known.index != device.index) {
            self.read_back = true;
        }
        self.device = Some(device.clone());
        Ok(device)
    }

    fn want(&mut self, cluster: &Cluster, device: &Device) {
        let node = node(&self.setup, self.port_range, cluster, device);
        let way = |peer: &Peer| PeerWay { peer: peer.clone(), way: vxlan::way(node.config, &self.underlay, peer) };
        let ways: Vec<_> = cluster.peers.iter().map(way).collect();
        let desired = vxlan::desired(&node, &ways);
        self.ways = ways;
        let Desired { addresses, neighbours, fdb, peers, vteps, routes } = desired;
        self.addresses.want(addresses.into_iter().map(|key| (key, ())).collect());
        self.neighbours.want(neighbours);
        self.fdb.want(fdb);
        self.nexthops.want(routes.iter());
        self.routes.want(routes.iter().map(|(key, route)| (*key, self.nexthops.form(key, route))).collect());
        if let Some(bpf) = &mut self.bpf {
            bpf.want(peers, vteps);
        }
    }

    async fn read_everything(&mut self, device: &Device) -> Result<(), NetlinkError> {
        let ours = self.ownership(device);
        let addresses = self.netlink.addresses().await?.into_iter().map(|address| address.key);
        self.addresses.found(addresses.filter(|key| ours.address(key)).map(|key| (key, ())).collect());
        let neighbours = self.netlink.neighbours(Some(device.index)).await?;
        self.neighbours.found(neighbours.into_iter().filter(|(key, _)| ours.neighbour(key)).collect());
        let fdb = self.netlink.fdb(device.index).await?;
        self.fdb.found(fdb.into_iter().filter(|(key, _)| ours.fdb(key)).collect());
        let routes = self.netlink.routes(Family::V4).await?;
        let is_ours = |(key, route): &(RouteKey, Route)| ours.route(key, route, self.routes.wanted());
        let routes = routes.into_iter().map(|(key, route)| (key, self.nexthops.complete(route)));
        let routes: BTreeMap<_, _> = routes.filter(is_ours).collect();
        self.routes.found(routes);
        if let Some(bpf) = &mut self.bpf
            && let Err(error) = bpf.read_back()
        {
            tracing::warn!(error = chain(&error), "cannot read the peer maps back");
        }
        Ok(())
    }

    async fn upsert(&mut self, cluster: &Cluster, device: &Device) {
        let now = Instant::now();
        upsert::<Addresses>(&self.netlink, &mut self.addresses, now).await;
        upsert::<Neighbours>(&self.netlink, &mut self.neighbours, now).await;
        upsert::<Fdb>(&self.netlink, &mut self.fdb, now).await;
        self.nexthops.upsert(&self.netlink, &mut self.routes, now).await;
        if let Some(bpf) = &mut self.bpf {
            let config = vxlan::node_config(&node(&self.setup, self.port_range, cluster, device));
            if let Err(error) = bpf.upsert(config, now) {
                tracing::warn!(error = chain(&error), "cannot write the BPF maps; tried again");
            }
        }
        upsert::<Routes>(&self.netlink, &mut self.routes, now).await;
    }

    async fn sweep(&mut self) {
        let now = Instant::now();
        sweep::<Routes>(&self.netlink, &mut self.routes, now).await;
        if let Some(bpf) = &mut self.bpf {
            bpf.sweep(now);
        }
        self.nexthops.sweep(&self.netlink, now).await;
        sweep::<Fdb>(&self.netlink, &mut self.fdb, now).await;
        sweep::<Neighbours>(&self.netlink, &mut self.neighbours, now).await;
        sweep::<Addresses>(&self.netlink, &mut self.addresses, now).await;
    }

    fn attach(&mut self, device: &Device) {
        let external = (self.setup.external.index, &self.setup.external.name);
        let hook = |program, (ifindex, ifname): (u32, &String)| Hook { program, ifindex, ifname: ifname.clone() };
        let hooks = BTreeSet::from([
            hook(Program::ToUnderlay, external),
            hook(Program::FromUnderlay, external),
            hook(Program::ToTunnel, (device.index, &device.name)),
        ]);
        if let Some(bpf) = &mut self.bpf {
            bpf.attach(&hooks);
        }
    }

    fn ownership(&self, device: &Device) -> Ownership {
        Ownership { tunnel: device.index, network: self.setup.family.network }
    }

    /// The peers and how packets reach them, as of the last [`Self::apply`].
    pub fn ways(&self) -> &[PeerWay] {
        &self.ways
    }

    /// The tunnel device, once there is one.
    pub const fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Why the last [`Self::apply`] could not go through, if it could not.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What the kernel refused.
    pub fn dirty(&self) -> Vec<Dirty> {
        let mut dirty = Vec::new();
        dirty.extend(self.addresses.failures().map(|(key, failure)| Dirty::new(key.to_string(), failure)));
        dirty.extend(self.neighbours.failures().map(|(key, failure)| Dirty::new(key.to_string(), failure)));
        dirty.extend(self.fdb.failures().map(|(key, failure)| Dirty::new(key.to_string(), failure)));
        dirty.extend(self.nexthops.dirty());
        dirty.extend(self.routes.failures().map(|(key, failure)| Dirty::new(key.to_string(), failure)));
        dirty.extend(self.bpf.iter().flat_map(Bpf::dirty));
        dirty
    }

    /// When something the kernel refused is due again.
    pub fn next_retry(&self) -> Option<Instant> {
        let trackers = [
            self.addresses.next_retry(),
            self.neighbours.next_retry(),
            self.fdb.next_retry(),
            self.nexthops.next_retry(),
            self.routes.next_retry(),
            self.bpf.as_ref().and_then(Bpf::next_retry),
        ];
        trackers.into_iter().flatten().min()
    }
}

impl Setup {
    /// The tunnel device these settings ask for.
    pub fn spec(&self, external_mtu: u32) -> VxlanSpec {
        VxlanSpec {
            name: vxlan::device_name(&self.config),
            vni: self.config.vni,
            port: self.config.port,
            mtu: vxlan::device_mtu(&self.config, external_mtu),
            mac: self.mac,
            lower: self.external.index,
            local: self.vtep.into(),
            learning: self.config.learning,
            gbp: self.config.gbp,
        }
    }
}

fn node<'a>(setup: &'a Setup, port_range: (u16, u16), cluster: &Cluster, device: &Device) -> Node<'a> {
    Node {
        config: &setup.config,
        family: &setup.family,
        subnet: cluster.subnet,
        vtep: setup.vtep,
        tunnel: device.index,
        mac: device.mac,
        external: setup.external.index,
        port_range,
    }
}
