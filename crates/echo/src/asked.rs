//! The answers of one peer, at each address at which it is asked. Pure.

use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_status::{EchoState, PeerEchoStatus};

use super::{history::History, target::EchoTarget};

/// Answers of a node that was silent, after which an address of its pods need not come back: a node
/// that restarted may have no pods.
const RETURNED: u32 = 3;

/// The answers of a peer.
#[derive(Clone, Debug)]
pub(super) struct AskedPeer {
    target: EchoTarget,
    /// At the address that shows if packets of pods arrive.
    history: History,
    /// At the public address, where that is another one.
    node: History,
    /// Answers of the node since it was silent; `None` if it was not.
    returned: Option<u32>,
}

impl AskedPeer {
    pub(super) fn new(target: EchoTarget) -> Self {
        Self {
            target,
            history: History::default(),
            node: History::default(),
            returned: None,
        }
    }

    pub(super) const fn target(&self) -> EchoTarget {
        self.target
    }

    fn at(&mut self, address: IpAddr) -> &mut History {
        if self.target.node == Some(address) {
            &mut self.node
        } else {
            &mut self.history
        }
    }

    /// A request is sent. Returns true if the one before is lost.
    pub(super) fn ask(&mut self, to: IpAddr, nonce: u64, now: Instant) -> bool {
        self.at(to).ask(nonce, now)
    }

    /// The kernel refused to send the request.
    pub(super) fn refuse(&mut self, to: IpAddr, error: &io::Error) {
        self.at(to).refuse(error);
    }

    /// A reply arrived. Returns the time since its request if that waits.
    pub(super) fn answer(&mut self, from: IpAddr, nonce: u64, now: Instant) -> Option<Duration> {
        let was_silent = self.node.state() == EchoState::Silent;
        let round_trip = self.at(from).answer(nonce, now)?;
        if self.target.node == Some(from) {
            self.count_return(was_silent);
        } else {
            self.returned = None;
        }
        Some(round_trip)
    }

    fn count_return(&mut self, was_silent: bool) {
        let before = if was_silent { Some(0) } else { self.returned };
        self.returned = before.map(|answers| answers + 1);
        if self.returned.is_some_and(|answers| answers >= RETURNED) {
            self.returned = None;
            if self.history.state() == EchoState::Silent {
                self.history = History::default();
            }
        }
    }

    /// The history that counts: that of the public address until the other one has answered,
    /// because nothing may have the other one.
    fn shown(&self) -> (IpAddr, &History) {
        match (self.target.node, self.history.state()) {
            (Some(node), EchoState::Unknown | EchoState::Never) => (node, &self.node),
            _ => (self.target.address, &self.history),
        }
    }

    pub(super) fn pods_answer(&self) -> bool {
        self.history.state() == EchoState::Answering
    }

    pub(super) fn state(&self) -> EchoState {
        self.shown().1.state()
    }

    pub(super) fn status(&self) -> PeerEchoStatus {
        let (address, history) = self.shown();
        history.status(address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "10.244.9.1";
    const NODE: &str = "192.0.2.9";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn asked() -> AskedPeer {
        AskedPeer::new(EchoTarget {
            address: ip(PODS),
            node: Some(ip(NODE)),
        })
    }

    /// Asks at both addresses, `times` times; these answer.
    fn rounds(peer: &mut AskedPeer, times: u64, answering: &[&str]) {
        for _ in 0..times {
            for at in [PODS, NODE] {
                peer.ask(ip(at), 7, Instant::now());
                if answering.contains(&at) {
                    peer.answer(ip(at), 7, Instant::now())
                        .expect("a request waits");
                }
            }
        }
    }

    fn shown(peer: &AskedPeer) -> (String, EchoState) {
        let status = peer.status();
        assert_eq!(status.state, peer.state());
        (status.address, status.state)
    }

    #[test]
    fn pods_that_never_answered_leave_the_answers_of_the_node() {
        let mut peer = asked();
        rounds(&mut peer, 10, &[NODE]);
        assert_eq!(shown(&peer), (NODE.to_owned(), EchoState::Answering));
        rounds(&mut peer, 4, &[]);
        assert_eq!(shown(&peer), (NODE.to_owned(), EchoState::Silent));
        rounds(&mut peer, 1, &[PODS]);
        assert_eq!(
            shown(&peer),
            (PODS.to_owned(), EchoState::Answering),
            "a firewall may drop ICMP for the node"
        );
    }

    #[test]
    fn pods_that_answered_and_do_not_any_more_are_silent_although_the_node_answers() {
        let mut peer = asked();
        rounds(&mut peer, 2, &[PODS, NODE]);
        assert_eq!(shown(&peer), (PODS.to_owned(), EchoState::Answering));
        rounds(&mut peer, 9, &[NODE]);
        assert_eq!(shown(&peer), (PODS.to_owned(), EchoState::Silent));
        rounds(&mut peer, 1, &[PODS, NODE]);
        assert_eq!(shown(&peer), (PODS.to_owned(), EchoState::Answering));
    }

    #[test]
    fn a_node_that_comes_back_may_have_no_pods() {
        let mut peer = asked();
        rounds(&mut peer, 2, &[PODS, NODE]);
        rounds(&mut peer, 4, &[]);
        assert_eq!(shown(&peer), (PODS.to_owned(), EchoState::Silent));
        rounds(&mut peer, 2, &[NODE]);
        assert_eq!(
            shown(&peer),
            (PODS.to_owned(), EchoState::Silent),
            "they have some rounds to come back"
        );
        rounds(&mut peer, 1, &[NODE]);
        assert_eq!(shown(&peer), (NODE.to_owned(), EchoState::Answering));
    }

    #[test]
    fn a_peer_with_one_address_is_asked_there() {
        let mut peer = AskedPeer::new(EchoTarget {
            address: ip(NODE),
            node: None,
        });
        for _ in 0..4 {
            peer.ask(ip(NODE), 7, Instant::now());
        }
        assert_eq!(shown(&peer), (NODE.to_owned(), EchoState::Never));
    }
}
