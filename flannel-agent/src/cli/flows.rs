//! `flannel-agent flows flush`: what mode `fast` has learned is discarded, by one write to the pinned mode word.

use clap::{Args, Subcommand};

use super::PinOptions;
use crate::datapath::{DatapathError, maps::ModeMap};

/// The subcommands of `flows`.
#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// Let every known flow be seen anew by the kernel, at once; for who changed a policy that announces nothing
    Flush(FlushOptions),
}

/// Where.
#[derive(Debug, Args)]
pub struct FlushOptions {
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) fn run(command: &FlowsCommand) -> Result<String, DatapathError> {
    let FlowsCommand::Flush(options) = command;
    let mut map = ModeMap::open(&options.pins.root())?;
    map.bump()?;
    Ok(format!(
        "generation {} begins; the next packets of every flow take the kernel's path\n",
        map.get()?.generation()
    ))
}
