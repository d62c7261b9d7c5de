//! One address family of the node: its tunnel device, its entries in the kernel, its peer maps, and
//! the underlay of its paths.
//!
//! A failure of one plane does not stop the other family. The steps are [`Plane::prepare`], then
//! [`Plane::work`]; between the two the node's data for the programs is written, for all families
//! at once. Each call processes a limited number of peers, so that events, the heartbeat and the
//! store are served in a large cluster too: there is more to do while [`Plane::has_backlog`] is
//! true.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Instant};

use flannel_backend_api::{
    Backend, BackendError, Device, DeviceError, Node, OwnEnd, ProgramSet, TunnelDevice,
    TunnelUnderlay,
    offload::{ChecksumDevice, Offloads},
    underlay::Underlay,
    usable_mtu, vanished,
};
use flannel_common::abi::{node, program::Program};
use flannel_datapath::{Hook, Maps};
use flannel_host::{error_chain::chain, family::Family};
use flannel_host_sysctls::Devices;
use flannel_iface::{End, ExternalInterface};
use flannel_netlink::{Link, Netlink, NetlinkError};
use flannel_status::{Dirty, Repairs, UnreachableStatus};

use super::{
    cluster::Cluster,
    ownership::Ownership,
    peers::{Peers, SharedPeers},
    plane_setup::PlaneSetup,
    state::FamilyState,
    tunnel::Tunnels,
    turns::Turns,
};
use crate::tunnel::device;

/// Errors that keep a plane from its desired state.
#[derive(Debug, thiserror::Error)]
enum PlaneError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    BackendError(#[from] BackendError),
    #[error("the lease has no {0} subnet")]
    NoSubnet(Family),
}

/// The external interface and our end of it.
pub(super) struct ExternalEnd {
    pub(super) index: u32,
    name: String,
    end: End,
    /// The reason why no program can follow packets on it, if none can.
    unfollowed: Option<String>,
    /// True if packets of other hosts arrive by it. `lo` and dummy devices only have the address.
    receives: bool,
}

impl ExternalEnd {
    fn new(external: &ExternalInterface, end: End) -> Self {
        Self {
            index: external.index,
            name: external.name.clone(),
            end,
            unfollowed: None,
            receives: false,
        }
    }

    fn is_at(&self, external: &ExternalInterface, end: End) -> bool {
        (self.index, self.end) == (external.index, end) && self.name == external.name
    }
}

/// The tunnel device of one family, where the backend has one.
#[derive(Default)]
pub(super) struct TunnelState {
    pub(super) device: Option<Device>,
    /// As the backend wants it.
    wanted: Option<Box<dyn TunnelDevice>>,
    /// The MTU of pods.
    mtu: Option<u32>,
    /// The number of times the device was found replaced, with another interface index.
    replaced: u64,
}

impl TunnelState {
    /// Returns true for a device that a process has open while all is well.
    pub(super) fn needs_carrier(&self) -> bool {
        self.wanted
            .as_ref()
            .is_some_and(|device| device.is_of_process())
    }
}

/// One family of the node.
pub(super) struct Plane {
    pub(super) family: Family,
    backend: Arc<dyn Backend>,
    setup: PlaneSetup,
    pub(super) external: ExternalEnd,
    pub(super) tunnel: TunnelState,
    pub(super) underlay: Underlay,
    pub(super) state: FamilyState,
    pub(super) turns: Turns,
    /// True if the kernel has to be read before anything is changed.
    pub(super) read_back: bool,
    /// The last complete state. The programs use it while the current state is incomplete.
    node: Option<Node>,
    error: Option<String>,
}

impl Plane {
    /// Creates a plane that has not read the kernel yet.
    pub(super) fn new(
        family: Family,
        backend: Arc<dyn Backend>,
        setup: PlaneSetup,
        external: &ExternalInterface,
        end: End,
        shared: SharedPeers,
    ) -> Self {
        Self {
            family,
            underlay: Underlay::new(backend.port()),
            backend,
            setup,
            external: ExternalEnd::new(external, end),
            tunnel: TunnelState::default(),
            state: FamilyState::new(family, &setup),
            turns: Turns::new(Peers::new(family, shared)),
            read_back: true,
            node: None,
            error: None,
        }
    }

    /// Moves to another external interface, or to another local address on it.
    pub(super) fn move_to(&mut self, external: &ExternalInterface, end: End) {
        if !self.external.is_at(external, end) {
            self.external = ExternalEnd {
                unfollowed: self.external.unfollowed.take(),
                ..ExternalEnd::new(external, end)
            };
            self.invalidate_all();
        }
    }

    /// Makes the plane read everything back and query every path again.
    pub(super) fn invalidate_all(&mut self) {
        self.read_back = true;
        self.mark_paths_stale();
    }

    /// Makes the plane query every path again.
    pub(super) fn mark_paths_stale(&mut self) {
        self.underlay.forget();
        self.turns.peers.mark_all_stale();
    }

    /// Prepares the device and reads the kernel's state.
    pub(super) async fn prepare(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        tunnels: &mut Tunnels,
        cluster: &Cluster,
        port_range: (u16, u16),
    ) {
        let result = self
            .try_prepare(netlink, maps, tunnels, cluster, port_range)
            .await;
        if let Err(error) = &result
            && self.error.is_none()
        {
            tracing::warn!(family = %self.family, error = chain(error), "cannot reconcile; tried \
                again");
        }
        self.error = result.err().map(|error| chain(&error));
    }

    async fn try_prepare(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        tunnels: &mut Tunnels,
        cluster: &Cluster,
        port_range: (u16, u16),
    ) -> Result<(), PlaneError> {
        let subnet = cluster
            .own
            .subnet(self.family)
            .ok_or(PlaneError::NoSubnet(self.family))?;
        self.backend.accept(&self.external.end)?;
        self.ensure_device(netlink).await?;
        let node = Node {
            network: self.setup.network,
            subnet,
            source: self.external.end.source,
            external: self.external.index,
            tunnel: self
                .tunnel
                .device
                .as_ref()
                .map(|device| (device.index, device.mac())),
            port_range,
        };
        self.set_node(node, tunnels);
        self.read_back |= self.state.entries.connected.set_own(subnet);
        if self.read_back {
            let ours = self.ownership();
            self.state.read_back(netlink, maps, &ours).await?;
        }
        if let (Some(device), Some(wanted)) = (&self.tunnel.device, &self.tunnel.wanted) {
            tunnels
                .prepare(netlink, device, wanted.as_ref(), &node, self.read_back)
                .await?;
        }
        self.read_back = false;
        self.state.want_unreachable(self.external.end.addr);
        if self
            .state
            .entries
            .count_peers(self.turns.peers.len(), cluster.in_sync)
        {
            self.turns.peers.mark_all_stale();
        }
        Ok(())
    }

    /// The node is this one. On another one every peer needs other entries.
    fn set_node(&mut self, node: Node, tunnels: &mut Tunnels) {
        let same = |known: Node| {
            Node {
                port_range: node.port_range,
                ..known
            } == node
        };
        if !self.node.is_some_and(same) {
            tunnels.clear_desired(self.device_name(), self.family);
            self.state.clear_desired();
            self.turns.rebuild();
        }
        self.node = Some(node);
    }

    /// The device as the backend wants it on the external interface as it is now: its MTU may have
    /// changed.
    async fn ensure_device(&mut self, netlink: &Netlink) -> Result<(), PlaneError> {
        let link = netlink.link_by_index(self.external.index).await?;
        let link = link.ok_or_else(|| vanished(&self.external.name))?;
        self.external.unfollowed =
            (link.arphrd != Link::ETHER).then(|| format!("{} is no Ethernet device", link.name));
        self.external.receives = !link.loopback && link.kind.as_deref() != Some("dummy");
        self.tunnel.mtu = Some(usable_mtu(self.backend.as_ref(), self.family, link.mtu)?);
        let mac = self.setup.end.map(OwnEnd::mac).unwrap_or_default();
        let ExternalEnd {
            index: external,
            end: End { source, .. },
            ..
        } = self.external;
        let Some(wanted) = self.backend.device(&TunnelUnderlay {
            external,
            mtu: link.mtu,
            source,
            mac,
        }) else {
            return Ok(());
        };
        let device = device::ensure(netlink, wanted.as_ref(), false).await?;
        let replaced = self
            .tunnel
            .device
            .as_ref()
            .is_some_and(|known| known.index != device.index);
        self.tunnel.replaced += u64::from(replaced);
        self.read_back |= replaced || self.tunnel.device.is_none();
        self.setup.end = device.vtep.map(OwnEnd::from).or(self.setup.end);
        (self.tunnel.device, self.tunnel.wanted) = (Some(device), Some(wanted));
        Ok(())
    }

    /// Asks for every path again if another offload setting of the tunnel device counts.
    pub(super) fn follow_offloads(&mut self, offloads: &Offloads) {
        let setting = self
            .frame_tunnel()
            .and_then(|device| offloads.on_transmit(device.index));
        if self.underlay.set_tunnel(setting) {
            self.mark_paths_stale();
        }
    }

    /// Asks for every path again if packets without an outer UDP checksum are lost to other peers.
    pub(super) fn set_unsummed_lost(&mut self, peers: &BTreeSet<IpAddr>) -> bool {
        let differs = self.underlay.set_unsummed_lost(peers);
        if differs {
            self.mark_paths_stale();
        }
        differs
    }

    /// Adds the entries of the next peers. If the store is in sync and all peers are processed,
    /// removes the entries of peers that are gone.
    pub(super) async fn work(
        &mut self,
        netlink: &Netlink,
        mut maps: Option<&mut Maps>,
        tunnels: &mut Tunnels,
        in_sync: bool,
    ) {
        let Some(node) = self.node.filter(|_| self.error.is_none()) else {
            return;
        };
        let change = self
            .turns
            .next(netlink, &mut self.underlay, self.backend.as_ref(), &node)
            .await;
        self.state.change(&change.before, &change.after);
        tunnels.change(self.device_name(), &change.before, &change.after);
        let now = Instant::now();
        self.state.upsert(netlink, maps.as_deref_mut(), now).await;
        if in_sync && self.is_complete() {
            self.state.sweep(netlink, maps, now).await;
        }
    }

    /// Shows the peers as the work on them left them: who sees one finds its entries in the kernel.
    pub(super) fn show(&mut self) {
        self.turns.show();
    }

    /// Returns true if every peer has its entries, except those that the kernel refused. The route
    /// to a peer may still have to be computed again.
    pub(super) fn is_complete(&self) -> bool {
        self.turns.is_complete()
    }

    /// Returns true if the programs know all peers as senders.
    pub(super) fn knows_every_sender(&self) -> bool {
        self.is_complete() && self.state.knows_every_sender()
    }

    /// Returns true if there are peers left to process and no error prevents it.
    pub(super) fn has_backlog(&self) -> bool {
        self.error.is_none() && !self.turns.peers.is_settled()
    }

    /// Returns the hooks this plane needs. Packets come in by the external interface, by whatever
    /// device they leave; programs read frames there, so it has to be an Ethernet device. Without a
    /// tunnel that the programs serve there are hooks only in mode `fast`.
    pub(super) fn hooks(&self, fast: bool) -> Vec<Hook> {
        let hook = |program, ifindex, ifname: &str| Hook {
            program,
            ifindex,
            ifname: ifname.to_owned(),
        };
        let on_underlay = |index, name: &str| {
            [Program::ToUnderlay, Program::FromUnderlay].map(|it| hook(it, index, name))
        };
        let external = self
            .external
            .unfollowed
            .is_none()
            .then(|| on_underlay(self.external.index, &self.external.name));
        let on_external = external.into_iter().flatten();
        match (self.backend.programs(), &self.tunnel.device) {
            (Ok(ProgramSet::Tunnel(_)), Some(device)) => {
                let to_note = fast.then(|| hook(Program::FromTunnel, device.index, &device.name));
                let on_uplinks = self
                    .turns
                    .uplinks()
                    .flat_map(|(index, name)| on_underlay(index, name));
                on_external
                    .chain(on_uplinks)
                    .chain([hook(Program::ToTunnel, device.index, &device.name)])
                    .chain(to_note)
                    .collect()
            }
            (Ok(ProgramSet::Link), _) if fast => on_external.collect(),
            (Ok(ProgramSet::L3Tunnel { and_link }), Some(device)) if fast => {
                let on_tunnel = [Program::ToL3Tunnel, Program::FromL3Tunnel];
                let on_tunnel = on_tunnel.map(|program| hook(program, device.index, &device.name));
                on_external.filter(|_| and_link).chain(on_tunnel).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the reason why mode `fast` can do nothing for any peer, if there is one. `None` with
    /// a tunnel, where each peer has its own reason.
    pub(super) fn fast_refusal(&self) -> Option<&str> {
        let needs_link = matches!(self.backend.programs(), Ok(ProgramSet::Link));
        self.external.unfollowed.as_deref().filter(|_| needs_link)
    }

    /// Returns the tunnel device if packets pass it as Ethernet frames, between one of our hooks
    /// and the pods.
    pub(super) fn frame_tunnel(&self) -> Option<&Device> {
        self.tunnel
            .device
            .as_ref()
            .filter(|_| matches!(self.backend.programs(), Ok(ProgramSet::Tunnel(_))))
    }

    /// Returns the tunnel device if it is a vxlan device, whose checksum offload the agent may
    /// switch.
    pub(super) fn checksum_device(&self) -> Option<ChecksumDevice> {
        let device = self
            .tunnel
            .device
            .as_ref()
            .filter(|device| device.vtep.is_some())?;
        Some(ChecksumDevice {
            family: self.family,
            index: device.index,
            uplink: self.external.index,
        })
    }

    pub(super) fn ownership(&self) -> Ownership {
        Ownership {
            tunnel: self.tunnel.device.as_ref().map(|device| device.index),
            network: self.setup.network.prefix,
            whole_network: self.backend.routes_whole_network(),
            marks: self.setup.marks,
        }
    }

    /// The unreachable route for the network.
    pub(super) fn unreachable_status(&self) -> UnreachableStatus {
        self.state.unreachable_status(self.external.end.addr)
    }

    /// Our end of the tunnel, in the form in which it is published. Without a device it keeps its
    /// last value.
    pub(super) const fn end(&self) -> Option<OwnEnd> {
        self.setup.end
    }

    /// The name of the tunnel device; empty while there is none.
    pub(super) fn device_name(&self) -> &str {
        self.tunnel
            .device
            .as_ref()
            .map_or("", |device| device.name.as_str())
    }

    /// The devices whose sysctls packets of pods depend on; `bridges` are those of pods.
    pub(super) fn sysctl_devices(&self, bridges: &[String]) -> Devices {
        Devices {
            family: self.family,
            tunnel: self
                .tunnel
                .device
                .as_ref()
                .map(|device| device.name.clone()),
            external: self.external.name.clone(),
            other_way: self
                .turns
                .way_past(self.external.index)
                .filter(|_| self.external.receives),
            is_encrypted: self.backend.encrypts_by_policies(),
            bridges: bridges.to_vec(),
        }
    }

    /// Returns this family's part of the node's data for the programs; zero if it is not known yet.
    pub(super) fn config(&self) -> node::FamilyConfig {
        self.node
            .as_ref()
            .and_then(|node| self.backend.node_config(node))
            .unwrap_or_default()
    }

    /// Returns the MTU of pods in this family, once it is known.
    pub(super) const fn mtu(&self) -> Option<u32> {
        self.tunnel.mtu
    }

    /// Returns the error that stopped the last round, if one did.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the entries that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.state.dirty()
    }

    /// Returns the number of repairs, by kind of object.
    pub(super) const fn repairs(&self) -> Repairs {
        Repairs {
            devices: self.tunnel.replaced,
            ..self.state.repairs()
        }
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.state.next_retry()
    }
}
