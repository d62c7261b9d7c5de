//! An API server on loopback that knows Nodes and Pods, and fails on demand.

mod answer;
mod double;
mod merge;
mod state;
mod stream;

use std::time::Duration;

pub(crate) use self::{double::Double, state::State};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
