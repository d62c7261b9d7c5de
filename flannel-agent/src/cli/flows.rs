//! `flannel-agent flows`: what mode `fast` has learned is printed, or discarded by one write to the
//! pinned mode word.

use clap::{Args, Subcommand};
use flannel_datapath::{DatapathError, PinRoot, maps::ModeMap};

use super::{
    PinOptions, StateOptions, absent,
    maps::{self, FlowListOptions},
};

/// The subcommands of `flows`.
#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// Print the flows that mode `fast` has learned, the busiest first, as `maps dump flows` does
    List(FlowListOptions),
    /// Send the next packets of every flow through the kernel, at once; for policy changes that
    /// emit no netlink event
    Flush(FlushOptions),
}

/// The paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct FlushOptions {
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) async fn run(command: &FlowsCommand) -> anyhow::Result<String> {
    let options = match command {
        FlowsCommand::List(options) => return maps::flow_list(options).await,
        FlowsCommand::Flush(options) => options,
    };
    match flush(&options.pins.found(&options.state).await) {
        Ok(text) => Ok(text),
        Err(error) => Err(absent::explain(error, &options.state).await),
    }
}

fn flush(pins: &PinRoot) -> Result<String, DatapathError> {
    let mut map = ModeMap::open(pins)?;
    map.bump()?;
    Ok(format!(
        "generation {} begins; the next packets of every flow take the kernel's path\n",
        map.get()?.generation()
    ))
}
