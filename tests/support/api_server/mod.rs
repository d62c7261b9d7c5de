//! An API server on loopback that knows Nodes and Pods, and fails on demand.

mod answer;
mod double;
mod merge;
mod state;
mod stream;

use std::time::Duration;

pub(crate) use self::{double::Double, state::State};

/// Behind the record of a request for a list of Nodes.
pub(crate) const LIST: &str = " (list)";

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
