//! The number of flows in the tables. The kernel keeps no such number, so a separate thread counts
//! them: only in mode `fast`, at most once a minute, and only if metrics were requested since the
//! last count. A request gets the last count and never waits for one.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use aya::Pod;
use flannel_common::{
    abi::tick::{self, Tick},
    flow::Flow,
    flow::flow_key::{Address, FlowKey},
};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::flows::FlowMap,
    maps::{ConfigMap, ModeMap},
};
use flannel_host::family::Family;

use super::{
    catalogue as metric, datapath, node,
    page::{Page, number},
};

/// Between counts.
const PERIOD: Duration = Duration::from_mins(1);
/// For one table. What was not seen by then is not counted, and the count not shown.
const PATIENCE: Duration = Duration::from_secs(5);

/// The flows of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) usable: u64,
    pub(super) stale: u64,
}

/// The last count.
#[derive(Debug)]
struct Count {
    begun: Instant,
    at: SystemTime,
    tables: Vec<(Family, Tally)>,
}

/// Counts now and then.
#[derive(Debug, Default)]
pub(super) struct FlowCount {
    last: Mutex<Option<Count>>,
    counting: AtomicBool,
}

impl FlowCount {
    /// Writes the last count, if there is one.
    pub(super) fn write(&self, page: &mut Page) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Count { at, tables, .. }) = &*last else {
            return;
        };
        let states = |(family, tally): &(Family, Tally)| {
            let family = node::family(*family);
            [
                ([family, "usable"], number(tally.usable)),
                ([family, "stale"], number(tally.stale)),
            ]
        };
        page.list(metric::FLOWS, tables.iter().flat_map(states));
        let at = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        page.value(metric::FLOWS_COUNTED, at.as_secs_f64().floor());
    }

    /// Returns true if a count is due. The caller then has to count; others get false until it is
    /// done.
    pub(super) fn is_due(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last
            .as_ref()
            .is_none_or(|count| count.begun.elapsed() >= PERIOD);
        due && !self.counting.swap(true, Ordering::Relaxed)
    }

    /// Counts.
    pub(super) fn count(&self, pins: &PinRoot) {
        let (begun, at) = (Instant::now(), SystemTime::now());
        let tables = tables(pins).unwrap_or_else(|error| {
            tracing::debug!(%error, "flows are not counted");
            Vec::new()
        });
        self.keep(begun, at, tables);
    }

    pub(super) fn keep(&self, begun: Instant, at: SystemTime, tables: Vec<(Family, Tally)>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Count { begun, at, tables });
        self.counting.store(false, Ordering::Relaxed);
    }

    /// There are none in use.
    pub(super) fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn tables(pins: &PinRoot) -> Result<Vec<(Family, Tally)>, DatapathError> {
    let generation = ModeMap::open(pins)?.get()?.generation();
    let confirmed = ConfigMap::open(pins)?.get()?.confirmed;
    let mut tables = Vec::new();
    for (family, name) in datapath::TABLES {
        let Some(capacity) = datapath::capacity(pins, name) else {
            continue;
        };
        let tally = match family {
            Family::V4 => tally::<[u32; 1]>(pins, name, capacity, generation, confirmed)?,
            Family::V6 => tally::<[u32; 4]>(pins, name, capacity, generation, confirmed)?,
        };
        tables.extend(tally.map(|tally| (family, tally)));
    }
    Ok(tables)
}

/// Counts the flows of a table; `None` if that takes too long. If the current flow is removed
/// during the iteration, the kernel begins again (`htab_map_get_next_key()` in
/// [kernel/bpf/hashtab.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/hashtab.c)), so the count stops at
/// the capacity of the table.
fn tally<A: Address>(
    pins: &PinRoot,
    name: &'static str,
    capacity: u32,
    generation: u32,
    confirmed: Tick,
) -> Result<Option<Tally>, DatapathError>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let map = FlowMap::<A>::open(pins, name)?;
    let (begun, mut tally) = (Instant::now(), Tally::default());
    for entry in map.entries().take(capacity as usize) {
        let (key, flow) = entry?;
        let now = tick::tick(clock::now_ns());
        let usable = flow
            .usable(flow.action.check(&key), generation, now, confirmed)
            .is_ok();
        *(if usable {
            &mut tally.usable
        } else {
            &mut tally.stale
        }) += 1;
        if begun.elapsed() >= PATIENCE {
            return Ok(None);
        }
    }
    Ok(Some(tally))
}
