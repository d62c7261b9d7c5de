//! When each peer is asked: in rounds, each peer once a round, evenly over its time. Pure.

use std::time::{Duration, Instant};

use super::target::EchoTarget;

/// Requests a second at most, of all peers together. Each may need an entry of the kernel's
/// neighbour table, whose entries the kernel can only free when they are five seconds old
/// (`neigh_forced_gc()` in [net/core/neighbour.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/neighbour.c)).
pub(super) const RATE: usize = 50;

/// One round.
#[derive(Debug)]
pub(super) struct Round {
    interval: Duration,
    begun: Option<Instant>,
    targets: Vec<EchoTarget>,
    /// To all of them.
    requests: usize,
    next: usize,
}

impl Round {
    /// Before the first. A round takes `interval`, or longer if there are too many peers for that.
    pub(super) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            begun: None,
            targets: Vec::new(),
            requests: 0,
            next: 0,
        }
    }

    /// Returns true if all peers were asked and the time of the round is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_late = |begun: Instant| now.duration_since(begun) >= self.duration();
        self.next == self.targets.len()
            && (self.targets.is_empty() || self.begun.is_none_or(is_late))
    }

    /// Begins the next round, with these peers.
    pub(super) fn begin(&mut self, targets: Vec<EchoTarget>, now: Instant) {
        self.requests = targets
            .iter()
            .map(|target| target.addresses().count())
            .sum();
        (self.targets, self.next, self.begun) = (targets, 0, Some(now));
    }

    /// The peers to be asked in the next second.
    pub(super) fn take(&mut self) -> &[EchoTarget] {
        let seconds = usize::try_from(self.duration().as_secs())
            .unwrap_or(usize::MAX)
            .max(1);
        let share = self.targets.len().div_ceil(seconds);
        let from = self.next;
        self.next = (from + share).min(self.targets.len());
        &self.targets[from..self.next]
    }

    fn duration(&self) -> Duration {
        let least = u64::try_from(self.requests.div_ceil(RATE)).unwrap_or(u64::MAX);
        self.interval.max(Duration::from_secs(least))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn peers(count: usize, has_node: bool) -> Vec<EchoTarget> {
        let address =
            |number| IpAddr::from(Ipv4Addr::from_bits(u32::try_from(number).expect("few")));
        let node = |number| has_node.then(|| address(number + 10_000));
        (0..count)
            .map(|number| EchoTarget {
                address: address(number),
                node: node(number),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn each_peer_is_asked_once_a_round_and_none_too_soon(
            count in 0_usize..2000,
            interval in 1_u64..60,
            has_node: bool,
        ) {
            let requests = count * if has_node { 2 } else { 1 };
            let (mut round, start) = (Round::new(Duration::from_secs(interval)), Instant::now());
            prop_assert!(round.is_over(start));
            round.begin(peers(count, has_node), start);
            let mut asked = Vec::new();
            let mut second = 0;
            while !round.is_over(start + Duration::from_secs(second)) {
                let now = round.take();
                let sent: usize = now.iter().map(|target| target.addresses().count()).sum();
                prop_assert!(sent <= RATE, "{sent} in a second");
                asked.extend_from_slice(now);
                second += 1;
            }
            prop_assert_eq!(asked, peers(count, has_node));
            let least = interval.max(u64::try_from(requests.div_ceil(RATE)).expect("few"));
            prop_assert_eq!(second, if count == 0 { 0 } else { least });
        }
    }
}
