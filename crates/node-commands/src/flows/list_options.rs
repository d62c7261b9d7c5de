//! The options of `flows list`.

use clap::Args;
use flannel_command::{Output, PinOptions, StateOptions};

use super::{filter::ListFilter, follow_options::FollowOptions};

/// The flows to print, and the output format.
#[derive(Clone, Debug, Args)]
pub struct FlowListOptions {
    #[command(flatten)]
    pub(super) filter: ListFilter,
    #[command(flatten)]
    pub(super) follow: FollowOptions,
    /// With --follow, write heartbeats, and end with standard input
    #[arg(long, hide = true, requires = "follow")]
    pub(super) remote: bool,
    /// Print the N busiest flows at most
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    pub(super) rows: Option<usize>,
    /// Print addresses, and look no names up
    #[arg(long)]
    pub(super) no_names: bool,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) state: StateOptions,
    #[command(flatten)]
    pub(super) pins: PinOptions,
}

impl FlowListOptions {
    /// Returns the mistake in the options, if there is one.
    pub(super) fn mistake(&self) -> Option<String> {
        let has = self.no_names && self.filter.has_names();
        has.then(|| {
            "--pod, --namespace, --node and --service need names: leave --no-names out".to_owned()
        })
    }
}
