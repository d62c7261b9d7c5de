//! The BPF side of the desired state: the node's data, the peer maps, the attachments and the mode.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use flannel_common::{
    addr::Addr,
    mode::{Mode, ModeWord},
    node::NodeConfig,
    peer::{PeerEntry, VtepEntry, Word},
};

use crate::{
    backend::PeerValue,
    datapath::{AttachKind, Attachments, DatapathError, Hook, Maps, clock},
    reconcile::{status::Dirty, tracker::Tracker},
};

/// The loaded datapath and what should be in it.
pub struct Bpf {
    maps: Maps,
    attachments: Attachments,
    peers: Tracker<u32, PeerValue>,
    vteps: Tracker<Addr, VtepEntry>,
    refused: Vec<(Hook, String)>,
}

impl Bpf {
    /// Over maps that are open and programs that are pinned.
    pub fn new(maps: Maps, attachments: Attachments) -> Self {
        Self { maps, attachments, peers: Tracker::default(), vteps: Tracker::default(), refused: Vec::new() }
    }

    /// How programs are attached.
    pub const fn attach_kind(&self) -> AttachKind {
        self.attachments.kind()
    }

    /// The mode word.
    pub fn mode(&self) -> Result<ModeWord, DatapathError> {
        self.maps.mode.get()
    }

    /// Puts a mode in force; whether it was another before.
    pub fn set_mode(&mut self, mode: Mode, choice: Option<Mode>) -> Result<bool, DatapathError> {
        self.maps.mode.set(mode, choice)
    }

    /// Tells the programs that the maps are vouched for.
    pub fn beat(&mut self) -> Result<(), DatapathError> {
        self.maps.config.beat(clock::now_ns())
    }

    /// Reads everything back from the maps.
    pub fn read_back(&mut self) -> Result<(), DatapathError> {
        let peers: Result<BTreeMap<_, _>, _> =
            self.maps.peers.entries().map(|entry| entry.map(|(index, entry)| (index, value_of(entry)))).collect();
        self.peers.found(peers?);
        let vteps: Result<BTreeMap<_, _>, _> = self.maps.vteps.entries().collect();
        self.vteps.found(vteps?);
        Ok(())
    }

    /// Takes in what should be.
    pub fn want(&mut self, peers: BTreeMap<u32, PeerValue>, vteps: BTreeMap<Addr, VtepEntry>) {
        self.peers.want(peers);
        self.vteps.want(vteps);
    }

    /// Writes the node's data and the peers that are new or changed.
    pub fn upsert(&mut self, node: NodeConfig, now: Instant) -> Result<(), DatapathError> {
        if self.maps.config.write(node, clock::now_ns())? {
            tracing::debug!("the node's data in CONFIG changed");
        }
        let Maps { peers, vteps, .. } = &mut self.maps;
        upsert(&mut self.peers, now, |index, value| peers.write(*index, value.entry, value.flags));
        upsert(&mut self.vteps, now, |vtep, value| vteps.write(*vtep, *value));
        Ok(())
    }

    /// Removes peers that are gone.
    pub fn sweep(&mut self, now: Instant) {
        let Maps { peers, vteps, .. } = &mut self.maps;
        sweep(&mut self.peers, now, |index| peers.remove(*index));
        sweep(&mut self.vteps, now, |vtep| vteps.remove(*vtep));
    }

    /// Attaches the programs where they belong.
    pub fn attach(&mut self, hooks: &BTreeSet<Hook>) {
        let refused = self.attachments.apply(hooks);
        let refused: Vec<_> = refused.into_iter().map(|(hook, error)| (hook, chain(&error))).collect();
        for (hook, error) in &refused {
            if !self.refused.iter().any(|(known, _)| known == hook) {
                tracing::warn!(
                    program = hook.program.name(),
                    device = hook.ifname,
                    error,
                    "cannot attach; tried again"
                );
            }
        }
        self.refused = refused;
    }

    /// What the kernel refused.
    pub fn dirty(&self) -> Vec<Dirty> {
        let peers =
            self.peers.failures().map(|(index, failure)| Dirty::new(format!("peer map entry {index}"), failure));
        let vteps = self.vteps.failures().map(|(vtep, failure)| Dirty::new(format!("VTEP map entry {vtep}"), failure));
        let hooks = self.refused.iter().map(|(hook, error)| Dirty {
            object: format!("{} on {}", hook.program.name(), hook.ifname),
            error: error.clone(),
            attempts: 1,
        });
        peers.chain(vteps).chain(hooks).collect()
    }

    /// When the next refused entry is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.peers.next_retry().into_iter().chain(self.vteps.next_retry()).min()
    }

    /// Whether every program is where it belongs.
    pub fn is_attached(&self) -> bool {
        self.refused.is_empty()
    }
}

/// Writes what is pending. What a map refuses stays pending and holds up nothing else.
fn upsert<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &mut Tracker<K, V>,
    now: Instant,
    mut write: impl FnMut(&K, &V) -> Result<(), DatapathError>,
) {
    for (key, value) in tracker.pending(now, false).upserts {
        match write(&key, &value) {
            Ok(()) => tracker.made(&key, value),
            Err(error) => drop(tracker.failed(&key, error.to_string(), now)),
        }
    }
}

/// Removes what is there and not wanted.
fn sweep<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &mut Tracker<K, V>,
    now: Instant,
    mut remove: impl FnMut(&K) -> Result<(), DatapathError>,
) {
    for (key, _) in tracker.pending(now, true).deletes {
        match remove(&key) {
            Ok(()) => tracker.removed(&key),
            Err(error) => drop(tracker.failed(&key, error.to_string(), now)),
        }
    }
}

fn value_of(entry: PeerEntry) -> PeerValue {
    PeerValue {
        flags: entry.word.flags() & !Word::VALID,
        entry: PeerEntry { word: Word::default(), ..entry.without_seen() },
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
