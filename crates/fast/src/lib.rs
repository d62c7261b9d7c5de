//! Mode `fast` from the agent's side: which pods take part, which flows are learned, and when what
//! was learned is discarded.
//!
//! Decides only; `flannel_reconcile` attaches programs and writes maps. The contract with the
//! programs is in `flannel_common::abi::fast`. Invariants: in another mode no flow is learned, no
//! program is on a pod's veth and the host's settings stay unchanged; a change of a device, an
//! address or a setting begins a new generation before another flow is learned.

mod changes;
mod conntrack;
mod debounce;
mod exclusions;
mod host;
pub mod pods;
mod settings;
mod underlay;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_common::abi::{
    fast::{FastConfig, PodEntry},
    program::Program,
};
use flannel_host::family::Family;
use flannel_netlink::{KernelEvent, Netlink};
use flannel_store::LeaseKey;
use ipnet::IpNet;

pub use self::{
    changes::RuleChanges,
    conntrack::ConntrackSysctls,
    exclusions::Exclusions,
    settings::{FastOptions, FastScope, TcpObstacle},
};
use flannel_backend_api::offload::Offloads;
use flannel_datapath::{Hook, PinRoot};

use self::{
    pods::{PodReason, Pods},
    underlay::ExternalDevices,
};

/// The devices of the node that packets of pods pass, besides those of the pods.
#[derive(Debug, Default)]
pub struct NodeDevices {
    /// The tunnel devices that packets pass as Ethernet frames, by index.
    pub tunnels: Vec<u32>,
    /// Those by which packets of other nodes arrive, with their names.
    pub external: BTreeMap<u32, String>,
}

/// The state that mode `fast` should have on this node.
#[derive(Debug)]
pub struct Fast {
    /// True while the mode is active.
    on: bool,
    /// True if the mode was switched on or off since the last look.
    switched: bool,
    scope: FastScope,
    conntrack: ConntrackSysctls,
    exclusions: Exclusions,
    pods: Pods,
    underlay: ExternalDevices,
    /// The reason why the outer headers of packets that cannot be replayed are left to the kernel.
    reception: Option<String>,
    error: Option<String>,
}

impl Fast {
    /// Creates the state with the mode switched off.
    pub fn new(scope: FastScope, conntrack: ConntrackSysctls, exclusions: Exclusions) -> Self {
        Self {
            on: false,
            switched: false,
            scope,
            conntrack,
            exclusions,
            pods: Pods::default(),
            underlay: ExternalDevices::default(),
            reception: Some(flannel_firewall::NEVER_READ.to_owned()),
            error: None,
        }
    }

    /// Switches the mode on or off.
    pub fn switch(&mut self, on: bool) {
        if on == self.on {
            return;
        }
        if on {
            self.pods = Pods::default();
            self.underlay = ExternalDevices::default();
            self.conntrack.retry();
            self.conntrack.refresh();
        }
        (self.on, self.switched) = (on, true);
    }

    /// Returns true if the mode was switched on or off since the last look, so that a look is due.
    pub const fn has_backlog(&self) -> bool {
        self.switched
    }

    /// Returns true if the mode is active.
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// Sets the pods that opted out, by address. Returns true if the next look may find a
    /// difference because of it.
    pub fn leave_out(&mut self, pods: BTreeMap<IpAddr, String>) -> bool {
        let differs = self.exclusions.annotate(pods);
        if differs {
            self.pods.invalidate_addresses();
        }
        differs && self.on
    }

    /// Rules let tunnel packets through by what all packets of a peer have, or the reason why not.
    /// Returns true if the settings of the programs differ because of it.
    pub fn set_reception(&mut self, reason: Option<String>) -> bool {
        let differs = self.reception.is_none() != reason.is_none();
        self.reception = reason;
        differs && self.on
    }

    /// Takes in an event. Returns true if the next look may find something else because of it.
    pub fn observe(&mut self, event: &KernelEvent) -> bool {
        self.on && (self.pods.observe(event) | self.underlay.observe(event))
    }

    /// Marks everything as stale, so that the next look reads it again.
    pub fn invalidate_all(&mut self) {
        self.pods.invalidate_all();
        self.underlay.invalidate();
        self.conntrack.retry();
    }

    /// Marks as stale what no event announces. Returns true if the next look may find something
    /// else because of it.
    pub fn invalidate_unannounced(&mut self) -> bool {
        if self.on {
            self.pods.invalidate_unannounced();
            self.underlay.invalidate();
        }
        self.on
    }

    /// Reads the sysctls of conntrack again, and sets those that are too small. Returns true if
    /// something differs that programs or status show. Nothing announces their changes; one call
    /// takes 50 us of CPU.
    pub fn refresh_conntrack(&mut self) -> bool {
        self.on && self.conntrack.refresh()
    }

    /// No program of an earlier version learns flows any more: see
    /// [`ConntrackSysctls::set_back_former`].
    pub fn set_back_former(&mut self) {
        self.conntrack.set_back_former();
    }

    /// The sysctls of conntrack.
    pub const fn conntrack(&self) -> &ConntrackSysctls {
        &self.conntrack
    }

    /// Looks at the pods of our subnets and at the external devices. Returns true if something
    /// changed that flows depend on.
    pub async fn look(
        &mut self,
        netlink: &Netlink,
        pins: &PinRoot,
        own: LeaseKey,
        devices: &NodeDevices,
        offloads: &mut Offloads,
    ) -> bool {
        self.switched = false;
        if !self.on {
            return false;
        }
        let networks: Vec<IpNet> = Family::BOTH
            .iter()
            .filter_map(|family| own.subnet(*family))
            .collect();
        let tunnels = &devices.tunnels;
        offloads.refresh(netlink, tunnels.iter().copied()).await;
        let of_tunnels = tunnels
            .iter()
            .filter_map(|device| offloads.on_receipt(*device))
            .map(PodReason::Offload);
        self.underlay
            .refresh(netlink, pins, &networks, &devices.external, of_tunnels)
            .await;
        let looked = self
            .pods
            .look(netlink, pins, own, tunnels, &self.exclusions, offloads)
            .await;
        if let Err(error) = &looked {
            tracing::warn!(%error, "cannot look at the pods; tried again");
            self.pods.invalidate_all();
        }
        self.error = looked.err().map(|error| error.to_string());
        self.pods.take_disturbed()
    }

    /// Returns true if packets from other nodes are put straight into pods.
    fn takes_from_underlay(&self) -> bool {
        self.on && self.underlay.reasons().is_empty()
    }

    /// Returns true if the outer headers of packets that cannot be replayed come off.
    fn decapsulates(&self) -> bool {
        self.takes_from_underlay() && self.reception.is_none()
    }

    /// Returns the reason why the outer headers of packets that cannot be replayed stay on, while
    /// other packets from other nodes are put straight into pods.
    pub fn decapsulation_reason(&self) -> Option<&str> {
        self.reception
            .as_deref()
            .filter(|_| self.takes_from_underlay())
    }

    /// Returns true if flows with hosts outside the pod networks are learned.
    pub fn learns_outside(&self) -> bool {
        self.takes_from_underlay()
            && self.scope == FastScope::All
            && self.underlay.outside_reason().is_none()
    }

    /// Returns the reason why only the flows with hosts outside are not learned, although they
    /// should be.
    pub fn outside_reason(&self) -> Option<&PodReason> {
        let should = self.scope == FastScope::All && self.underlay_reasons().is_empty();
        self.underlay.outside_reason().filter(|_| should)
    }

    /// Returns the programs to attach to pods' veths; none unless the mode is active.
    pub fn hooks(&self) -> BTreeSet<Hook> {
        let taking_part = self
            .pods
            .found()
            .iter()
            .filter(|(_, pod)| self.on && pod.verdict.entry.is_some());
        let hook = |program, ifindex: u32, ifname: &str| Hook {
            program,
            ifindex,
            ifname: ifname.to_owned(),
        };
        let both = |(index, pod): (&u32, &pods::Pod)| {
            [Program::FromPod, Program::ToPod].map(|program| hook(program, *index, &pod.veth))
        };
        taking_part.flat_map(both).collect()
    }

    /// Returns the entries of the pod map, by the interface index of the veth; none unless the mode
    /// is active.
    pub fn entries(&self) -> BTreeMap<u32, PodEntry> {
        let entry = |(index, pod): (&u32, &pods::Pod)| Some((*index, pod.verdict.entry?));
        if self.on {
            self.pods.found().iter().filter_map(entry).collect()
        } else {
            BTreeMap::new()
        }
    }

    /// Returns the settings of the programs, with the MTUs of the IPv4 and the IPv6 tunnel device.
    pub fn settings(&self, tunnel_mtu: u32, tunnel_mtu6: u32) -> FastConfig {
        let settings = if self.on {
            self.conntrack.now.settings()
        } else {
            FastConfig::default()
        };
        let flag = |flag, on| if on { flag } else { 0 };
        let outside = flag(FastConfig::OUTSIDE, self.learns_outside());
        let decapsulate = flag(FastConfig::DECAPSULATE, self.decapsulates());
        let flags = settings.flags
            | decapsulate
            | flag(FastConfig::FROM_UNDERLAY, self.takes_from_underlay())
            | outside;
        FastConfig {
            flags,
            tunnel_mtu,
            tunnel_mtu6,
            ..settings
        }
    }

    /// The pods, by the interface index of their veth.
    pub const fn pods(&self) -> &BTreeMap<u32, pods::Pod> {
        self.pods.found()
    }

    /// Returns the reason why TCP flows are not learned, if they are not.
    pub fn tcp_reason(&self) -> Option<String> {
        self.conntrack
            .tcp_obstacle()
            .map(|obstacle| obstacle.to_string())
    }

    /// Reasons for which packets from other nodes are not put straight into pods; empty if they
    /// are.
    pub fn underlay_reasons(&self) -> &[PodReason] {
        self.underlay.reasons()
    }

    /// Returns the error of the last look at the pods, if it failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Reasons for which packets that arrive by a device are not put straight into pods, as of now.
pub fn underlay_reasons(pins: &PinRoot, ifindex: u32, name: &str) -> Vec<PodReason> {
    underlay::reasons_now(pins, ifindex, name)
}

/// The reason for which IPsec policies leave packets of these pod networks to the kernel, as of
/// now.
pub async fn policy_reason(netlink: &Netlink, pods: &[IpNet]) -> Option<PodReason> {
    underlay::policies(netlink, pods).await
}

/// Returns the reason why TCP flows are not learned with the current settings of conntrack, if they
/// are not.
pub fn tcp_obstacle() -> Option<TcpObstacle> {
    host::conntrack(&[]).tcp_obstacle()
}

/// Ports on which flows are never learned. To be read after the programs were loaded: what the
/// kernel lets them read decides.
pub fn helper_ports() -> Vec<u16> {
    host::helper_ports()
}
