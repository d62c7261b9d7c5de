//! `flannel-agent maps dump`: the maps, straight from their pins. It works while the agent is dead.

mod config;
mod diff;
mod flows;
mod peers;
mod pods;
#[cfg(test)]
mod properties;
mod stats;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use self::{config::ConfigRow, flows::FlowFilter, peers::PeerRow, pods::PodRow, stats::StatsRow};
use super::{Answer, Output, PinOptions, StateOptions, absent};
use crate::{
    datapath::{
        DatapathError, clock,
        ecmp_paths::PinnedEcmpPaths,
        maps::{ConfigMap, ModeMap, StatsMap},
        peers::pinned_peers,
    },
    observe::flows::{self as known_flows, FlowRow},
};

/// The subcommands of `maps`.
#[derive(Debug, Subcommand)]
pub enum MapsCommand {
    /// Print maps; needs no running agent
    Dump(DumpOptions),
}

/// The map to print or the comparison, the filter of flows, and the output format.
#[derive(Debug, Args)]
pub struct DumpOptions {
    /// The map to print
    #[arg(value_enum, required_unless_present = "diff")]
    map: Option<WhichMap>,
    /// Print what leases, maps and kernel disagree about, and end with 1 if there is anything
    #[arg(long, conflicts_with = "map")]
    diff: bool,
    #[command(flatten)]
    filter: FlowFilter,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhichMap {
    /// Peers by subnet
    Peers,
    /// Packets and bytes by program and reason
    Stats,
    /// The node's own data, the mode and the agent's heartbeat
    Config,
    /// Pods that mode `fast` knows, by their veth
    Pods,
    /// Flows that mode `fast` has learned; there may be many
    Flows,
    /// All of them but flows
    All,
}

/// Everything, or the one map asked for.
#[derive(Debug, Serialize)]
struct Dump {
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<ConfigRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Vec<PeerRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Vec<StatsRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Vec<PodRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<FlowRow>>,
}

/// Returns the mistake in the command, if there is one: a filter of flows with another map.
pub(super) fn mistake(command: &MapsCommand) -> Option<String> {
    let MapsCommand::Dump(options) = command;
    let misplaced = options.filter.is_set() && options.map != Some(WhichMap::Flows);
    misplaced.then(|| "--src, --dst and --proto choose among flows: use them with `maps dump flows`".to_owned())
}

/// Runs the command.
pub(super) async fn run(command: &MapsCommand) -> anyhow::Result<Answer> {
    let MapsCommand::Dump(options) = command;
    if options.diff {
        return diff::run(options).await;
    }
    match dump(options) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(absent::explain(error, &options.state).await),
    }
}

fn dump(options: &DumpOptions) -> Result<String, DatapathError> {
    let dump = Dump::read(options)?;
    if options.output.is_json() {
        return Ok(super::json(&dump));
    }
    let tables = [
        dump.config.as_ref().map(config::table),
        dump.peers.as_deref().map(peers::table),
        dump.stats.as_deref().map(stats::table),
        dump.pods.as_deref().filter(|pods| options.map == Some(WhichMap::Pods) || !pods.is_empty()).map(pods::table),
        dump.flows.as_deref().map(flows::table),
    ];
    Ok(tables.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

impl Dump {
    fn read(options: &DumpOptions) -> Result<Self, DatapathError> {
        let pins = options.pins.root();
        let wants = |which| options.map == Some(which) || options.map == Some(WhichMap::All);
        let config = ConfigMap::open(&pins)?.get()?;
        let now = clock::now_ns();
        let config_row = |mode: &ModeMap| Ok::<_, DatapathError>(ConfigRow::new(&config, mode.get()?, now));
        let peer_rows = || {
            let (peers, ecmp_paths) = (pinned_peers(&pins, &config)?, PinnedEcmpPaths::read(&pins)?);
            Ok::<_, DatapathError>(peers.into_iter().map(|peer| PeerRow::new(peer, &ecmp_paths, now)).collect())
        };
        let flow_rows = || {
            let rows = known_flows::read(&pins)?;
            Ok::<_, DatapathError>(rows.into_iter().filter(|row| options.filter.takes(row)).collect())
        };
        Ok(Self {
            config: wants(WhichMap::Config).then(|| config_row(&ModeMap::open(&pins)?)).transpose()?,
            peers: wants(WhichMap::Peers).then(peer_rows).transpose()?,
            stats: wants(WhichMap::Stats).then(|| stats::rows(&StatsMap::open(&pins)?)).transpose()?,
            pods: wants(WhichMap::Pods).then(|| pods::rows(&pins)).transpose()?,
            flows: (options.map == Some(WhichMap::Flows)).then(flow_rows).transpose()?,
        })
    }
}
