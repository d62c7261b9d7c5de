//! The programs' counters, read from the pins. They are available from the first moment, whatever
//! state the agent is in, and continue the counts of the previous agent.

use std::time::Duration;

use aya::{maps::MapInfo, programs::ProgramInfo};
use flannel_common::abi::{
    maps::{FLOWS, FLOWS6},
    program::{COUNT_POLLS, Program},
    reason::{Lookup, Reason, Verdict},
    stats::Counter,
};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::{ModeMap, StatsMap},
};
use flannel_host::family::Family;

use super::{
    catalogue as metric, node,
    page::{Page, number},
};

/// The flow tables by family.
pub(super) const TABLES: [(Family, &str); 2] = [(Family::V4, FLOWS), (Family::V6, FLOWS6)];

/// Writes the metrics of the pinned maps that can be read.
pub(super) fn write(page: &mut Page, pins: &PinRoot) {
    let counts = Counted::read(pins);
    if let Err(error) = &counts
        && !matches!(error, DatapathError::NotPinned { .. })
    {
        tracing::debug!(%error, "the metrics lack what the programs counted");
    }
    page.boolean(metric::DATAPATH_READABLE, counts.is_ok());
    if let Ok(counts) = counts {
        counts.write(page);
    }
    runs(page, &Run::read(pins));
}

/// The content of the maps.
#[derive(Debug)]
pub(super) struct Counted {
    /// The counters that are not zero.
    pub(super) stats: Vec<(Program, Reason, Counter)>,
    pub(super) generation: u32,
    /// The capacity of the table of each enabled family, in flows.
    pub(super) capacities: Vec<(Family, u32)>,
}

impl Counted {
    fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        let capacities = TABLES
            .iter()
            .filter_map(|(family, name)| Some((*family, capacity(pins, name)?)));
        Ok(Self {
            stats: stats(&StatsMap::open(pins)?)?,
            generation: ModeMap::open(pins)?.get()?.generation(),
            capacities: capacities.collect(),
        })
    }

    pub(super) fn write(&self, page: &mut Page) {
        let labels = |program: Program, reason: Reason| {
            [program.name(), reason.name(), reason.verdict().name()]
        };
        let samples = |value: fn(&Counter) -> u64| {
            self.stats.iter().map(move |(program, reason, counter)| {
                (labels(*program, *reason), number(value(counter)))
            })
        };
        page.list(metric::PACKETS, samples(|counter| counter.packets));
        page.list(metric::BYTES, samples(|counter| counter.bytes));
        let drops = Reason::ALL
            .into_iter()
            .filter(|reason| reason.verdict() == Verdict::Drop);
        page.list(
            metric::DROPS,
            drops.map(|reason| ([reason.name()], self.packets(reason))),
        );
        // The others that look flows up do so for packets these two have seen before.
        let lookups = [Program::FromPod, Program::FromUnderlay]
            .into_iter()
            .flat_map(|program| {
                [("hit", Lookup::Hit), ("miss", Lookup::Miss)].map(|(result, lookup)| {
                    ([program.name(), result], self.lookups(program, lookup))
                })
            });
        page.list(metric::FLOW_LOOKUPS, lookups);
        page.value(metric::FLOW_GENERATIONS, f64::from(self.generation));
        let capacities = self
            .capacities
            .iter()
            .map(|(family, flows)| ([node::family(*family)], f64::from(*flows)));
        page.list(metric::FLOW_CAPACITY, capacities);
    }

    /// The packets of a reason, of all programs.
    fn packets(&self, reason: Reason) -> f64 {
        let of = self.stats.iter().filter(|(_, of, _)| *of == reason);
        number(of.map(|(_, _, counter)| counter.packets).sum())
    }

    fn lookups(&self, program: Program, result: Lookup) -> f64 {
        let of = self
            .stats
            .iter()
            .filter(|(by, reason, _)| *by == program && reason.lookup() == result);
        number(of.map(|(_, _, counter)| counter.packets).sum())
    }
}

fn stats(map: &StatsMap) -> Result<Vec<(Program, Reason, Counter)>, DatapathError> {
    let mut counted = Vec::new();
    for program in Program::ALL {
        for reason in Reason::ALL {
            let counter = map.get(program, reason)?;
            if counter.packets != 0 {
                counted.push((program, reason, counter));
            }
        }
    }
    Ok(counted)
}

/// Returns the capacity of a table in flows; `None` if its family is off.
pub(super) fn capacity(pins: &PinRoot, name: &str) -> Option<u32> {
    MapInfo::from_pin(pins.map(name))
        .ok()
        .map(|info| info.max_entries())
        .filter(|flows| *flows > 1)
}

/// The kernel's run statistics of one program.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) program: &'static str,
    pub(super) count: u64,
    pub(super) time: Duration,
}

impl Run {
    /// Reads those of each program that has any. The kernel collects them only while
    /// [`kernel.bpf_stats_enabled`](https://docs.kernel.org/admin-guide/sysctl/kernel.html) is 1.
    fn read(pins: &PinRoot) -> Vec<Self> {
        let pinned = Program::ALL.map(|program| (program.name(), pins.program(program)));
        let pinned = pinned
            .into_iter()
            .chain([(COUNT_POLLS, pins.poll_counter())]);
        let run = |(program, path)| {
            let info = ProgramInfo::from_pin(path).ok()?;
            (info.run_count() > 0).then(|| Self {
                program,
                count: info.run_count(),
                time: info.run_time(),
            })
        };
        pinned.filter_map(run).collect()
    }
}

pub(super) fn runs(page: &mut Page, runs: &[Run]) {
    page.list(
        metric::PROGRAM_RUNS,
        runs.iter().map(|run| ([run.program], number(run.count))),
    );
    page.list(
        metric::PROGRAM_SECONDS,
        runs.iter()
            .map(|run| ([run.program], run.time.as_secs_f64())),
    );
}
