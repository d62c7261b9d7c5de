//! The sysctls of conntrack mode `fast` depends on: read, and set where the operator allows it.
//!
//! The kernel does not announce changes of sysctls (inotify sees only writes by the same mount of
//! proc), so they are read every second. Invariant: a sysctl is not set before its former value is
//! in the record.

use std::{collections::BTreeSet, fs, io, path::PathBuf, thread};

use flannel_common::flow::connection::Connection;
use flannel_host::{
    error_chain::chain,
    sysctl_record::{ChangedSysctl, SetError, SharedRecord},
};
use flannel_netfilter::ConntrackTable;
use ipnet::IpNet;
use thiserror::Error;

use super::{
    host,
    settings::{Change, Conntrack, LIBERAL, TcpObstacle},
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
    /// An earlier version of the agent has set sysctls, and this one has to set them back.
    has_former: bool,
    /// Those that could not be set; not tried again until something differs.
    refused: Option<Conntrack>,
}

impl ConntrackSysctls {
    /// Creates the state for this network namespace, without reading the sysctls yet. If `allowed`,
    /// sysctls are set where the mode needs it, after their former values are put on `record`;
    /// without a record none is set. `networks` are the pod networks.
    pub fn new(
        allowed: bool,
        record: Option<SharedRecord>,
        networks: impl IntoIterator<Item = IpNet>,
    ) -> Self {
        let (has_record, record) = (record.is_some(), record.unwrap_or_default());
        Self {
            allowed: allowed && has_record,
            has_former: record.has_any(&LIBERAL),
            record,
            networks: networks.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Sets back, once, the sysctls that an earlier version of the agent had set for all
    /// connections; those of pods that are alive go on without. To be called when no program of
    /// that version learns flows any more. A thread does it: the table may be long.
    pub fn set_back_former(&mut self) {
        if !std::mem::take(&mut self.has_former) {
            return;
        }
        let (record, networks) = (self.record.clone(), self.networks.clone());
        let work = move || set_back_former(&record, &networks);
        if let Err(error) = thread::Builder::new()
            .name("conntrack".to_owned())
            .spawn(work)
        {
            tracing::warn!(%error, "sysctls that an earlier version has set stay: \
                {}", LIBERAL.join(", "));
        }
    }

    /// The same at once, if an agent could not do it because it may not write sysctls.
    pub fn set_back_released(&mut self) {
        if released(&self.record).exists() && std::mem::take(&mut self.has_former) {
            set_back_former(&self.record, &self.networks);
        }
    }

    /// Reads them again, and sets those that are too small. Returns true if something differs that
    /// programs or status show.
    pub(super) fn refresh(&mut self) -> bool {
        let (before, mut now, mut error) = (self.now, self.read(), None);
        let mut recorded = false;
        if self.allowed && self.refused != Some(now) {
            let changes = now.changes();
            error = self.set(&changes).err();
            recorded = !changes.is_empty();
            if recorded {
                now = self.read();
            }
            self.refused = error.is_some().then_some(now);
        }
        self.now = now;
        if let Some(seconds) = now.forgets_udp_early().filter(|_| error.is_some()) {
            tracing::warn!(
                "conntrack may forget flows of UDP that are silent up to {seconds} s early"
            );
        }
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
    pub(super) fn tcp_obstacle(&self) -> Option<TcpObstacle> {
        self.now.tcp_obstacle()
    }

    /// All sysctls on record that were set, by this agent or an earlier one.
    pub fn changed(&self) -> Vec<ChangedSysctl> {
        self.record.changed()
    }

    /// Returns true if the kernel has conntrack: built in, or its module is loaded.
    pub fn is_conntrack_loaded() -> bool {
        host::conntrack(&[]).loaded
    }

    /// Sets those that are too small. Why TCP would not be learned all the same, if it would not.
    pub fn prepare(&mut self) -> Result<Option<TcpObstacle>, SetError> {
        self.set(&self.read().changes())?;
        Ok(self.read().tcp_obstacle())
    }

    fn read(&self) -> Conntrack {
        host::conntrack(&self.record.changed())
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

fn set_back_former(record: &SharedRecord, networks: &BTreeSet<IpNet>) {
    let ended = end_checks(networks).map_err(SetBackError::Connections);
    match ended.and_then(|count| Ok((count, record.give_back(&LIBERAL)?))) {
        Ok((connections, restored)) => {
            // A file that stays does no harm: the next `prepare` finds no sysctl on record.
            let _ = fs::remove_file(released(record));
            for (name, value) in restored {
                tracing::info!(
                    connections,
                    "set {name} back to {value}: mode fast no longer needs it"
                );
            }
        }
        Err(error) => {
            // `prepare`, which may, does it the next time.
            if matches!(error, SetBackError::Set(_)) {
                let _ = fs::write(released(record), []);
            }
            tracing::warn!(
                error = chain(&error),
                "sysctls that an earlier version has set for mode fast stay until the next start: \
                 {}",
                LIBERAL.join(", ")
            );
        }
    }
}

/// The file by which an agent that may not write sysctls says that it does not need them any more.
fn released(record: &SharedRecord) -> PathBuf {
    record.state_dir().join("sysctls.released")
}

/// The reason for which sysctls of an earlier version stay.
#[derive(Debug, Error)]
enum SetBackError {
    /// The connections that depend on them.
    #[error("cannot end the checks of windows of the connections that are alive: {0}")]
    Connections(io::Error),
    /// The record or the kernel.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// Has conntrack no longer check the windows of the connections of these networks. Returns their
/// number.
fn end_checks(networks: &BTreeSet<IpNet>) -> io::Result<usize> {
    let mut table = ConntrackTable::open()?;
    let mut found: Vec<Connection> = Vec::new();
    table.alive_in(networks, |connection| found.extend(connection))?;
    let gone = table.stop_checking_windows(&found)?;
    Ok(found.len().saturating_sub(gone))
}
