//! Finds peers to which packets without an outer UDP checksum are lost on the way. Pure.
//!
//! Over IPv6 the programs send tunnel packets without a checksum ([RFC
//! 6935](https://www.rfc-editor.org/rfc/rfc6935)), and the kernel's device with one. A router or
//! firewall may drop the former ([RFC 8200, section
//! 8.1](https://www.rfc-editor.org/rfc/rfc8200#section-8.1)). The packet by which the programs
//! validate a path is one of the latter, so it does not show that.
//!
//! A *trial* is three requests that the programs carry. It has failed if none of them is answered,
//! and the peer then answers another request: one that the kernel carries, or a usual one. The
//! answer may have to wait, because the peer's programs carry answers too. After three failed
//! trials in succession the packets of this peer are the kernel's, until the agent ends or the peer
//! goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Requests of a trial.
pub(super) const REQUESTS: usize = 3;
/// The number of trials in succession that have to fail.
const FAILURES: u32 = 3;
/// Time between a trial that did not fail and the next one. The first one may have passed because
/// the programs were not there yet.
const PAUSE: Duration = Duration::from_secs(10);
/// The time for which a peer is asked if it is alive, after a trial without an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A peer whose packets the programs carry over IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TrialPeer {
    /// The address at which it is asked.
    pub(super) address: IpAddr,
    /// Its public address.
    pub(super) public: IpAddr,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No trial before this moment; at once without one.
    Idle(Option<Instant>),
    /// These requests wait for an answer.
    Trying([u64; REQUESTS]),
    /// None of them was answered, and nothing else yet, since this moment.
    Unanswered(Instant),
}

#[derive(Debug)]
struct Progress {
    state: State,
    failures: u32,
}

/// The trials of all peers.
#[derive(Debug, Default)]
pub(super) struct Unsummed {
    peers: BTreeMap<IpAddr, (IpAddr, Progress)>,
    lost: BTreeSet<IpAddr>,
}

impl Unsummed {
    /// Removes all peers but these candidates, and all lost ones but these public addresses.
    pub(super) fn keep(&mut self, candidates: &BTreeSet<TrialPeer>, public: &BTreeSet<IpAddr>) {
        self.peers.retain(|address, (public, _)| {
            candidates.contains(&TrialPeer {
                address: *address,
                public: *public,
            })
        });
        for TrialPeer { address, public } in candidates {
            let progress = || {
                (
                    *public,
                    Progress {
                        state: State::Idle(None),
                        failures: 0,
                    },
                )
            };
            self.peers.entry(*address).or_insert_with(progress);
        }
        self.lost.retain(|address| public.contains(address));
    }

    /// The public addresses of the peers to which packets without a checksum are lost.
    pub(super) const fn lost(&self) -> &BTreeSet<IpAddr> {
        &self.lost
    }

    /// Starts the trial of a peer, if one is due.
    pub(super) fn begin(
        &mut self,
        address: IpAddr,
        now: Instant,
        mut nonce: impl FnMut() -> u64,
    ) -> Option<[u64; REQUESTS]> {
        let (_, progress) = self.peers.get_mut(&address)?;
        match progress.state {
            State::Idle(until) if until.is_none_or(|until| now >= until) => {
                let trial = std::array::from_fn(|_| nonce());
                progress.state = State::Trying(trial);
                Some(trial)
            }
            _ => None,
        }
    }

    /// Takes in a reply, to whatever request.
    pub(super) fn answer(&mut self, address: IpAddr, nonce: u64, now: Instant) {
        let Some((public, progress)) = self.peers.get_mut(&address) else {
            return;
        };
        match progress.state {
            State::Trying(trial) if trial.contains(&nonce) => {
                *progress = Progress {
                    state: State::Idle(Some(now + PAUSE)),
                    failures: 0,
                };
            }
            State::Unanswered(_) => {
                *progress = Progress {
                    state: State::Idle(None),
                    failures: progress.failures + 1,
                };
                if progress.failures >= FAILURES {
                    self.lost.insert(*public);
                }
            }
            State::Idle(_) | State::Trying(_) => {}
        }
    }

    /// Ends the trials, a second after they began. Returns the addresses of the peers that did not
    /// answer, and those to try once more.
    pub(super) fn end(&mut self, now: Instant) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let (mut silent, mut again) = (Vec::new(), Vec::new());
        for (address, (_, progress)) in &mut self.peers {
            match progress.state {
                State::Trying(_) => progress.state = State::Unanswered(now),
                State::Unanswered(since) if now >= since + PATIENCE => {
                    *progress = Progress {
                        state: State::Idle(Some(now + PAUSE)),
                        failures: 0,
                    };
                }
                State::Idle(None) if progress.failures > 0 => again.push(*address),
                State::Idle(_) | State::Unanswered(_) => {}
            }
            if matches!(progress.state, State::Unanswered(_)) {
                silent.push(*address);
            }
        }
        (silent, again)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn peer(number: u128) -> TrialPeer {
        let address = |net: u128| IpAddr::from(Ipv6Addr::from_bits(net << 64 | number));
        TrialPeer {
            address: address(1),
            public: address(2),
        }
    }

    struct Lab {
        trials: Unsummed,
        now: Instant,
    }

    impl Lab {
        fn new() -> Self {
            let mut trials = Unsummed::default();
            trials.keep(
                &BTreeSet::from([peer(1)]),
                &BTreeSet::from([peer(1).public]),
            );
            Self {
                trials,
                now: Instant::now(),
            }
        }

        fn begin(&mut self) -> Option<[u64; REQUESTS]> {
            let mut nonce = 0;
            self.trials.begin(peer(1).address, self.now, || {
                nonce += 1;
                nonce
            })
        }

        fn answer(&mut self, nonce: u64) {
            self.trials.answer(peer(1).address, nonce, self.now);
        }

        fn second(&mut self) -> (usize, usize) {
            self.now += Duration::from_secs(1);
            let (silent, again) = self.trials.end(self.now);
            (silent.len(), again.len())
        }

        /// A trial without an answer, and one to another request.
        fn fail(&mut self) {
            self.begin().expect("a trial is due");
            assert_eq!(self.second(), (1, 0), "the kernel's request is sent");
            self.answer(77);
        }
    }

    #[test]
    fn a_path_that_drops_only_packets_without_a_checksum_is_found_by_three_trials() {
        let mut lab = Lab::new();
        for _ in 0..2 {
            lab.fail();
            assert_eq!(lab.second(), (0, 1), "tried again at once");
            assert!(lab.trials.lost().is_empty());
        }
        lab.fail();
        assert_eq!(*lab.trials.lost(), BTreeSet::from([peer(1).public]));
        // The kernel carries its packets now: it is no longer a candidate.
        lab.trials
            .keep(&BTreeSet::new(), &BTreeSet::from([peer(1).public]));
        assert_eq!(lab.trials.lost().len(), 1);
        lab.trials.keep(&BTreeSet::new(), &BTreeSet::new());
        assert!(lab.trials.lost().is_empty(), "the peer is gone");
    }

    #[test]
    fn a_dead_peer_is_not_one() {
        let mut lab = Lab::new();
        for _ in 0..3 {
            lab.begin().expect("a trial is due");
            assert_eq!(lab.second(), (1, 0));
            let waited = (0..60).take_while(|_| lab.second() == (1, 0)).count();
            assert_eq!(waited, 29, "it is asked for a while");
            lab.now += PAUSE;
        }
        assert!(lab.trials.lost().is_empty());
    }

    #[test]
    fn failures_in_succession_count() {
        let mut lab = Lab::new();
        for _ in 0..3 {
            lab.fail();
            lab.fail();
            lab.begin().expect("a trial is due");
            lab.answer(2);
            assert!(lab.begin().is_none(), "it passed");
            lab.now += PAUSE;
        }
        assert!(lab.trials.lost().is_empty());
    }

    #[test]
    fn a_strangers_answer_counts_for_nothing() {
        let mut lab = Lab::new();
        lab.begin().expect("a trial is due");
        lab.trials.answer(peer(2).address, 1, lab.now);
        lab.answer(77);
        assert!(lab.begin().is_none(), "one trial at a time");
        assert_eq!(lab.second(), (1, 0), "it has not failed yet");
    }
}
