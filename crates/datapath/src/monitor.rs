//! The monitor's side of `flannel_common::abi::monitor`: the settings for the programs, and the
//! events they report.
//!
//! Invariants: one monitor at a time, by a lock on the directory of the pinned maps that dies with
//! the process, because a ring buffer gives each event to one reader; settings change only while
//! the lease is zero.

use std::{fs::File, time::Duration};

use aya::maps::{Array, MapData, PerCpuArray, RingBuf, ring_buf::RingBufItem};
use flannel_common::abi::{
    maps::{EVENTS, MISSED, MONITOR, MONITOR_DEADLINE, ONLY},
    monitor::{Filter, HEADERS_LEN, LEASE_NS, Missed, Monitor, Pace},
};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use crate::{DatapathError, PinRoot, kernel::clock, maps::pinned_map::from_pin};

/// The maps of the one monitor. Dropped, it ends what it began.
pub struct MonitorMaps {
    settings: Array<MapData, Monitor>,
    lease: Array<MapData, u64>,
    missed: PerCpuArray<MapData, Missed>,
    events: RingBuf<MapData>,
    /// The events that were missed before this monitor started.
    missed_before: Missed,
    renewals: Renewals,
    events_id: u32,
    _lock: Flock<File>,
}

/// The settings of a monitor.
#[derive(Clone, Copy, Debug)]
pub struct MonitorSettings {
    /// The packets to report.
    pub filter: Filter,
    /// The highest number of events per second.
    pub rate: u32,
    /// Bytes to capture of each packet; at least `HEADERS_LEN` are.
    pub snaplen: u32,
}

impl MonitorMaps {
    /// Takes the place of the one monitor, and opens the pins.
    pub fn claim(pins: &PinRoot) -> Result<Self, DatapathError> {
        let lease = Array::try_from(from_pin(pins, MONITOR_DEADLINE)?)
            .map_err(DatapathError::map(MONITOR_DEADLINE))?;
        let lock = lock(pins)?;
        let mut maps = Self {
            settings: Array::try_from(from_pin(pins, MONITOR)?)
                .map_err(DatapathError::map(MONITOR))?,
            lease,
            missed: PerCpuArray::try_from(from_pin(pins, MISSED)?)
                .map_err(DatapathError::map(MISSED))?,
            events: RingBuf::try_from(from_pin(pins, EVENTS)?)
                .map_err(DatapathError::map(EVENTS))?,
            missed_before: Missed::default(),
            renewals: Renewals::default(),
            events_id: events_id(pins)?,
            _lock: lock,
        };
        maps.end()?;
        while maps.next_event().is_some() {}
        Ok(maps)
    }

    /// Makes the programs report packets that match, as long as [`Self::renew`] is called in time.
    pub fn start(&mut self, wanted: &MonitorSettings) -> Result<(), DatapathError> {
        self.end()?;
        self.missed_before = self.all_missed()?;
        let settings = Monitor {
            filter: wanted.filter,
            pace: Pace::per_second(wanted.rate),
            capture: wanted.snaplen.max(HEADERS_LEN),
            reserved: 0,
        };
        self.settings
            .set(ONLY, settings, 0)
            .map_err(DatapathError::map(MONITOR))?;
        self.renew()
    }

    /// The monitor is alive.
    pub fn renew(&mut self) -> Result<(), DatapathError> {
        let now = clock::now_ns();
        self.renewals.renew(now);
        self.lease
            .set(ONLY, now + LEASE_NS, 0)
            .map_err(DatapathError::map(MONITOR_DEADLINE))
    }

    /// Returns for how long the programs have reported nothing, because no renewal came in time:
    /// the process stood still, or what it writes to did not take it.
    pub fn paused(&self) -> Duration {
        self.renewals.paused(clock::now_ns())
    }

    /// The next event with the bytes of its packet, if there is one.
    pub fn next_event(&mut self) -> Option<RingBufItem<'_>> {
        self.events.next()
    }

    /// Returns the number of matching packets that were not reported since the start.
    pub fn missed(&self) -> Result<Missed, DatapathError> {
        let Missed { limited, lost } = self.all_missed()?;
        let before = self.missed_before;
        Ok(Missed {
            limited: limited.wrapping_sub(before.limited),
            lost: lost.wrapping_sub(before.lost),
        })
    }

    /// Returns true if the programs that run now report elsewhere: an agent created its maps again,
    /// or they were removed.
    pub fn are_replaced(&self, pins: &PinRoot) -> bool {
        events_id(pins).ok() != Some(self.events_id)
    }

    fn all_missed(&self) -> Result<Missed, DatapathError> {
        let values = self
            .missed
            .get(&ONLY, 0)
            .map_err(DatapathError::map(MISSED))?;
        Ok(values.iter().fold(Missed::default(), |sum, cpu| Missed {
            limited: sum.limited.wrapping_add(cpu.limited),
            lost: sum.lost.wrapping_add(cpu.lost),
        }))
    }

    fn end(&mut self) -> Result<(), DatapathError> {
        self.lease
            .set(ONLY, 0, 0)
            .map_err(DatapathError::map(MONITOR_DEADLINE))
    }
}

impl Drop for MonitorMaps {
    fn drop(&mut self) {
        // Without it the lease runs out.
        let _ = self.end();
    }
}

/// The renewals of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Renewals {
    last_ns: Option<u64>,
    /// The time between the ends of leases and the renewals after them.
    paused_ns: u64,
}

impl Renewals {
    fn renew(&mut self, now_ns: u64) {
        self.paused_ns += self.overdue(now_ns);
        self.last_ns = Some(now_ns);
    }

    fn paused(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.paused_ns + self.overdue(now_ns))
    }

    /// The time since the end of the lease.
    fn overdue(&self, now_ns: u64) -> u64 {
        self.last_ns
            .map_or(0, |last| now_ns.saturating_sub(last + LEASE_NS))
    }
}

fn lock(pins: &PinRoot) -> Result<Flock<File>, DatapathError> {
    let path = pins.maps();
    let failed = |source| DatapathError::PinDirectory {
        path: path.clone(),
        source,
    };
    let directory = File::open(&path).map_err(failed)?;
    match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => Err(DatapathError::MonitorTaken {
            root: pins.root().to_owned(),
        }),
        Err((_, errno)) => Err(failed(errno.into())),
    }
}

fn events_id(pins: &PinRoot) -> Result<u32, DatapathError> {
    let path = pins.map(EVENTS);
    let id = MapData::from_pin(&path)
        .and_then(|map| map.info())
        .map(|info| info.id());
    id.map_err(|source| DatapathError::OpenPin { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_a_lease_is_added_up() {
        let mut renewals = Renewals::default();
        assert_eq!(renewals.paused(LEASE_NS * 9), Duration::ZERO, "not begun");
        renewals.renew(LEASE_NS * 10);
        renewals.renew(LEASE_NS * 11);
        assert_eq!(renewals.paused(LEASE_NS * 12), Duration::ZERO, "in time");
        renewals.renew(LEASE_NS * 14);
        assert_eq!(
            renewals.paused(LEASE_NS * 16),
            Duration::from_nanos(LEASE_NS * 3),
            "two before the last renewal, and one since its lease has ended"
        );
    }
}
