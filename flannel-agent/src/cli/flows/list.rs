//! `flows list`: the flows that mode `fast` knows, with names.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::Path,
};

use clap::Args;
use flannel_datapath::PinRoot;
use flannel_terminal::wrap;

use super::{
    filter::NamedFilter,
    follow,
    rows::{self, FlowsDocument, ListedFlow},
};
use crate::{
    cli::{Output, PinOptions, StateOptions, absent, json, maps::NamedFlow},
    monitor::DeviceNames,
    names::ResolvedNames,
    observe::{
        flows::{self, FlowRow},
        socket::ask_names,
    },
};

/// The flows to print, and the output format.
#[derive(Clone, Debug, Args)]
pub struct FlowListOptions {
    #[command(flatten)]
    pub(super) filter: NamedFilter,
    /// Print new, active and ended flows and dropped packets as they happen, until Ctrl-C
    #[arg(short = 'f', long)]
    pub(super) follow: bool,
    /// With --follow, packets a second that the programs report at most
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "follow")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rate: u32,
    /// With --follow, end after N lines
    #[arg(long, value_name = "N", requires = "follow")]
    pub(super) count: Option<u64>,
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
        has.then(|| "--pod, --namespace, --node and --service need names: leave --no-names out".to_owned())
    }
}

/// Runs the command; the text to print.
pub(super) async fn run(options: &FlowListOptions) -> anyhow::Result<String> {
    let pins = options.pins.found(&options.state).await;
    if options.follow {
        return follow::run(options, pins).await;
    }
    match listed(options, &pins).await {
        Ok(flows) if options.output.is_json() => Ok(json(&FlowsDocument { flows })),
        Ok(flows) => Ok(rows::text(&flows, wrap::columns())),
        Err(error) => Err(absent::explain(error, &options.state).await),
    }
}

async fn listed(options: &FlowListOptions, pins: &PinRoot) -> Result<Vec<ListedFlow>, flannel_datapath::DatapathError> {
    let found = flows::read(pins)?;
    let names = if options.no_names { ResolvedNames::new() } else { names(&options.state.state_dir, &found).await };
    let mut devices = DeviceNames::default();
    let listed = found.into_iter().map(|row| ListedFlow::new(NamedFlow::new(row, &mut devices), &names));
    Ok(listed.filter(|flow| options.filter.takes_row(&flow.flow.flow, &flow.ends())).collect())
}

/// The names of all ends, as the agent answers them. Without an agent there are addresses.
async fn names(state_dir: &Path, flows: &[FlowRow]) -> ResolvedNames {
    let ends = |row: &FlowRow| [row.source, row.destination, row.out_source, row.out_destination];
    let addresses: BTreeSet<_> = flows.iter().flat_map(ends).map(|end| end.ip()).collect();
    let addresses: Vec<_> = addresses.into_iter().collect();
    ask_names(state_dir, &addresses).await.unwrap_or_else(|error| {
        // A closed standard error must not make the command fail.
        drop(writeln!(io::stderr(), "names are not known, because the agent does not answer: {error}"));
        ResolvedNames::new()
    })
}
