//! The manager, and what it knows of our lease.

use std::collections::BTreeSet;

use flannel_host::clock::BootTime;

use super::{
    client::{EtcdClient, Liveness},
    keys::Keys,
    options::EtcdOptions,
};
use crate::{
    NodeMemory, StoreCounts,
    etcd::lease::{held::Held, question::Claim, term::Term},
    memory::Recorded,
};

/// Leases in etcd.
pub struct EtcdManager {
    pub(super) client: EtcdClient,
    pub(super) keys: Keys,
    pub(super) term: Term,
    pub(super) held: Option<Held>,
    pub(super) memory: Option<NodeMemory>,
    pub(super) recorded: Recorded,
    /// The question that waits for an answer.
    pub(super) claim: Option<Claim>,
    /// When the holder of a lease that looks like ours answered last.
    pub(super) answered: Option<BootTime>,
    /// Leases that look like ours, and whose holders answered.
    pub(super) held_by_others: BTreeSet<String>,
    pub(super) counts: StoreCounts,
}

impl EtcdManager {
    /// Returns a manager for these options. It connects on its first request.
    pub fn new(options: &EtcdOptions, liveness: Liveness) -> Self {
        Self {
            client: EtcdClient::new(options, liveness),
            keys: Keys::new(&options.prefix),
            term: Term {
                ttl: options.lease_ttl,
                margin: options.renew_margin,
            },
            held: None,
            memory: None,
            recorded: Recorded::default(),
            claim: None,
            answered: None,
            held_by_others: BTreeSet::new(),
            counts: StoreCounts::default(),
        }
    }
}
