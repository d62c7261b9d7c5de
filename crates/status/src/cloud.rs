//! The routes in the cloud.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The routes of this node in the cloud's route tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CloudStatus {
    /// The cloud: `aws`, `gce`, `tencent`, `ali`.
    pub cloud: String,
    /// The subnet of this node's pods.
    pub destination: String,
    /// The interface or instance to which the cloud routes it, by the cloud's identifier; absent
    /// until it is known.
    pub target: Option<String>,
    /// The route tables, or the network with gce; empty until they are known.
    pub tables: Vec<String>,
    /// True if the route was in all tables at the last look.
    pub present: bool,
    /// The reason why the instance may drop packets of pods: the check of source and destination
    /// could not be switched off, or is on.
    pub source_check: Option<String>,
    /// The error of the last attempt, if it failed.
    pub error: Option<String>,
    /// Failed attempts in a row.
    pub attempts: u32,
    /// Requests to the cloud since the agent started.
    pub requests: RequestCounts,
    /// Changes of routes since then.
    pub changes: ChangeCounts,
}

/// Requests to the cloud's API by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestCounts {
    /// Done.
    pub done: u64,
    /// Refused: not allowed, a limit, a mistake.
    pub refused: u64,
    /// Refused because there were too many.
    pub throttled: u64,
    /// Without an answer.
    pub failed: u64,
}

impl AddAssign for RequestCounts {
    fn add_assign(&mut self, more: Self) {
        self.done += more.done;
        self.refused += more.refused;
        self.throttled += more.throttled;
        self.failed += more.failed;
    }
}

/// Changes of the cloud's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeCounts {
    /// Routes to this node that were made.
    pub created: u64,
    /// Routes that led elsewhere, and were led to this node.
    pub replaced: u64,
    /// Blackholes and stale routes to this node that were removed.
    pub deleted: u64,
}
