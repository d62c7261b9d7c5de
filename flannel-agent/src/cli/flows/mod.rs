//! `flannel-agent flows`: the flows of this node with names are printed once or as they happen; the
//! flows of mode `fast` are discarded by one write to the pinned mode word.

mod filter;
mod follow;
mod list;
mod names;
mod rows;

use clap::{Args, Subcommand};
use flannel_datapath::{DatapathError, PinRoot, maps::ModeMap};

pub(super) use self::list::FlowListOptions;
use super::{PinOptions, StateOptions, absent};

/// The subcommands of `flows`.
#[derive(Debug, Subcommand)]
pub enum FlowsCommand {
    /// Print the flows that mode `fast` has learned with the names of their ends, the busiest
    /// first; with --follow new, active and ended flows and dropped packets as they happen
    List(Box<FlowListOptions>),
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

/// Returns the mistake in the command, if there is one.
pub(super) fn mistake(command: &FlowsCommand) -> Option<String> {
    match command {
        FlowsCommand::List(options) => options.mistake(),
        FlowsCommand::Flush(_) => None,
    }
}

/// Runs the command; the text to print.
pub(super) async fn run(command: &FlowsCommand) -> anyhow::Result<String> {
    let options = match command {
        FlowsCommand::List(options) => return list::run(options).await,
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
