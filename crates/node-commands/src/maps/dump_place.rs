//! The options of all forms of the command.

use clap::Args;
use flannel_command::{Output, PinOptions, StateOptions};

/// The output format, and the paths of the agent's state and pins.
#[derive(Clone, Debug, Args)]
pub(super) struct DumpPlace {
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) state: StateOptions,
    #[command(flatten)]
    pub(super) pins: PinOptions,
}
