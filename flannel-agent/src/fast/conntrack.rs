//! The sysctls of conntrack mode `fast` depends on: read, and set where the operator allows it.
//!
//! Nothing announces a change of a sysctl (inotify sees writes by the same mount of proc alone), so
//! they are read every second. Invariant: none is set before its value is in the record.

use std::collections::BTreeSet;

use flannel_host::{
    error_chain::chain,
    sysctl_record::{ChangedSysctl, SetError, SharedRecord},
};
use ipnet::IpNet;

use super::{
    host,
    settings::{Change, Conntrack, Unmet},
};

/// The sysctls of one node.
#[derive(Debug, Default)]
pub struct ConntrackSysctls {
    /// They may be set.
    allowed: bool,
    record: SharedRecord,
    /// The pod networks, former ones included.
    networks: BTreeSet<IpNet>,
    pub(super) now: Conntrack,
    /// Those that could not be set; not tried again until something differs.
    refused: Option<Conntrack>,
}

impl ConntrackSysctls {
    /// Those of this network namespace; nothing is read yet. `allowed`: they are set where the mode
    /// needs that, and their values before put on `record`; without one none is set. `networks`:
    /// those of pods.
    pub fn new(allowed: bool, record: Option<SharedRecord>, networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            allowed: allowed && record.is_some(),
            record: record.unwrap_or_default(),
            networks: networks.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Reads them again, and sets those that are too small. Whether something differs that programs
    /// or status show.
    pub(super) fn refresh(&mut self) -> bool {
        let (before, mut now, mut error) = (self.now, host::conntrack(), None);
        let mut recorded = false;
        if self.allowed && self.refused != Some(now) {
            let changes = now.changes();
            error = self.set(&changes).err();
            recorded = !changes.is_empty();
            if recorded {
                now = host::conntrack();
            }
            self.refused = error.is_some().then_some(now);
        }
        self.now = now;
        let obstacle = now.tcp_obstacle();
        if let Some(reason) = obstacle.filter(|_| obstacle != before.tcp_obstacle()) {
            let error = error.map(|error| chain(&error));
            tracing::warn!(%reason, error, "TCP flows take the kernel's path");
        }
        recorded || now != before
    }

    /// Tries again what was refused.
    pub(super) const fn retry(&mut self) {
        self.refused = None;
    }

    /// The reason for which TCP is not learned.
    pub(super) fn tcp_obstacle(&self) -> Option<Unmet> {
        self.now.tcp_obstacle()
    }

    /// All sysctls on record that were set, by this agent or an earlier one.
    pub fn changed(&self) -> Vec<ChangedSysctl> {
        self.record.changed()
    }

    /// Returns true if the kernel has conntrack: built in, or its module is loaded.
    pub fn is_conntrack_loaded() -> bool {
        host::conntrack().loaded
    }

    /// Sets those that are too small. Why TCP would not be learned all the same, if it would not.
    pub fn prepare(&mut self) -> Result<Option<Unmet>, SetError> {
        self.set(&host::conntrack().changes())?;
        Ok(host::conntrack().tcp_obstacle())
    }

    fn set(&mut self, changes: &[Change]) -> Result<(), SetError> {
        for Change { name, now, needed } in changes {
            self.record.set(name, *now, *needed, &self.networks)?;
            tracing::info!("set {name} from {now} to {needed} for mode fast");
        }
        // The record of an earlier agent or of an init container may lack them.
        Ok(self.record.complete(&self.networks)?)
    }
}
