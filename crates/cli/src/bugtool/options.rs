//! The options of the command.

use std::path::PathBuf;

use clap::Args;
use flannel_command::{PinOptions, StateOptions};

/// The archive to write, and the paths of the agent's state and pins.
#[derive(Clone, Debug, Args)]
pub struct BugtoolOptions {
    /// The archive to write, `-` for standard output; one named by node and time in this directory
    /// if not given
    #[arg(short = 'o', long = "output", value_name = "FILE.tar.gz")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) state: StateOptions,
    #[command(flatten)]
    pub(super) pins: PinOptions,
}
