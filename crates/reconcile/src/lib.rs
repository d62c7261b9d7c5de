//! Keeps the kernel's objects as the leases require.
//!
//! A plane per address family owns desired and actual state of every kind of object; one function,
//! [`Reconciler::apply`], works off the difference, in one order: device, address, neighbour, FDB,
//! nexthop object, peer map entry, route, what mode `fast` needs, attachment; the reverse for
//! removal, after everything new is in place. Events only say what changed; they never touch the
//! kernel.
//!
//! Invariants: no object is removed before the store is in sync and the programs are loaded; an
//! entry that the kernel refuses does not delay other entries, and a family does not delay the
//! other; a full read-back and an event take the same path.

mod bpf;
mod cluster;
mod connected;
mod entries;
mod events;
mod expiring;
mod fast;
mod kernel_objects;
pub mod leftovers;
pub mod networks;
mod nexthops;
mod ownership;
mod peer_maps;
mod peers;
mod plane;
mod plane_setup;
mod state;
pub mod tunnel;
mod turns;
pub mod unreachable;
mod uplinks;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Add as _,
    sync::Arc,
    time::Instant,
};

pub use bpf::Bpf;
pub use cluster::Cluster;
use flannel_backend_api::{
    Backend, Device, Marks, OwnEnd, TunnelFacts, TunnelPeers,
    offload::{ChecksumDevice, ChecksumOffload, LostOffloaded, OffloadTrials, Offloads},
};
use flannel_common::abi::node::{FamilyConfig, NodeConfig};
use flannel_fast::{ConntrackSysctls, Exclusions, Fast, FastScope};
use flannel_host::{error_chain::chain, family::Family};
use flannel_host_sysctls::Devices;
use flannel_iface::ExternalInterface;
use flannel_netlink::Netlink;
use flannel_status::{ChecksumOffloadStatus, Dirty, Repairs, UnreachableStatus};
use flannel_store::{Changes, config::TxChecksumOffload};
use ipnet::IpNet;
use leftovers::Leftovers;
use networks::NetworksRecord;
use peer_maps::PeerMaps;
pub use peers::SharedPeers;
use plane::Plane;
pub use plane_setup::PlaneSetup;
use tunnel::Tunnels;

/// Desired and actual state.
pub struct Reconciler {
    netlink: Netlink,
    port_range: (u16, u16),
    planes: Vec<Plane>,
    /// Families that are not set up.
    off: Vec<Family>,
    tunnels: Tunnels,
    bpf: Option<Bpf>,
    fast: Fast,
    offloads: Offloads,
    checksum_offload: ChecksumOffload,
    leftovers: Option<Leftovers>,
}

impl Reconciler {
    /// Creates a reconciler that has not read the kernel yet. A family that is set up but not
    /// served by the external interface is left out. `port_range` is
    /// `net.ipv4.ip_local_port_range`.
    pub fn new(
        netlink: Netlink,
        backend: &Arc<dyn Backend>,
        setups: &BTreeMap<Family, PlaneSetup>,
        external: &ExternalInterface,
        port_range: (u16, u16),
        shared: &SharedPeers,
    ) -> Self {
        let plane = |(family, setup): (&Family, &PlaneSetup)| {
            let end = external.ends.get(family)?;
            Some(Plane::new(
                *family,
                Arc::clone(backend),
                *setup,
                external,
                *end,
                shared.clone(),
            ))
        };
        Self {
            netlink,
            port_range,
            planes: setups.iter().filter_map(plane).collect(),
            off: Family::BOTH
                .into_iter()
                .filter(|family| !setups.contains_key(family))
                .collect(),
            tunnels: Tunnels(None),
            bpf: None,
            fast: Fast::new(
                FastScope::default(),
                ConntrackSysctls::default(),
                Exclusions::default(),
            ),
            offloads: Offloads::default(),
            checksum_offload: ChecksumOffload::default(),
            leftovers: None,
        }
    }

    /// Removes objects with our marks that are in no network on this record.
    #[must_use]
    pub fn with_leftovers(self, record: NetworksRecord, marks: Marks) -> Self {
        Self {
            leftovers: Some(Leftovers::new(record, marks)),
            ..self
        }
    }

    /// Former pod networks of which objects were found since the last call.
    pub fn take_former(&mut self) -> BTreeSet<IpNet> {
        self.leftovers
            .as_mut()
            .map(Leftovers::take_former)
            .unwrap_or_default()
    }

    /// With mode `fast` as it was set up.
    #[must_use]
    pub fn with_fast(self, fast: Fast) -> Self {
        Self { fast, ..self }
    }

    /// With these peers behind the tunnel devices, where the backend has more there than a link.
    #[must_use]
    pub fn with_tunnel_peers(self, peers: Option<Box<dyn TunnelPeers>>) -> Self {
        Self {
            tunnels: Tunnels(peers),
            ..self
        }
    }

    /// With this setting of checksum offload.
    #[must_use]
    pub fn with_checksum_offload(mut self, setting: TxChecksumOffload) -> Self {
        self.checksum_offload = ChecksumOffload::new(setting);
        self
    }

    /// The checksum offload of the tunnel devices, for the status document.
    pub fn checksum_offload(&self) -> Vec<ChecksumOffloadStatus> {
        let name = |index| {
            self.devices()
                .find(|(_, device)| device.index == index)
                .map(|(_, device)| device.name.clone())
        };
        self.checksum_offload
            .status(|index| name(index).unwrap_or_default())
    }

    /// Adds the BPF side. The next [`Self::apply`] fills its maps from the leases.
    pub fn add_bpf(&mut self, mut bpf: Bpf) {
        for family in &self.off {
            if let Err(error) = PeerMaps::retire(*family, &mut bpf.maps) {
                tracing::warn!(%family, error = chain(&error), "the peer maps keep entries of a \
                    family that is off");
            }
        }
        self.planes
            .iter_mut()
            .for_each(|plane| plane.state.read_back_maps(&mut bpf.maps));
        self.bpf = Some(bpf);
    }

    /// The BPF side, where there is one.
    pub fn bpf(&self) -> Option<&Bpf> {
        self.bpf.as_ref()
    }

    /// The BPF side, where there is one.
    pub fn bpf_mut(&mut self) -> Option<&mut Bpf> {
        self.bpf.as_mut()
    }

    /// The kernel chose a range of local ports. Returns true if it is another one.
    pub fn set_port_range(&mut self, range: (u16, u16)) -> bool {
        std::mem::replace(&mut self.port_range, range) != range
    }

    /// Moves to another external interface, or to another local address on it. The next
    /// [`Self::apply`] replaces the tunnel devices where necessary.
    pub fn move_to(&mut self, external: &ExternalInterface) {
        for plane in &mut self.planes {
            if let Some(end) = external.ends.get(&plane.family) {
                plane.move_to(external, *end);
            }
        }
    }

    /// The next [`Self::apply`] reads everything back and asks for every path again.
    pub fn invalidate_all(&mut self) {
        self.planes.iter_mut().for_each(Plane::invalidate_all);
        self.fast.invalidate_all();
        self.offloads.invalidate();
        self.leftovers.iter_mut().for_each(Leftovers::invalidate);
        if let Some(bpf) = &mut self.bpf {
            bpf.invalidate();
        }
    }

    /// Takes in which peers are new, different or gone.
    pub fn learn(&mut self, changes: Changes) {
        if changes.all {
            self.planes
                .iter_mut()
                .for_each(|plane| plane.turns.peers.retain(&changes.peers));
        }
        for (subnet, peer) in changes.peers {
            let family = Family::of(subnet.addr());
            if let Some(plane) = self.planes.iter_mut().find(|plane| plane.family == family) {
                plane.turns.peers.update(subnet, peer);
            }
        }
    }

    /// Returns true if another [`Self::apply`] is due at once: each processes a limited number of
    /// peers and of hooks on pods, and more are left.
    pub fn has_backlog(&self) -> bool {
        let programs = self.bpf.as_ref().is_some_and(Bpf::has_backlog);
        self.planes.iter().any(Plane::has_backlog) || self.fast.has_backlog() || programs
    }

    /// Returns true if every peer is processed.
    pub fn is_complete(&self) -> bool {
        self.planes.iter().all(Plane::is_complete)
    }

    /// Returns true if the programs know all peers as senders.
    pub fn knows_every_sender(&self) -> bool {
        self.planes.iter().all(Plane::knows_every_sender)
    }

    /// Applies the desired state of the cluster to the kernel. One call does a limited amount of
    /// work.
    pub async fn apply(&mut self, cluster: &Cluster) {
        for plane in &mut self.planes {
            let maps = self.bpf.as_mut().map(|bpf| &mut bpf.maps);
            plane
                .prepare(
                    &self.netlink,
                    maps,
                    &mut self.tunnels,
                    cluster,
                    self.port_range,
                )
                .await;
        }
        self.follow_offloads().await;
        let moved = self.write_config();
        for plane in &mut self.planes {
            let maps = self.bpf.as_mut().map(|bpf| &mut bpf.maps);
            plane
                .work(&self.netlink, maps, &mut self.tunnels, cluster.in_sync)
                .await;
        }
        self.tunnels.apply(&self.planes, cluster.in_sync).await;
        if cluster.in_sync && self.is_complete() {
            self.sweep_leftovers().await;
        }
        self.planes.iter_mut().for_each(Plane::show);
        self.apply_fast(cluster.own, moved).await;
        let on_planes = self
            .planes
            .iter()
            .flat_map(|plane| plane.hooks(self.fast.is_on()));
        let hooks = on_planes.chain(self.fast.hooks()).collect();
        let external = self
            .planes
            .iter()
            .find(|plane| plane.tunnel.device.is_some())
            .map(|plane| plane.external.index);
        if let Some(bpf) = &mut self.bpf {
            bpf.attach(&hooks, external);
            if bpf.is_attached() {
                self.fast.set_back_former();
            }
        }
    }

    /// Sets the peers to which packets without an outer UDP checksum are lost on the way, by public
    /// address. Returns true if the next [`Self::apply`] has something to do because of it.
    pub fn set_unsummed_lost(&mut self, peers: &BTreeSet<IpAddr>) -> bool {
        self.planes.iter_mut().fold(false, |differs, plane| {
            plane.set_unsummed_lost(peers) | differs
        })
    }

    /// Sets the peers to which packets with offloaded checksums are lost on the way. Returns true
    /// if the next [`Self::apply`] may do something because of it.
    pub fn set_offloaded_lost(&mut self, lost: &BTreeSet<LostOffloaded>) -> bool {
        self.checksum_offload.set_lost(lost)
    }

    /// The trials of checksum offload that are due.
    pub fn offload_trials(&self) -> OffloadTrials {
        self.checksum_offload.trials()
    }

    /// Switches checksum offload of the tunnel devices, and keeps packets from skipping a device
    /// whose offload settings were changed.
    async fn follow_offloads(&mut self) {
        let devices: Vec<ChecksumDevice> = self
            .planes
            .iter()
            .filter_map(Plane::checksum_device)
            .collect();
        let tunnels = self
            .planes
            .iter()
            .filter_map(Plane::frame_tunnel)
            .map(|device| device.index);
        let known = devices
            .iter()
            .map(|device| device.index)
            .chain(tunnels)
            .collect::<BTreeSet<_>>();
        self.offloads.refresh(&self.netlink, known).await;
        self.checksum_offload
            .follow(&self.netlink, &mut self.offloads, &devices)
            .await;
        for plane in &mut self.planes {
            plane.follow_offloads(&self.offloads);
        }
    }

    async fn sweep_leftovers(&mut self) {
        let tunnels: Vec<u32> = self.devices().map(|(_, device)| device.index).collect();
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.sweep(&self.netlink, &tunnels).await;
        }
    }

    /// Returns the facts on a tunnel device that has a key.
    pub fn tunnel_facts(&self, device: &Device) -> Option<TunnelFacts> {
        self.tunnels.facts(device)
    }

    /// Writes the data of all families for the programs at once. A family that is off, or not known
    /// yet, is zero. Returns true if the data changed, or could not be written.
    fn write_config(&mut self) -> bool {
        let config = |family| {
            self.planes
                .iter()
                .find(|plane| plane.family == family)
                .map_or_else(FamilyConfig::default, Plane::config)
        };
        let config = NodeConfig {
            v4: config(Family::V4),
            v6: config(Family::V6),
            ..NodeConfig::default()
        };
        let written = self
            .bpf
            .as_mut()
            .map_or(Ok(false), |bpf| bpf.write_config(config));
        written.unwrap_or_else(|error| {
            tracing::warn!(
                error = chain(&error),
                "cannot write the BPF maps; tried again"
            );
            true
        })
    }

    /// The existing tunnel devices.
    pub fn devices(&self) -> impl Iterator<Item = (Family, &Device)> {
        self.planes
            .iter()
            .filter_map(|plane| Some((plane.family, plane.tunnel.device.as_ref()?)))
    }

    /// The devices whose sysctls packets of pods depend on; `bridges` are those of pods.
    pub fn sysctl_devices(&self, bridges: &[String]) -> Vec<Devices> {
        self.planes
            .iter()
            .map(|plane| plane.sysctl_devices(bridges))
            .collect()
    }

    /// Our ends of the tunnels, in the form in which they are published.
    pub fn ends(&self) -> BTreeMap<Family, OwnEnd> {
        self.planes
            .iter()
            .filter_map(|plane| Some((plane.family, plane.end()?)))
            .collect()
    }

    /// Returns the largest MTU of pods that fits every family, once all are known.
    pub fn mtu(&self) -> Option<u32> {
        let mtus: Option<Vec<u32>> = self.planes.iter().map(Plane::mtu).collect();
        mtus?.into_iter().min()
    }

    /// Returns the errors that stopped the last [`Self::apply`], if any did.
    pub fn error(&self) -> Option<String> {
        let errors = self
            .planes
            .iter()
            .filter_map(|plane| Some((plane.family, plane.error()?)));
        let texts: Vec<_> = match self.planes.len() {
            1 => errors.map(|(_, error)| error.to_owned()).collect(),
            _ => errors
                .map(|(family, error)| format!("{family}: {error}"))
                .collect(),
        };
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the entries that the kernel refused.
    pub fn dirty(&self) -> impl Iterator<Item = Dirty> {
        let bpf = self.bpf.iter().flat_map(Bpf::dirty);
        self.planes
            .iter()
            .flat_map(Plane::dirty)
            .chain(self.tunnels.dirty())
            .chain(bpf)
    }

    /// The unreachable routes, one for each pod network.
    pub fn unreachable_routes(&self) -> Vec<UnreachableStatus> {
        self.planes.iter().map(Plane::unreachable_status).collect()
    }

    /// Returns the number of repairs since the start, by kind of object.
    pub fn repairs(&self) -> Repairs {
        let planes = self
            .planes
            .iter()
            .map(Plane::repairs)
            .fold(Repairs::default(), Repairs::add);
        Repairs {
            wireguard: self.tunnels.repairs(),
            ..planes
        }
    }

    /// When something the kernel refused is due again.
    pub fn next_retry(&self) -> Option<Instant> {
        self.planes
            .iter()
            .filter_map(Plane::next_retry)
            .chain(self.tunnels.next_retry())
            .min()
    }
}
