//! `flows list`: the flows that mode `fast` knows, with names.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::Path,
};

use flannel_command::{absent, json};
use flannel_datapath::{DatapathError, PinRoot};
use flannel_flows::{
    monitor::DeviceNames,
    rows::{self as flow_table, FlowRow},
};
use flannel_names::ResolvedNames;
use flannel_observe::socket::ask_names;
use flannel_terminal::wrap;

use super::{
    follow,
    list_options::FlowListOptions,
    rows::{self, FlowLine, FlowsDocument, ListedFlow},
};
use crate::maps::NamedFlow;

/// Runs the command; the text to print.
pub(super) async fn run(options: &FlowListOptions) -> anyhow::Result<String> {
    let pins = options.pins.found(&options.state).await;
    if options.follow.follow {
        return follow::run(options, pins).await;
    }
    match listed(options, &pins).await {
        Ok(document) if options.output.is_json() => Ok(json(&document)),
        Ok(FlowsDocument { flows, left_out }) => {
            let rows: Vec<_> = flows
                .iter()
                .map(|flow| FlowLine { nodes: None, flow })
                .collect();
            Ok(rows::text(&rows, wrap::columns()) + &rows::remark(left_out))
        }
        Err(error) => Err(absent::explain(error, &options.state).await),
    }
}

async fn listed(options: &FlowListOptions, pins: &PinRoot) -> Result<FlowsDocument, DatapathError> {
    let found = flow_table::read(pins)?;
    let names = if options.no_names {
        ResolvedNames::new()
    } else {
        names(&options.state.state_dir, &found).await
    };
    let mut devices = DeviceNames::default();
    let listed = found
        .into_iter()
        .map(|row| ListedFlow::new(NamedFlow::new(row, &mut devices), &names));
    let mut flows: Vec<_> = listed
        .filter(|flow| options.filter.takes_row(&flow.flow.flow, &flow.ends()))
        .collect();
    let left_out = flows
        .len()
        .saturating_sub(options.rows.unwrap_or(usize::MAX));
    flows.truncate(flows.len() - left_out);
    Ok(FlowsDocument { flows, left_out })
}

/// The names of all ends, as the agent answers them. Without an agent there are addresses.
async fn names(state_dir: &Path, flows: &[FlowRow]) -> ResolvedNames {
    let ends = |row: &FlowRow| {
        [
            row.source,
            row.destination,
            row.out_source,
            row.out_destination,
        ]
    };
    let addresses: BTreeSet<_> = flows.iter().flat_map(ends).map(|end| end.ip()).collect();
    let addresses: Vec<_> = addresses.into_iter().collect();
    ask_names(state_dir, &addresses)
        .await
        .unwrap_or_else(|error| {
            // A closed standard error must not make the command fail.
            drop(writeln!(
                io::stderr(),
                "names are not known, because the agent does not answer: {error}"
            ));
            ResolvedNames::new()
        })
}
