//! The answers of all peers, for any reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use flannel_status::{EchoState, EchoStatus, PeerEchoStatus};
use tokio::sync::watch;

use super::{address, history::History};
use crate::{
    backend::PeerWay,
    offload::{LostOffloaded, OffloadTrials},
};

/// The histories of all peers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedEchoes {
    histories: Arc<Mutex<Histories>>,
    unsummed_lost: Arc<watch::Sender<BTreeSet<IpAddr>>>,
    offload_trials: Arc<watch::Sender<OffloadTrials>>,
    offloaded_lost: Arc<watch::Sender<BTreeSet<LostOffloaded>>>,
}

#[derive(Debug, Default)]
struct Histories {
    status: EchoStatus,
    peers: BTreeMap<IpAddr, History>,
    states: BTreeMap<EchoState, usize>,
    requests: u64,
    lost: u64,
    /// The names of peers that have fallen silent.
    silent: BTreeSet<String>,
}

/// The numbers over all peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EchoCounts {
    /// Peers by state; absent for none.
    pub states: BTreeMap<EchoState, usize>,
    /// Requests so far.
    pub requests: u64,
    /// Those without a reply.
    pub lost: u64,
}

impl SharedEchoes {
    pub(super) fn ask_every(&self, interval: Duration, problem: Option<String>) {
        self.lock().status = EchoStatus { interval: interval.as_secs(), reason: problem };
    }

    pub(super) fn stop_asking(&self, reason: String) {
        *self.lock() = Histories { status: EchoStatus { interval: 0, reason: Some(reason) }, ..Histories::default() };
    }

    /// Removes all peers but these.
    pub(super) fn keep(&self, addresses: &BTreeSet<IpAddr>) {
        let mut histories = self.lock();
        let gone: Vec<_> = histories.peers.keys().filter(|address| !addresses.contains(address)).copied().collect();
        for address in gone {
            if let Some(history) = histories.peers.remove(&address) {
                histories.count(history.state(), None);
            }
        }
    }

    pub(super) fn ask(&self, address: IpAddr, nonce: u64, now: Instant) {
        let mut histories = self.lock();
        histories.requests += 1;
        let was_lost = histories.change(address, |history| history.ask(nonce, now));
        histories.lost += u64::from(was_lost);
    }

    pub(super) fn refuse(&self, address: IpAddr, error: &io::Error) {
        let mut histories = self.lock();
        histories.change(address, |history| history.refuse(error));
        histories.lost += 1;
    }

    /// Records a reply. Returns its round trip if a request waited for it.
    pub(super) fn answer(&self, address: IpAddr, nonce: u64, now: Instant) -> Option<Duration> {
        let mut histories = self.lock();
        // Any host may send replies: only a request begins a history.
        histories
            .peers
            .contains_key(&address)
            .then(|| histories.change(address, |history| history.answer(nonce, now)))?
    }

    /// The addresses of peers that answered and do not any more, in their order.
    pub(super) fn silent(&self) -> Vec<IpAddr> {
        let histories = self.lock();
        let silent = histories.peers.iter().filter(|(_, history)| history.state() == EchoState::Silent);
        silent.map(|(address, _)| *address).collect()
    }

    pub(super) fn set_silent_names(&self, names: BTreeSet<String>) {
        self.lock().silent = names;
    }

    /// The names of these peers.
    pub fn silent_names(&self) -> BTreeSet<String> {
        self.lock().silent.clone()
    }

    /// The public addresses of the peers to which packets without an outer UDP checksum are lost.
    pub fn unsummed_lost(&self) -> watch::Receiver<BTreeSet<IpAddr>> {
        self.unsummed_lost.subscribe()
    }

    pub(super) fn set_unsummed_lost(&self, lost: &BTreeSet<IpAddr>) {
        self.unsummed_lost.send_if_modified(|known| std::mem::replace(known, lost.clone()) != *lost);
    }

    /// Sets the trials of checksum offload that are due.
    pub fn try_offloads(&self, trials: OffloadTrials) {
        self.offload_trials.send_if_modified(|known| std::mem::replace(known, trials) != trials);
    }

    pub(super) fn offload_trials(&self) -> OffloadTrials {
        *self.offload_trials.borrow()
    }

    /// The peers to which packets with offloaded checksums are lost.
    pub fn offloaded_lost(&self) -> watch::Receiver<BTreeSet<LostOffloaded>> {
        self.offloaded_lost.subscribe()
    }

    pub(super) fn set_offloaded_lost(&self, lost: &BTreeSet<LostOffloaded>) {
        self.offloaded_lost.send_if_modified(|known| std::mem::replace(known, lost.clone()) != *lost);
    }

    /// For the status document.
    pub fn status(&self) -> EchoStatus {
        self.lock().status.clone()
    }

    /// The answers of a peer; `None` if it is not asked.
    pub fn of(&self, peer: &PeerWay) -> Option<PeerEchoStatus> {
        let address = address(peer)?;
        self.lock().peers.get(&address).map(|history| history.status(address.to_string()))
    }

    /// Returns the totals over all peers; `None` if the agent sends no requests.
    pub fn counts(&self) -> Option<EchoCounts> {
        let histories = self.lock();
        let Histories { states, requests, lost, .. } = &*histories;
        (histories.status.interval > 0).then(|| EchoCounts { states: states.clone(), requests: *requests, lost: *lost })
    }

    fn lock(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Histories {
    fn change<T>(&mut self, address: IpAddr, change: impl FnOnce(&mut History) -> T) -> T {
        let known = self.peers.get(&address).map(History::state);
        let history = self.peers.entry(address).or_default();
        let result = change(history);
        let now = history.state();
        match known {
            Some(before) => self.count(before, Some(now)),
            None => *self.states.entry(now).or_default() += 1,
        }
        result
    }

    fn count(&mut self, before: EchoState, now: Option<EchoState>) {
        if let Some(count) = self.states.get_mut(&before) {
            *count -= 1;
        }
        if let Some(now) = now {
            *self.states.entry(now).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const PEERS: u32 = 4;

    /// One thing that happens to a peer.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ask,
        Refuse,
        Answer,
        Forget,
    }

    fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
        let step = prop_oneof![Just(Step::Ask), Just(Step::Refuse), Just(Step::Answer), Just(Step::Forget)];
        prop::collection::vec((0..PEERS, step), 0..200)
    }

    fn at(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    proptest! {
        #[test]
        fn the_kept_numbers_are_those_of_a_count(steps in steps()) {
            let (echoes, now) = (SharedEchoes::default(), Instant::now());
            for (peer, step) in steps {
                match step {
                    Step::Ask => echoes.ask(at(peer), 1, now),
                    Step::Refuse => echoes.refuse(at(peer), &io::ErrorKind::Other.into()),
                    Step::Answer => drop(echoes.answer(at(peer), 1, now)),
                    Step::Forget => echoes.keep(&(0..PEERS).filter(|other| *other != peer).map(at).collect()),
                }
            }
            let histories = echoes.lock();
            let mut counted = BTreeMap::new();
            for history in histories.peers.values() {
                *counted.entry(history.state()).or_insert(0_usize) += 1;
            }
            let kept: BTreeMap<_, _> = histories.states.iter().filter(|(_, count)| **count > 0).map(|(s, c)| (*s, *c)).collect();
            prop_assert_eq!(kept, counted);
        }
    }

    #[test]
    fn a_reply_of_a_stranger_is_not_kept() {
        let echoes = SharedEchoes::default();
        assert_eq!(echoes.answer(at(1), 1, Instant::now()), None);
        assert!(echoes.lock().peers.is_empty());
    }
}
