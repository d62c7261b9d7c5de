//! The outcomes of the requests to one peer. Pure but for the wall clock of its status.

use std::{
    io,
    time::{Duration, Instant},
};

use flannel_host::clock::BootTime;
use flannel_status::{EchoState, PeerEchoStatus};

/// Requests whose outcomes are kept.
const KEPT: u32 = u32::BITS;
/// The number of requests without a reply after which a peer is silent.
const SILENT_AFTER: u32 = 3;

/// The last outcomes.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    waiting: Option<Request>,
    /// The newest in the lowest bit; 1 for lost.
    lost: u32,
    /// The number of outcomes in it.
    known: u32,
    round_trip: Option<Duration>,
    last_reply: Option<BootTime>,
    /// The error with which the last request could not be sent, if it was not.
    refusal: Option<Refusal>,
}

/// A request without an outcome.
#[derive(Clone, Copy, Debug)]
struct Request {
    nonce: u64,
    sent: Instant,
}

/// An error without what it may own, because there are many histories.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Errno(i32),
    Kind(io::ErrorKind),
}

impl Refusal {
    fn error(self) -> io::Error {
        match self {
            Self::Errno(errno) => io::Error::from_raw_os_error(errno),
            Self::Kind(kind) => kind.into(),
        }
    }
}

impl History {
    /// A request is sent. One that still waits is lost; returns true if there is one.
    pub(super) fn ask(&mut self, nonce: u64, now: Instant) -> bool {
        let is_lost = self.waiting.replace(Request { nonce, sent: now }).is_some();
        if is_lost {
            self.push(1);
        }
        self.refusal = None;
        is_lost
    }

    /// The kernel refused to send the request, which is a lost one.
    pub(super) fn refuse(&mut self, error: &io::Error) {
        self.waiting = None;
        self.refusal = Some(
            error
                .raw_os_error()
                .map_or_else(|| Refusal::Kind(error.kind()), Refusal::Errno),
        );
        self.push(1);
    }

    /// A reply arrived. Returns the time since its request if that is the one that waits.
    pub(super) fn answer(&mut self, nonce: u64, now: Instant) -> Option<Duration> {
        let request = self.waiting.take_if(|request| request.nonce == nonce)?;
        let round_trip = now.duration_since(request.sent);
        self.push(0);
        (self.round_trip, self.last_reply) = (Some(round_trip), Some(BootTime::now()));
        Some(round_trip)
    }

    fn push(&mut self, lost: u32) {
        self.lost = self.lost << 1 | lost;
        self.known = (self.known + 1).min(KEPT);
    }

    pub(super) fn state(&self) -> EchoState {
        match (self.lost.trailing_ones() >= SILENT_AFTER, self.last_reply) {
            (true, Some(_)) => EchoState::Silent,
            (true, None) => EchoState::Never,
            (false, Some(_)) => EchoState::Answering,
            (false, None) => EchoState::Unknown,
        }
    }

    pub(super) fn status(&self, address: String) -> PeerEchoStatus {
        PeerEchoStatus {
            address,
            state: self.state(),
            round_trip_us: self
                .round_trip
                .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            lost: self.lost.count_ones(),
            of: self.known,
            last_reply: self.last_reply.map(BootTime::unix),
            error: self.refusal.map(|refusal| refusal.error().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::libc::ENETUNREACH;

    use super::*;

    fn lose(history: &mut History, times: u64) {
        for _ in 0..times {
            history.ask(0, Instant::now());
        }
    }

    #[test]
    fn a_peer_is_silent_after_three_lost_requests_and_answers_with_the_next_reply() {
        let (mut history, start) = (History::default(), Instant::now());
        assert_eq!(history.state(), EchoState::Unknown);
        assert!(!history.ask(1, start), "nothing waited");
        assert_eq!(
            history.answer(1, start + Duration::from_millis(3)),
            Some(Duration::from_millis(3))
        );
        assert_eq!(history.state(), EchoState::Answering);
        lose(&mut history, 3);
        assert_eq!(
            history.state(),
            EchoState::Answering,
            "two are lost, the third still waits"
        );
        assert!(history.ask(2, start), "the third is lost");
        assert_eq!(history.state(), EchoState::Silent);
        assert!(history.answer(2, start).is_some());
        assert_eq!(history.state(), EchoState::Answering);
        let status = history.status("10.5.9.0".to_owned());
        assert_eq!((status.lost, status.of), (3, 5));
    }

    #[test]
    fn a_peer_that_was_dead_from_the_start_never_answered() {
        let mut history = History::default();
        lose(&mut history, 3);
        assert_eq!(history.state(), EchoState::Unknown);
        lose(&mut history, 1);
        assert_eq!(history.state(), EchoState::Never);
        assert_eq!(history.status(String::new()).last_reply, None);
    }

    #[test]
    fn only_the_reply_to_the_last_request_counts() {
        let (mut history, now) = (History::default(), Instant::now());
        history.ask(1, now);
        assert_eq!(history.answer(2, now), None, "a guess");
        assert_eq!(history.answer(1, now), Some(Duration::ZERO));
        assert_eq!(
            history.answer(1, now),
            None,
            "a second reply to one request"
        );
        history.ask(3, now);
        history.ask(4, now);
        assert_eq!(history.answer(3, now), None, "a late one");
    }

    #[test]
    fn what_the_kernel_refuses_to_send_is_lost_and_says_why() {
        let mut history = History::default();
        for _ in 0..3 {
            history.ask(0, Instant::now());
            history.refuse(&io::Error::from_raw_os_error(ENETUNREACH));
        }
        let status = history.status(String::new());
        assert_eq!(
            (status.state, status.lost, status.of),
            (EchoState::Never, 3, 3)
        );
        assert!(
            status
                .error
                .is_some_and(|error| error.starts_with("Network is unreachable"))
        );
    }

    #[test]
    fn the_last_32_outcomes_are_kept() {
        let mut history = History::default();
        lose(&mut history, 100);
        let status = history.status(String::new());
        assert_eq!((status.lost, status.of), (32, 32));
    }
}
