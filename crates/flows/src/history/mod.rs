//! The rates of the last ten minutes, of this node and by peer and by pod, in memory.
//!
//! Owns [`SharedHistory`], which the agent fills every ten seconds, and [`TrafficHistory`], which
//! its socket answers and the dashboards draw. Pure: the agent reads the maps.
//!
//! Invariants: at most [`PEERS`] peers and [`PODS`] pods are kept, each with [`POINTS`] points of
//! eight bytes; a series without a packet in ten minutes leaves.

mod recorder;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use recorder::{SharedHistory, Tick, TickRate};

/// The points of a series.
pub const POINTS: usize = 60;
/// The time between two points.
pub const PERIOD: Duration = Duration::from_secs(10);
/// The most peers.
pub const PEERS: usize = 256;
/// The most pods.
pub const PODS: usize = 256;

/// Rates of the last ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TrafficHistory {
    /// The packets at the programs that take packets off the kernel's path. A packet that meets two
    /// of them counts twice.
    pub node: RateHistory,
    /// The peers by their subnets: packets in both directions.
    #[serde(default)]
    pub peers: BTreeMap<String, RateHistory>,
    /// The pods by their veths: packets in both directions.
    #[serde(default)]
    pub pods: BTreeMap<String, RateHistory>,
}

/// The rates of one series: a value for every ten seconds, the oldest first. A value is absent
/// where it is not known; any packet makes it 1 at least.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RateHistory {
    /// Packets a second.
    pub packets_per_second: Vec<Option<u64>>,
    /// Bits a second.
    pub bits_per_second: Vec<Option<u64>>,
}
