//! The sysctls of conntrack mode `fast` depends on: read, and set where the operator allows it.
//!
//! Nothing announces a change of a sysctl (inotify sees writes by the same mount of proc alone), so
//! they are read every second. Invariant: none is set before its value is in the record.

use std::{collections::BTreeSet, io, path::Path};

use flannel_host::{
    error_chain::chain,
    file::FileError,
    sysctl_record::{self, ChangedSysctl, Record},
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
    record: Record,
    /// The pod networks, former ones included.
    networks: BTreeSet<IpNet>,
    pub(super) now: Conntrack,
    /// Those that could not be set; not tried again until something differs.
    refused: Option<Conntrack>,
}

/// The reason for which a sysctl was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The record, without which nothing is changed.
    #[error("the value before cannot be recorded: {0}")]
    Record(#[from] FileError),
    /// The kernel.
    #[error("cannot set {name} to {value}: {source}")]
    Write {
        /// The sysctl.
        name: &'static str,
        /// The value it needs.
        value: u32,
        /// The error of the system call.
        source: io::Error,
    },
}

impl ConntrackSysctls {
    /// Those of this network namespace; nothing is read yet. `allowed`: they are set where the mode
    /// needs that, and their values before recorded in `state_dir`. `networks`: those of pods.
    pub fn new(allowed: bool, state_dir: &Path, networks: impl IntoIterator<Item = IpNet>) -> Self {
        let record = Record::load_or_repair(state_dir);
        match &record {
            Ok((_, Some(repair))) => tracing::warn!("{repair}"),
            Ok((_, None)) => {}
            Err(error) => tracing::warn!(
                error = chain(error),
                "no sysctl is set for mode fast: the record of earlier changes is not usable"
            ),
        }
        let record = record.map(|(record, _)| record);
        Self {
            allowed: allowed && record.is_ok(),
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

    /// Those that were set, by this agent or an earlier one.
    pub fn changed(&self) -> &[ChangedSysctl] {
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
        for change in changes {
            let recorded = self.record.clone();
            if let Err(error) = self.set_one(*change) {
                self.record = recorded;
                self.record.save()?;
                return Err(error);
            }
        }
        // The record of an earlier agent or of an init container may lack them.
        if !self.record.changed().is_empty() && self.record.add_networks(&self.networks) {
            self.record.save()?;
        }
        Ok(())
    }

    fn set_one(&mut self, Change { name, now, needed }: Change) -> Result<(), SetError> {
        self.record.note(name, now, needed);
        self.record.add_networks(&self.networks);
        self.record.save()?;
        sysctl_record::write(name, needed).map_err(|source| SetError::Write { name, value: needed, source })?;
        tracing::info!("set {name} from {now} to {needed} for mode fast");
        Ok(())
    }
}
