//! The answers of all peers, for any reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use flannel_backend_api::{
    PeerWay,
    offload::{LostOffloaded, OffloadTrials},
};
use flannel_host::family::{ByFamily, Family};
use flannel_status::{EchoState, EchoStatus, PeerEchoStatus};
use flannel_store::LeaseKey;
use tokio::sync::watch;

use super::{
    asked::AskedPeer,
    target::{EchoTarget, gateway},
};

/// The histories of all peers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedEchoes {
    histories: Arc<Mutex<Histories>>,
    own_gateways: Arc<watch::Sender<ByFamily<Option<IpAddr>>>>,
    unsummed_lost: Arc<watch::Sender<BTreeSet<IpAddr>>>,
    offload_trials: Arc<watch::Sender<OffloadTrials>>,
    offloaded_lost: Arc<watch::Sender<BTreeSet<LostOffloaded>>>,
}

#[derive(Debug, Default)]
struct Histories {
    status: EchoStatus,
    /// By the address that shows if packets of pods arrive.
    peers: BTreeMap<IpAddr, AskedPeer>,
    /// The keys of `peers` with this public address.
    nodes: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
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
        self.lock().status = EchoStatus {
            interval: interval.as_secs(),
            reason: problem,
        };
    }

    pub(super) fn stop_asking(&self, reason: String) {
        *self.lock() = Histories {
            status: EchoStatus {
                interval: 0,
                reason: Some(reason),
            },
            ..Histories::default()
        };
    }

    /// Removes all peers but these.
    pub(super) fn keep(&self, targets: &BTreeSet<EchoTarget>) {
        let mut histories = self.lock();
        let is_gone = |peer: &&AskedPeer| !targets.contains(&peer.target());
        let gone: Vec<_> = histories
            .peers
            .values()
            .filter(is_gone)
            .map(|peer| peer.target().address)
            .collect();
        for address in gone {
            if let Some(peer) = histories.peers.remove(&address) {
                histories.count(peer.state(), None);
            }
        }
        histories.nodes.clear();
        for target in targets {
            if let Some(node) = target.node {
                histories
                    .nodes
                    .entry(node)
                    .or_default()
                    .insert(target.address);
            }
        }
    }

    pub(super) fn ask(&self, target: EchoTarget, to: IpAddr, nonce: u64, now: Instant) {
        let mut histories = self.lock();
        histories.requests += 1;
        let was_lost = histories.change(target, |peer| peer.ask(to, nonce, now));
        histories.lost += u64::from(was_lost);
    }

    pub(super) fn refuse(&self, target: EchoTarget, to: IpAddr, error: &io::Error) {
        let mut histories = self.lock();
        histories.change(target, |peer| peer.refuse(to, error));
        histories.lost += 1;
    }

    /// Records a reply. Returns its round trip if a request waited for it.
    pub(super) fn answer(&self, from: IpAddr, nonce: u64, now: Instant) -> Option<Duration> {
        let mut histories = self.lock();
        // Any host may send replies: only a request begins a history.
        let behind = histories.nodes.get(&from).cloned().unwrap_or_default();
        let keys = std::iter::once(from).chain(behind);
        let targets: Vec<_> = keys
            .filter_map(|key| Some(histories.peers.get(&key)?.target()))
            .collect();
        targets
            .into_iter()
            .find_map(|target| histories.change(target, |peer| peer.answer(from, nonce, now)))
    }

    /// The addresses of peers that answered and do not any more, in their order.
    pub(super) fn silent(&self) -> Vec<IpAddr> {
        let histories = self.lock();
        let silent = histories
            .peers
            .iter()
            .filter(|(_, peer)| peer.state() == EchoState::Silent);
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
        self.unsummed_lost
            .send_if_modified(|known| std::mem::replace(known, lost.clone()) != *lost);
    }

    /// Sets the trials of checksum offload that are due.
    pub fn try_offloads(&self, trials: OffloadTrials) {
        self.offload_trials
            .send_if_modified(|known| std::mem::replace(known, trials) != trials);
    }

    pub(super) fn offload_trials(&self) -> OffloadTrials {
        *self.offload_trials.borrow()
    }

    /// The peers to which packets with offloaded checksums are lost.
    pub fn offloaded_lost(&self) -> watch::Receiver<BTreeSet<LostOffloaded>> {
        self.offloaded_lost.subscribe()
    }

    pub(super) fn set_offloaded_lost(&self, lost: &BTreeSet<LostOffloaded>) {
        self.offloaded_lost
            .send_if_modified(|known| std::mem::replace(known, lost.clone()) != *lost);
    }

    /// For the status document.
    pub fn status(&self) -> EchoStatus {
        self.lock().status.clone()
    }

    /// The answers of a peer; `None` if it is not asked.
    pub fn of(&self, peer: &PeerWay) -> Option<PeerEchoStatus> {
        let target = EchoTarget::of(peer)?;
        self.lock()
            .peers
            .get(&target.address)
            .map(AskedPeer::status)
    }

    /// Returns true if the address that shows if packets of pods arrive answers.
    pub fn pods_answer(&self, peer: &PeerWay) -> bool {
        let Some(target) = EchoTarget::of(peer) else {
            return false;
        };
        self.lock()
            .peers
            .get(&target.address)
            .is_some_and(AskedPeer::pods_answer)
    }

    /// Sets the subnets of this node. Requests to pods come from the gateway in them, if this host
    /// has that address.
    pub fn set_own_subnets(&self, own: LeaseKey) {
        let of_family = |family| own.subnet(family).map(gateway);
        let gateways = ByFamily {
            v4: of_family(Family::V4),
            v6: of_family(Family::V6),
        };
        self.own_gateways
            .send_if_modified(|known| std::mem::replace(known, gateways) != gateways);
    }

    pub(super) fn own_gateway(&self, family: Family) -> Option<IpAddr> {
        *self.own_gateways.borrow().get(family)
    }

    /// Returns the totals over all peers; `None` if the agent sends no requests.
    pub fn counts(&self) -> Option<EchoCounts> {
        let histories = self.lock();
        let Histories {
            states,
            requests,
            lost,
            ..
        } = &*histories;
        (histories.status.interval > 0).then(|| EchoCounts {
            states: states.clone(),
            requests: *requests,
            lost: *lost,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Histories> {
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Histories {
    fn change<T>(&mut self, target: EchoTarget, change: impl FnOnce(&mut AskedPeer) -> T) -> T {
        let known = self.peers.get(&target.address).map(AskedPeer::state);
        let peer = self
            .peers
            .entry(target.address)
            .or_insert_with(|| AskedPeer::new(target));
        let result = change(peer);
        let now = peer.state();
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

    fn steps() -> impl Strategy<Value = Vec<(u32, bool, Step)>> {
        let step = prop_oneof![
            Just(Step::Ask),
            Just(Step::Refuse),
            Just(Step::Answer),
            Just(Step::Forget)
        ];
        prop::collection::vec((0..PEERS, any::<bool>(), step), 0..200)
    }

    fn at(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    /// Two peers with an address of pods, which share a public address, and two without.
    fn target(number: u32) -> EchoTarget {
        EchoTarget {
            address: at(number),
            node: (number < 2).then(|| at(PEERS)),
        }
    }

    proptest! {
        #[test]
        fn the_kept_numbers_are_those_of_a_count(steps in steps()) {
            let (echoes, now) = (SharedEchoes::default(), Instant::now());
            echoes.keep(&(0..PEERS).map(target).collect());
            for (peer, is_node, step) in steps {
                let asked = target(peer);
                let to = asked.node.filter(|_| is_node).unwrap_or(asked.address);
                match step {
                    Step::Ask => echoes.ask(asked, to, 1, now),
                    Step::Refuse => echoes.refuse(asked, to, &io::ErrorKind::Other.into()),
                    Step::Answer => drop(echoes.answer(to, 1, now)),
                    Step::Forget => echoes.keep(
                        &(0..PEERS)
                            .filter(|other| *other != peer)
                            .map(target)
                            .collect(),
                    ),
                }
            }
            let histories = echoes.lock();
            let mut counted = BTreeMap::new();
            for peer in histories.peers.values() {
                *counted.entry(peer.state()).or_insert(0_usize) += 1;
            }
            let kept: BTreeMap<_, _> = histories
                .states
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(s, c)| (*s, *c))
                .collect();
            prop_assert_eq!(kept, counted);
        }
    }

    #[test]
    fn a_reply_of_a_stranger_is_not_kept() {
        let echoes = SharedEchoes::default();
        assert_eq!(echoes.answer(at(1), 1, Instant::now()), None);
        assert!(echoes.lock().peers.is_empty());
    }

    #[test]
    fn a_public_address_answers_for_the_peer_that_was_asked_there() {
        let (echoes, now) = (SharedEchoes::default(), Instant::now());
        echoes.keep(&BTreeSet::from([target(0), target(1)]));
        for (number, nonce) in [(0, 7), (1, 8)] {
            echoes.ask(target(number), at(PEERS), nonce, now);
        }
        assert!(echoes.answer(at(PEERS), 8, now).is_some());
        let states = |number| echoes.lock().peers[&at(number)].state();
        assert_eq!(
            (states(0), states(1)),
            (EchoState::Unknown, EchoState::Answering)
        );
    }
}
