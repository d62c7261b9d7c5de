//! The task that runs commands for peers: what is wanted, what was done, and the difference.
//!
//! A peer that changed is undone as it was and done as it is. A command that failed is tried again
//! later. No command that undoes a peer runs before the store has shown everything.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use flannel_host::error_chain::chain;
use flannel_status::{ExtensionStatus, FailingCommand};
use flannel_store::{Peer, config::ExtensionConfig};
use flannel_tracker::{Pending, Tracker};
use ipnet::IpNet;
use tokio::{sync::mpsc, time::sleep_until};

use super::{
    environment::Networks,
    error::ExtensionError,
    peers::ExtensionPeers,
    record::{PeerRecord, Records},
    shared::{LISTED, SharedExtensionStatus},
};

/// Peers that commands are run for before changes of the leases are looked at.
const AT_ONCE: usize = 16;
/// Failures of `SubnetRemoveCommand` for one peer until it is left alone.
const REMOVE_ATTEMPTS: u32 = 5;
/// Something that failed may have to wait for the store.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// A message of the main loop.
#[derive(Debug)]
pub(super) struct CommandRequest {
    /// Peers that are not named are gone.
    pub(super) all: bool,
    pub(super) peers: BTreeMap<IpNet, Option<Peer>>,
    /// True once the store has shown everything.
    pub(super) in_sync: bool,
}

/// The state of the task.
pub(super) struct CommandWorker {
    config: ExtensionConfig,
    networks: Networks,
    records: Records,
    shared: SharedExtensionStatus,
    peers: ExtensionPeers,
    /// By store entry: what is wanted, and what is on record.
    done: Tracker<String, PeerRecord>,
    in_sync: bool,
    /// When the command runs again for every peer.
    again_at: Option<Instant>,
}

impl CommandWorker {
    /// Peers on record count as done: their commands ran for an earlier agent.
    pub(super) fn new(
        config: ExtensionConfig,
        networks: Networks,
        records: Records,
        shared: SharedExtensionStatus,
    ) -> Result<Self, ExtensionError> {
        let mut done = Tracker::default();
        done.found(
            records
                .read()?
                .into_iter()
                .map(|peer| (peer.entry.clone(), peer))
                .collect(),
        );
        let mut worker = Self {
            config,
            networks,
            records,
            shared,
            peers: ExtensionPeers::default(),
            done,
            in_sync: false,
            again_at: None,
        };
        worker.again_at = worker.interval().map(|interval| Instant::now() + interval);
        worker.report();
        Ok(worker)
    }

    fn interval(&self) -> Option<Duration> {
        self.config
            .subnet_add_interval
            .map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// Runs until the main loop is gone.
    pub(super) async fn run(mut self, mut requests: mpsc::UnboundedReceiver<CommandRequest>) {
        loop {
            loop {
                match requests.try_recv() {
                    Ok(request) => self.take(request),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return,
                }
            }
            let worked = self.work().await;
            self.report();
            if worked {
                continue;
            }
            let next_retry = self
                .done
                .next_retry()
                .map(|due| due.max(Instant::now() + LEAST_WAIT));
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.take(request),
                    None => return,
                },
                () = at(next_retry) => {}
                () = at(self.again_at) => self.want_again(),
            }
        }
    }

    fn take(&mut self, request: CommandRequest) {
        self.in_sync = request.in_sync;
        for entry in self.peers.change(request.all, request.peers) {
            let wanted = self.peers.of(&entry).map(|facts| PeerRecord {
                entry: entry.clone(),
                add: self.config.subnet_add.clone(),
                remove: self.config.subnet_remove.clone(),
                networks: self.networks,
                node: facts.node,
                data: facts.data.as_deref().unwrap_or_default().to_owned(),
                complete: true,
            });
            self.done.set_desired(&entry, wanted);
        }
    }

    /// The command is to run again for every peer.
    fn want_again(&mut self) {
        let done: Vec<_> = self
            .done
            .wanted()
            .iter()
            .filter(|(entry, _)| self.is_done(entry))
            .collect();
        let incomplete = |(entry, peer): (&String, &PeerRecord)| (entry.clone(), peer.incomplete());
        for (entry, peer) in done.into_iter().map(incomplete).collect::<Vec<_>>() {
            self.done.observe(entry, Some(peer));
        }
        self.again_at = self.interval().map(|interval| Instant::now() + interval);
    }

    fn is_done(&self, entry: &String) -> bool {
        self.done.actual(entry) == self.done.wanted().get(entry)
    }

    /// Runs the commands for some of the peers that they are due for. Returns false if there were
    /// none. What goes makes room for what comes: a subnet may be another node's now.
    async fn work(&mut self) -> bool {
        let Pending { deletes, upserts } = self.done.pending(Instant::now(), self.in_sync);
        if deletes.is_empty() && upserts.is_empty() {
            return false;
        }
        for (entry, before) in deletes.into_iter().take(AT_ONCE) {
            match self.undo(&before).await {
                Ok(()) => self.done.removed(&entry),
                Err(error) => self.refused(&entry, &error),
            }
        }
        for (entry, wanted) in upserts.into_iter().take(AT_ONCE) {
            match self.make(&wanted).await {
                Ok(()) => {
                    tracing::info!(
                        peer = entry,
                        subnet = wanted.node.subnets(),
                        "SubnetAddCommand done"
                    );
                    self.done.made(&entry, wanted);
                }
                Err(error) => self.refused(&entry, &error),
            }
        }
        true
    }

    /// Does for a peer what is wanted, and records it: before the command, because it may do a part
    /// of its work and fail, and after it.
    async fn make(&mut self, wanted: &PeerRecord) -> Result<(), ExtensionError> {
        let before = self
            .done
            .actual(&wanted.entry)
            .filter(|before| before.incomplete() != wanted.incomplete());
        if let Some(before) = before.cloned() {
            self.undo(&before).await?;
        }
        let incomplete = wanted.incomplete();
        self.records.write(&incomplete)?;
        self.done.observe(wanted.entry.clone(), Some(incomplete));
        wanted.run_add().await?;
        Ok(self.records.write(wanted)?)
    }

    /// Undoes what was done for a peer. After some failures it counts as undone: what the command
    /// would remove may be gone.
    async fn undo(&self, before: &PeerRecord) -> Result<(), ExtensionError> {
        if let Err(error) = before.run_remove().await {
            if before.complete && self.failures_of(&before.entry) < REMOVE_ATTEMPTS {
                return Err(error);
            }
            tracing::warn!(
                peer = before.entry,
                error = chain(&error),
                "not tried again"
            );
        } else {
            tracing::info!(
                peer = before.entry,
                subnet = before.node.subnets(),
                "SubnetRemoveCommand done"
            );
        }
        Ok(self.records.remove(&before.entry)?)
    }

    fn failures_of(&self, entry: &String) -> u32 {
        self.done
            .failures()
            .find(|(failing, _)| *failing == entry)
            .map_or(0, |(_, failure)| failure.attempts)
    }

    fn refused(&mut self, entry: &String, error: &ExtensionError) {
        let text = chain(error);
        if self.done.failed(entry, text.clone(), Instant::now()) {
            tracing::warn!(
                peer = entry,
                error = text,
                "a command of the backend extension failed; tried again"
            );
        }
    }

    fn report(&self) {
        let wanted = self.done.wanted();
        let added = wanted.keys().filter(|entry| self.is_done(entry)).count();
        let failing = self.done.failures().count();
        let failing_wanted = self
            .done
            .failures()
            .filter(|(entry, _)| wanted.contains_key(*entry))
            .count();
        let failures = self
            .done
            .failures()
            .take(LISTED)
            .map(|(entry, failure)| FailingCommand {
                peer: entry.clone(),
                error: failure.error.clone(),
                attempts: failure.attempts,
            });
        self.shared.set_commands(ExtensionStatus {
            added: count(added),
            waiting: count(wanted.len().saturating_sub(added + failing_wanted)),
            failing: count(failing),
            failures: failures.collect(),
            ..ExtensionStatus::default()
        });
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
