//! Finds peers to which packets with offloaded inner checksums are lost on the way.
//!
//! A network card that breaks the checksums inside tunnel packets is the most frequent trouble of
//! VXLAN ([flannel, issue 1279](https://github.com/flannel-io/flannel/issues/1279)). ICMP does not
//! show it, because the kernel computes the checksum of ICMP itself. A *trial* sends two UDP
//! datagrams a second to a closed port of the peer's tunnel device, in random order: one whose
//! checksum is left to the card, and one whose checksum the kernel computes. The peer's kernel
//! answers both with an ICMP error, and drops without an answer what has a wrong checksum
//! (`__udp4_lib_rcv()` in [net/ipv4/udp.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/udp.c)). An answer to the former ends
//! the trial. Six answers to the latter and none to the former show that the former are lost. No
//! answer at all shows nothing: the peer is away, or filters.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use flannel_backend_api::offload::LostOffloaded;
use flannel_host::family::Family;
use nix::libc::MSG_MORE;
use socket2::SockRef;

/// Answers to requests with a computed checksum that a trial needs to fail.
const ANSWERS: u32 = 6;
/// Seconds after which a trial ends without a result.
const LONGEST: u32 = 30;
/// Trials at one time, of all peers together.
const AT_ONCE: usize = 32;
/// Time between a trial that did not fail and the next one of the same peer.
const PAUSE: Duration = Duration::from_mins(10);
/// The first port of `traceroute`: closed everywhere, and often let through by firewalls.
const CLOSED_PORT: u16 = 33_434;
/// Names the sender in a capture.
const TEXT: &[u8] = b"flannel-agent: does a checksum left to the network card arrive?";

/// A peer with a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OffloadPeer {
    /// The address of its tunnel device.
    pub(super) address: IpAddr,
    /// Its public address.
    pub(super) public: IpAddr,
    /// The round of trials.
    pub(super) round: u32,
}

#[derive(Debug)]
enum State {
    /// No trial before this moment.
    Idle(Instant),
    Trying(Requests, Score),
    Lost,
}

/// The trials of all peers.
#[derive(Debug, Default)]
pub(super) struct Offloaded {
    peers: BTreeMap<OffloadPeer, State>,
}

impl Offloaded {
    /// Removes all peers but these.
    pub(super) fn keep(&mut self, peers: &BTreeSet<OffloadPeer>, now: Instant) {
        self.peers.retain(|peer, _| peers.contains(peer));
        for peer in peers {
            self.peers.entry(*peer).or_insert(State::Idle(now));
        }
    }

    /// Goes on with each trial, and begins those that are due. To be called once a second.
    pub(super) fn go_on(&mut self, now: Instant) {
        let mut trying = 0;
        for state in self.peers.values_mut() {
            state.take_answers(now);
            trying += usize::from(matches!(state, State::Trying(..)));
        }
        let due = self
            .peers
            .iter_mut()
            .filter(|(_, state)| matches!(state, State::Idle(until) if now >= *until));
        for (peer, state) in due.take(AT_ONCE - trying) {
            // A trial without sockets is tried again after the pause.
            *state = Requests::open(peer.address).map_or(State::Idle(now + PAUSE), |requests| {
                State::Trying(requests, Score::default())
            });
        }
        for state in self.peers.values() {
            if let State::Trying(requests, _) = state {
                requests.send();
            }
        }
    }

    /// The peers to which packets with offloaded checksums are lost.
    pub(super) fn lost(&self) -> BTreeSet<LostOffloaded> {
        let lost = self
            .peers
            .iter()
            .filter(|(_, state)| matches!(state, State::Lost));
        lost.map(|(peer, _)| LostOffloaded {
            round: peer.round,
            peer: peer.public,
        })
        .collect()
    }
}

impl State {
    fn take_answers(&mut self, now: Instant) {
        let Self::Trying(requests, score) = self else {
            return;
        };
        match score.take(requests.are_answered()) {
            None => {}
            Some(Verdict::Lost) => *self = Self::Lost,
            Some(Verdict::Arrives | Verdict::Unknown) => *self = Self::Idle(now + PAUSE),
        }
    }
}

/// The end of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Arrives,
    Lost,
    Unknown,
}

/// The answers of a trial so far.
#[derive(Debug, Default)]
struct Score {
    seconds: u32,
    answers: u32,
}

impl Score {
    /// Takes in which requests of the last second were answered.
    fn take(&mut self, answered: Answered) -> Option<Verdict> {
        self.seconds += 1;
        self.answers += u32::from(answered.computed);
        if answered.offloaded {
            Some(Verdict::Arrives)
        } else if self.answers >= ANSWERS {
            Some(Verdict::Lost)
        } else {
            (self.seconds >= LONGEST).then_some(Verdict::Unknown)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    offloaded: bool,
    computed: bool,
}

/// The sockets of a trial. Each sees only the errors that answer its own datagrams.
#[derive(Debug)]
struct Requests {
    offloaded: UdpSocket,
    computed: UdpSocket,
}

impl Requests {
    fn open(peer: IpAddr) -> io::Result<Self> {
        let open = || {
            let any: IpAddr = match Family::of(peer) {
                Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
            socket.set_nonblocking(true)?;
            socket.connect(SocketAddr::new(peer, CLOSED_PORT))?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            offloaded: open()?,
            computed: open()?,
        })
    }

    /// Sends one of each. The first of two may find a limit of the peer's ICMP errors less used, so
    /// the order is random. An error of sending is an answer that waited, or means none.
    fn send(&self) {
        let is_first: bool = rand::random();
        if is_first {
            let _ = self.send_offloaded();
        }
        let _ = self.send_computed();
        if !is_first {
            let _ = self.send_offloaded();
        }
    }

    fn send_offloaded(&self) -> io::Result<usize> {
        self.offloaded.send(TEXT)
    }

    /// The kernel computes the checksum of a datagram that is put together of two parts, whatever
    /// the device can do (`__ip_append_data()` in [net/ipv4/ip_output.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/ip_output.c)).
    fn send_computed(&self) -> io::Result<usize> {
        let (first, rest) = TEXT.split_at(TEXT.len() / 2);
        SockRef::from(&self.computed).send_with_flags(first, MSG_MORE)?;
        self.computed.send(rest)
    }

    fn are_answered(&self) -> Answered {
        Answered {
            offloaded: is_answered(&self.offloaded),
            computed: is_answered(&self.computed),
        }
    }
}

/// Returns true if an ICMP error arrived, whichever: a firewall that rejects has seen a right
/// checksum too (`nf_send_unreach()` in [net/ipv4/netfilter/nf_reject_ipv4.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/netfilter/nf_reject_ipv4.c)).
fn is_answered(socket: &UdpSocket) -> bool {
    matches!(socket.take_error(), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(answers: impl IntoIterator<Item = (bool, bool)>) -> (usize, Option<Verdict>) {
        let (mut score, mut seconds) = (Score::default(), 0);
        for (offloaded, computed) in answers {
            seconds += 1;
            if let Some(verdict) = score.take(Answered {
                offloaded,
                computed,
            }) {
                return (seconds, Some(verdict));
            }
        }
        (seconds, None)
    }

    #[test]
    fn one_answer_to_an_offloaded_datagram_ends_the_trial() {
        assert_eq!(score([(true, false)]), (1, Some(Verdict::Arrives)));
        let five = [(false, true); 5];
        assert_eq!(
            score(five.into_iter().chain([(true, true)])),
            (6, Some(Verdict::Arrives))
        );
    }

    #[test]
    fn six_answers_to_computed_checksums_alone_are_a_loss() {
        assert_eq!(score([(false, true); 6]), (6, Some(Verdict::Lost)));
        let one_in_two = (0..).map(|second| (false, second % 2 == 1));
        assert_eq!(score(one_in_two), (12, Some(Verdict::Lost)));
    }

    #[test]
    fn a_silent_peer_shows_nothing() {
        assert_eq!(score([(false, false); 40]), (30, Some(Verdict::Unknown)));
        let five = [(false, true); 5];
        assert_eq!(
            score(five.into_iter().chain([(false, false); 40])),
            (30, Some(Verdict::Unknown))
        );
    }

    /// Loopback offloads too, and nothing breaks its checksums.
    #[test]
    fn a_closed_port_of_this_host_answers_both() {
        let peer = |round| OffloadPeer {
            address: Ipv4Addr::LOCALHOST.into(),
            public: Ipv4Addr::LOCALHOST.into(),
            round,
        };
        let (mut trials, now) = (Offloaded::default(), Instant::now());
        trials.keep(&BTreeSet::from([peer(1)]), now);
        trials.go_on(now);
        let State::Trying(requests, _) = &trials.peers[&peer(1)] else {
            panic!("{trials:?}")
        };
        let deadline = now + Duration::from_secs(10);
        let mut computed = false;
        while !computed && Instant::now() < deadline {
            computed |= is_answered(&requests.computed);
        }
        assert!(computed, "no answer to a computed checksum");
        while matches!(trials.peers[&peer(1)], State::Trying(..)) {
            trials.go_on(now);
        }
        assert!(matches!(trials.peers[&peer(1)], State::Idle(until) if until == now + PAUSE));
        assert!(Instant::now() < deadline);
        trials.keep(&BTreeSet::from([peer(2)]), now);
        assert!(
            matches!(trials.peers[&peer(2)], State::Idle(until) if until == now),
            "a new round"
        );
        assert!(trials.lost().is_empty());
    }
}
