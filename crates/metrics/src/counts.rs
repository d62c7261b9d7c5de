//! Counts of the agent's tasks for metrics that neither the status nor the maps provide. A write
//! costs an atomic operation each and never blocks.

use std::time::Duration;

use flannel_host::count::Count;
use flannel_store::StoreCounts;
use prometheus::{Histogram, HistogramOpts};

use super::{catalogue, page::Metric};

/// Seconds: one look at a node that is as it should be takes milliseconds, thousands of new peers
/// take seconds.
const ROUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Seconds: from one switch to another continent.
const ROUND_TRIPS: [f64; 11] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5,
];

/// The counts. Clones are the same counts.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Of the store's task.
    pub store: StoreCounts,
    pub(super) rounds: Histogram,
    pub(super) errors: Count,
    /// From an echo request to its reply.
    pub echo_round_trips: Histogram,
    /// Of each listener.
    pub displaced: Displaced,
    /// Of the flows for clients of Hubble.
    pub flows: FlowCounts,
}

/// Flows for clients of Hubble, and packets of which they have none.
#[derive(Clone, Debug, Default)]
pub struct FlowCounts {
    /// Flows that came to the ring.
    pub observed: Count,
    /// Packets that the programs did not report.
    pub missed: Count,
}

/// Connections of each listener closed for newer ones.
#[derive(Clone, Debug, Default)]
pub struct Displaced {
    /// Health checks, and metrics if these have no separate listener.
    pub health: Count,
    /// Metrics.
    pub metrics: Count,
    /// The status socket.
    pub status: Count,
}

impl Counts {
    /// Creates the counts at zero.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            store: StoreCounts::default(),
            rounds: histogram(catalogue::RECONCILE_DURATION, &ROUNDS)?,
            errors: Count::default(),
            echo_round_trips: histogram(catalogue::ECHO_ROUND_TRIP, &ROUND_TRIPS)?,
            displaced: Displaced::default(),
            flows: FlowCounts::default(),
        })
    }

    /// One reconciliation took this long, and went through or not.
    pub fn reconciled(&self, took: Duration, went_through: bool) {
        self.rounds.observe(took.as_secs_f64());
        if !went_through {
            self.errors.add();
        }
    }
}

fn histogram(metric: Metric, buckets: &[f64]) -> prometheus::Result<Histogram> {
    Histogram::with_opts(HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec()))
}
