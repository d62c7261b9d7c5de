//! Both sources of events, read by turns.

use std::time::{Duration, Instant, SystemTime};

use flannel_common::abi::monitor::{Filter, Missed, Network};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::kernel_drops::DropReporter,
    monitor::{MonitorMaps, MonitorSettings},
};

use super::{
    FlowEvent,
    packets::{self, PacketEvents},
    table::TableEvents,
};
use crate::rows;

/// Between two renewals of the monitor's lease, two looks if the maps are still those of the
/// programs, and two attempts to become the one monitor.
const RENEWAL: Duration = Duration::from_millis(500);
/// Packets that are taken in one turn.
const AT_ONCE: usize = 4096;

/// The options of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// Packets a second that the programs report, at most.
    pub rate: u32,
    /// The time between two readings of the tables.
    pub table_period: Duration,
    /// True for events of the ends of flows.
    pub with_ends: bool,
}

/// The events of one turn.
#[derive(Debug, Default)]
pub struct Polled {
    /// The events, in the order in which they were found.
    pub events: Vec<FlowEvent>,
    /// Packets that the programs did not report: they came faster than the rate, or found the
    /// buffer full.
    pub missed: u64,
    /// For how long the programs did not report packets, because the source was not read.
    pub paused: Duration,
}

/// Reads both sources.
pub struct FlowSource {
    pins: PinRoot,
    options: SourceOptions,
    monitor: Option<MonitorMaps>,
    drops: Option<DropReporter>,
    renewed: Option<Instant>,
    missed: u64,
    paused: Duration,
    packets: PacketEvents,
    table: TableEvents,
    table_read: Option<Instant>,
    /// The reason why packets are not seen, if there is one.
    problem: Option<DatapathError>,
    /// The reason why drops of the kernel are not seen, if there is one.
    drop_problem: Option<DatapathError>,
}

impl FlowSource {
    /// A source that has read nothing yet.
    pub fn new(pins: PinRoot, options: SourceOptions) -> Self {
        Self {
            pins,
            options,
            monitor: None,
            drops: None,
            renewed: None,
            missed: 0,
            paused: Duration::ZERO,
            packets: PacketEvents::default(),
            table: TableEvents::new(options.with_ends),
            table_read: None,
            problem: None,
            drop_problem: None,
        }
    }

    /// The reason why packets are not seen, such as another monitor; `None` while they are.
    pub const fn problem(&self) -> Option<&DatapathError> {
        self.problem.as_ref()
    }

    /// The reason why packets that the kernel drops are not seen, such as a kernel that does not
    /// say why it drops them; `None` while they are, or while no packets are seen.
    pub const fn drop_problem(&self) -> Option<&DatapathError> {
        self.drop_problem.as_ref()
    }

    /// Reads what has happened since the last turn. An error is one of the tables; the turn after
    /// it tries again.
    pub fn poll(&mut self) -> Result<Polled, DatapathError> {
        let mut polled = Polled::default();
        let now = Instant::now();
        self.keep_monitor(now);
        self.read_packets(&mut polled, now);
        if self
            .table_read
            .is_none_or(|read| now.saturating_duration_since(read) >= self.options.table_period)
        {
            self.table_read = Some(now);
            self.read_table(&mut polled, now)?;
        }
        Ok(polled)
    }

    /// Becomes the one monitor of the node, and stays it.
    fn keep_monitor(&mut self, now: Instant) {
        if self
            .renewed
            .is_some_and(|renewed| now.saturating_duration_since(renewed) < RENEWAL)
        {
            return;
        }
        self.renewed = Some(now);
        if self
            .monitor
            .as_ref()
            .is_some_and(|monitor| monitor.are_replaced(&self.pins))
        {
            self.monitor = None;
        }
        let kept = match &mut self.monitor {
            Some(monitor) => monitor.renew(),
            None => self.claim(),
        };
        self.problem = kept.err();
        if self.problem.is_some() {
            (self.monitor, self.drops, self.drop_problem) = (None, None, None);
        }
    }

    fn claim(&mut self) -> Result<(), DatapathError> {
        let mut monitor = MonitorMaps::claim(&self.pins)?;
        let filter = Filter {
            reasons: packets::reasons(),
            programs: u32::MAX,
            sample: 1,
            source: Network::default(),
            destination: Network::default(),
        };
        monitor.start(&MonitorSettings {
            filter,
            rate: self.options.rate,
            snaplen: 0,
        })?;
        (self.missed, self.paused) = (0, Duration::ZERO);
        self.monitor = Some(monitor);
        (self.drops, self.drop_problem) = match DropReporter::attach(&self.pins) {
            Ok(drops) => (Some(drops), None),
            Err(error) => (None, Some(error)),
        };
        Ok(())
    }

    fn read_packets(&mut self, polled: &mut Polled, now: Instant) {
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        let epoch = clock::monotonic_epoch();
        for _ in 0..AT_ONCE {
            let Some(item) = monitor.next_event() else {
                break;
            };
            polled
                .events
                .extend(self.packets.observe(&item, epoch, now));
        }
        if let Ok(Missed { limited, lost }) = monitor.missed() {
            let missed = limited.wrapping_add(lost);
            polled.missed = missed.wrapping_sub(self.missed);
            self.missed = missed;
        }
        let paused = monitor.paused();
        polled.paused = paused.saturating_sub(self.paused);
        self.paused = paused;
    }

    fn read_table(&mut self, polled: &mut Polled, now: Instant) -> Result<(), DatapathError> {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.table.begin();
        let table = &mut self.table;
        rows::visit(&self.pins, |row| {
            polled.events.extend(table.observe(row, now, wall));
        })?;
        polled.events.extend(self.table.finish(wall));
        Ok(())
    }
}
