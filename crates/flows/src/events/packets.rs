//! Packets of the ring buffer, of which those of one flow within an interval are one event.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_common::abi::{monitor::ReasonSet, reason::Reason};

use super::{
    INTERVAL,
    event::{Direction, FlowEvent, FlowEventKind, PacketOutcome},
};
use crate::monitor::Seen;

/// The flows that are remembered. Those beyond have an event for each packet, up to the rate.
pub(super) const REMEMBERED: usize = 8192;
/// SYN, FIN and RST.
const CONTROL: u8 = 0x07;

/// The outcomes that are reported: each packet once, and not the host's own traffic, nor replayed
/// packets, which the tables have.
pub(super) fn reasons() -> ReasonSet {
    Reason::ALL
        .into_iter()
        .filter(|reason| is_reported(*reason))
        .fold(ReasonSet::default(), ReasonSet::with)
}

/// Path probes, records and copies of packets that another program has reported are left out.
const fn is_reported(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::NotTunnel
            | Reason::Replayed
            | Reason::SelfSent
            | Reason::PathSeen
            | Reason::PathDiffers
            | Reason::PathFragmented
            | Reason::PathHeld
            | Reason::ClassChanged
            | Reason::NotFollowed
            | Reason::Learned
            | Reason::Decapsulated
    )
}

/// The packets that are one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    direction: Direction,
    /// The outcome, of a drop.
    dropped: Option<PacketOutcome>,
    protocol: u8,
    control: u8,
    addresses: [IpAddr; 2],
    ports: Option<[u16; 2]>,
    icmp: Option<[u8; 2]>,
}

/// The flows of the last interval.
#[derive(Debug, Default)]
pub(super) struct PacketEvents {
    seen: HashMap<EventKey, Instant>,
    cleared: Option<Instant>,
}

impl PacketEvents {
    /// The event of an item of the ring buffer, unless the interval has one for its flow.
    pub(super) fn observe(
        &mut self,
        item: &[u8],
        epoch: Duration,
        now: Instant,
    ) -> Option<FlowEvent> {
        let event = match Seen::read(item, 0) {
            Some(seen) => FlowEvent::of_packet(&seen, epoch),
            None => FlowEvent::of_kernel_drop(item, epoch),
        };
        self.admit(event?, now)
    }

    /// The event, unless the interval has one for its flow.
    pub(super) fn admit(&mut self, mut event: FlowEvent, now: Instant) -> Option<FlowEvent> {
        self.clear_old(now);
        let dropped = event.outcome.filter(|outcome| outcome.is_drop());
        let key = EventKey {
            direction: event.direction,
            dropped,
            protocol: event.protocol,
            control: event.tcp_flags.unwrap_or_default() & CONTROL,
            addresses: event.addresses,
            ports: event.ports,
            icmp: event.icmp,
        };
        let has_room = self.seen.len() < REMEMBERED;
        match self.seen.get_mut(&key) {
            Some(at) if now.saturating_duration_since(*at) < INTERVAL => return None,
            Some(at) => {
                *at = now;
                if event.kind == FlowEventKind::New {
                    event.kind = FlowEventKind::Active;
                }
            }
            None if has_room => drop(self.seen.insert(key, now)),
            None => {}
        }
        Some(event)
    }

    /// Removes flows that were not seen for two intervals, once in each.
    fn clear_old(&mut self, now: Instant) {
        let cleared = *self.cleared.get_or_insert(now);
        if now.saturating_duration_since(cleared) >= INTERVAL {
            self.cleared = Some(now);
            self.seen
                .retain(|_, at| now.saturating_duration_since(*at) < 2 * INTERVAL);
        }
    }
}
