//! The options of commands that follow flows.

use clap::Args;

/// The choice to follow flows, with its rate and its end.
#[derive(Clone, Copy, Debug, Args)]
#[group(skip)]
pub struct FollowOptions {
    /// Print new, active and ended flows and dropped packets as they happen, until Ctrl-C
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// With --follow, packets a second that the programs of a node report at most
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "follow")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// With --follow, end after N events
    #[arg(long, value_name = "N", requires = "follow")]
    pub count: Option<u64>,
}
