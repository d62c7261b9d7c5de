//! The guard in the main loop: the conditions for its modes, its log lines, its part of the status.

use std::time::Instant;

use flannel_datapath::attach::{EarlyGuard, XdpGuardMode};
use flannel_guard::Uncertainty;
use flannel_host::error_chain::chain;
use flannel_status::{GuardStatus, XdpStatus};

use crate::agent::main_loop::Agent;

impl Agent {
    /// Applies the requested modes of the guard, if their conditions are met. Returns true if a
    /// mode changed.
    ///
    /// Called after peers are processed, and before the first heartbeat: an earlier agent may have
    /// left the guard enforcing the peers that it knew.
    pub(super) fn follow_guard(&mut self) -> bool {
        let uncertainty = self.guard_uncertainty();
        let Some(bpf) = self
            .node
            .reconciler
            .bpf_mut()
            .filter(|bpf| bpf.has_tunnel())
        else {
            return false;
        };
        self.guard
            .follow(bpf.maps_mut(), uncertainty)
            .unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "cannot follow the guard's modes");
                false
            })
    }

    /// Logs what the guard refused. Returns true if its counts changed, so that the status has to.
    pub(super) fn report_guard(&mut self) -> bool {
        let Some(bpf) = self.node.reconciler.bpf().filter(|bpf| bpf.has_tunnel()) else {
            return false;
        };
        self.guard
            .log_counts(bpf.maps(), Instant::now())
            .unwrap_or_else(|error| {
                tracing::warn!(error = chain(&error), "cannot read what the guard refused");
                false
            })
    }

    /// The guard's part of the status; none without a tunnel.
    pub(super) fn guard_status(&self) -> Option<GuardStatus> {
        let Some(bpf) = self.node.reconciler.bpf() else {
            return self
                .node
                .settings
                .has_tunnel
                .then(|| self.guard.status_without_bpf());
        };
        if !bpf.has_tunnel() {
            return None;
        }
        match self.guard.status(bpf.maps(), self.guard_uncertainty()) {
            Ok(status) => Some(GuardStatus {
                xdp: xdp_status(bpf.early_guard()),
                ..status
            }),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot read the guard's maps");
                None
            }
        }
    }

    /// Returns the reason why the programs may not know all peers, if there is one.
    fn guard_uncertainty(&self) -> Option<Uncertainty> {
        if !self.store.is_in_sync() {
            return Some(Uncertainty::StoreNotInSync);
        }
        (!self.node.reconciler.knows_every_sender()).then_some(Uncertainty::PeersPending)
    }
}

fn xdp_status(guard: &EarlyGuard) -> Option<XdpStatus> {
    let status = || XdpStatus {
        attached: guard.is_attached(),
        reason: guard.refused().map(str::to_owned),
    };
    (guard.requested() != XdpGuardMode::Off).then(status)
}
