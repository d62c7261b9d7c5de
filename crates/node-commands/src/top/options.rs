//! The options of the command.

use std::time::Duration;

use clap::Args;
use flannel_command::{Output, PinOptions, StateOptions};
use flannel_host::duration;
use flannel_terminal::color::ColorOptions;
use flannel_top::SortKey;

/// The interval, the order, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Time between two readings, which rates are the difference of: seconds, or for example 1m
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub(super) interval: Duration,
    /// Print one frame as text, after one interval, and end
    #[arg(long)]
    pub(super) once: bool,
    /// With -o json: end after this number of documents
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with = "once",
    )]
    pub(super) count: Option<u64>,
    /// Show pods in place of peers; -o json has both
    #[arg(long)]
    pub(super) pods: bool,
    /// With -o json: the most peers, pods and flows in a document, the first in the order
    #[arg(long, value_name = "N")]
    pub(super) rows: Option<usize>,
    /// Show only peers, pods and flows with this text in an address, a name, a path, a protocol or
    /// a state
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) filter: String,
    #[command(flatten)]
    pub(super) output: Output,
    /// Order of peers, pods and flows
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    pub(super) sort: SortKey,
    #[command(flatten)]
    pub(super) color: ColorOptions,
    #[command(flatten)]
    pub(super) state: StateOptions,
    #[command(flatten)]
    pub(super) pins: PinOptions,
}

/// An interval during which a clock advances.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval.is_zero() {
        Err("rates need an interval of a second at least".to_owned())
    } else {
        Ok(interval)
    }
}
