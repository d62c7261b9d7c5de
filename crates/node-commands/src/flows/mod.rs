//! `flannel-agent flows`: the flows of this node with names are printed once or as they happen; the
//! flows of mode `fast` are discarded by one write to the pinned mode word.

mod filter;
mod follow;
mod follow_options;
mod list;
mod list_options;
mod names;
mod remote;
mod rows;

use std::ffi::OsString;

use clap::{Args, Subcommand};
use flannel_command::{PinOptions, StateOptions, absent};
use flannel_datapath::{DatapathError, PinRoot, maps::ModeMap};

pub use self::{
    filter::{NamedFilter, VerdictChoice},
    follow_options::FollowOptions,
    list_options::FlowListOptions,
    remote::{Heartbeat, PERIOD as HEARTBEAT_PERIOD, RemoteLine},
    rows::{EndRow, FlowEventRow, FlowLine, FlowsDocument, ListedFlow, remark, text},
};

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

/// Names the subcommand `list` in a command line (the first word is the program) that has flags or
/// nothing after `flows`.
pub fn add_list(args: &mut Vec<OsString>) {
    let is_flag = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let asks_help = |word: &OsString| ["-h", "--help"].iter().any(|help| word == help);
    let is_bare = args
        .get(2)
        .is_none_or(|word| is_flag(word) && !asks_help(word));
    if args.get(1).is_some_and(|verb| verb == "flows") && is_bare {
        args.insert(2, "list".into());
    }
}

/// Returns the mistake in the command, if there is one.
pub fn mistake(command: &FlowsCommand) -> Option<String> {
    match command {
        FlowsCommand::List(options) => options.mistake(),
        FlowsCommand::Flush(_) => None,
    }
}

/// Runs the command; the text to print.
pub async fn run(command: &FlowsCommand) -> anyhow::Result<String> {
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
