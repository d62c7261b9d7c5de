//! Mode `fast` among the desired state: its settings and pods in the maps, and the generation of
//! what was learned.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_common::abi::program::Program;
use flannel_fast::{Fast, NodeDevices};
use flannel_host::{error_chain::chain, family::Family};
use flannel_store::LeaseKey;

use super::{Plane, Reconciler};

impl Reconciler {
    /// Mode `fast`, as it should be.
    pub const fn fast(&self) -> &Fast {
        &self.fast
    }

    /// Switches mode `fast` on or off. Afterwards see [`Self::has_backlog`].
    pub fn switch_fast(&mut self, on: bool) {
        self.fast.switch(on);
    }

    /// Sets the pods that opted out of mode `fast`, by address. Returns true if the next
    /// [`Self::apply`] has something to do because of it.
    pub fn leave_out(&mut self, pods: BTreeMap<IpAddr, String>) -> bool {
        self.fast.leave_out(pods)
    }

    /// Sets the reason why rules do not accept tunnel packets by what all packets of a peer have in
    /// common; `None` if they do. Returns true if the next [`Self::apply`] has something to do
    /// because of it.
    pub fn set_reception(&mut self, reason: Option<String>) -> bool {
        self.fast.set_reception(reason)
    }

    /// Marks for another look the state whose changes are not announced. Returns true if the next
    /// [`Self::apply`] has something to do because of it.
    pub fn invalidate_unannounced(&mut self) -> bool {
        self.offloads.invalidate_limits() | self.fast.invalidate_unannounced()
    }

    /// Reads the sysctls of conntrack again. Returns true if the next [`Self::apply`] has something
    /// to do because of it.
    pub fn refresh_conntrack(&mut self) -> bool {
        self.fast.refresh_conntrack()
    }

    /// Returns the reason why the mode can do nothing here for any peer, if there is one.
    pub fn fast_refusal(&self) -> Option<String> {
        self.planes
            .iter()
            .find_map(Plane::fast_refusal)
            .map(str::to_owned)
    }

    /// Discards what mode `fast` has learned.
    pub fn new_generation(&mut self) {
        if let Some(bpf) = &mut self.bpf
            && let Err(error) = bpf.new_generation()
        {
            tracing::warn!(
                error = chain(&error),
                "known flows stay in use until their refresh"
            );
        }
    }

    /// The devices packets of pods pass. A tunnel device without Ethernet is one by which packets
    /// arrive; towards it they pass its own queue, as the kernel's packets do.
    fn fast_devices(&self) -> NodeDevices {
        let hooks = self.planes.iter().flat_map(|plane| plane.hooks(true));
        let external = hooks
            .filter(|hook| matches!(hook.program, Program::FromUnderlay | Program::FromL3Tunnel));
        NodeDevices {
            tunnels: self
                .planes
                .iter()
                .filter_map(Plane::frame_tunnel)
                .map(|device| device.index)
                .collect(),
            external: external.map(|hook| (hook.ifindex, hook.ifname)).collect(),
        }
    }

    /// Refreshes the pods and writes them for the programs. `moved`: the node's own data changed,
    /// on which flows depend too.
    ///
    /// Pods are written before their programs are attached: without the programs an entry has no
    /// effect, and an entry that is removed takes its flows with it before the programs that know
    /// them are gone.
    pub(super) async fn apply_fast(&mut self, own: LeaseKey, moved: bool) {
        let devices = self.fast_devices();
        let disturbed = match &self.bpf {
            Some(bpf) => {
                self.fast
                    .look(&self.netlink, bpf.pins(), own, &devices, &mut self.offloads)
                    .await
            }
            None => false,
        };
        let mtu = |family| {
            self.planes
                .iter()
                .find(|plane| plane.family == family)
                .and_then(Plane::mtu)
                .unwrap_or(0)
        };
        let (settings, pods) = (
            self.fast.settings(mtu(Family::V4), mtu(Family::V6)),
            self.fast.entries(),
        );
        let written = self
            .bpf
            .as_mut()
            .map_or(Ok(false), |bpf| bpf.write_fast(settings, &pods));
        let differs = written.unwrap_or_else(|error| {
            tracing::warn!(
                error = chain(&error),
                "cannot write the maps of mode fast; tried again"
            );
            true
        });
        if moved || disturbed || differs {
            self.new_generation();
        }
    }
}
