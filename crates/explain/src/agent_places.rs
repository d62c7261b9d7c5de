//! The places where an agent leaves its state.

use std::path::Path;

use flannel_datapath::PinRoot;

/// The places of the agent's state.
#[derive(Clone, Debug)]
pub struct AgentPlaces<'a> {
    /// Its pins.
    pub pins: &'a PinRoot,
    /// Its state directory.
    pub state_dir: &'a Path,
}
