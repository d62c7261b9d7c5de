//! `flannel-agent maps dump`: the maps, straight from their pins. It works while the agent is dead.

mod config;
mod diff;
mod dump_place;
mod flows;
mod peers;
mod pods;
#[cfg(test)]
mod properties;
mod stats;

use clap::{Args, Subcommand, ValueEnum};
use flannel_command::{Answer, absent};
use flannel_common::abi::node::NodeConfig;
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::{ConfigMap, ModeMap, StatsMap},
    maps::{ecmp_paths::PinnedEcmpPaths, peers::pinned_peers, traffic::PeerCounters},
};
use flannel_document::Document;
use flannel_flows::{
    monitor::DeviceNames,
    pod_traffic::{AllLinkCounters, link_counters},
    rows as known_flows,
};
use serde::Serialize;

pub use self::flows::{FlowFilter, NamedFlow};
use self::{
    config::ConfigRow, dump_place::DumpPlace, peers::PeerRow, pods::PodRow, stats::StatsRow,
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
    #[arg(value_enum)]
    map: Option<WhichMap>,
    /// Print what leases, maps and kernel disagree about, and end with 1 if there is anything
    #[arg(long, conflicts_with = "map")]
    diff: bool,
    #[command(flatten)]
    filter: FlowFilter,
    #[command(flatten)]
    place: DumpPlace,
}

impl DumpOptions {
    /// Returns true if this map, which is not that of flows, is asked for.
    fn wants(&self, which: WhichMap) -> bool {
        self.map == Some(which) || self.map == Some(WhichMap::All)
    }
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

/// The BPF maps of a node: only those that were asked for.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct Dump {
    /// The node's own data, the mode and the agent's heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "ConfigRow"))]
    config: Option<ConfigRow>,
    /// The peers, by subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Vec<PeerRow>"))]
    peers: Option<Vec<PeerRow>>,
    /// The counters that are not zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Vec<StatsRow>"))]
    stats: Option<Vec<StatsRow>>,
    /// The pods that mode `fast` knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Vec<PodRow>"))]
    pods: Option<Vec<PodRow>>,
    /// The flows that mode `fast` has learned, the busiest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Vec<NamedFlow>"))]
    flows: Option<Vec<NamedFlow>>,
}

impl Document for Dump {
    const NAME: &'static str = "maps-dump";
}

/// Returns the mistake in the command, if there is one: no map, or a filter of flows with another
/// map.
pub fn mistake(command: &MapsCommand) -> Option<String> {
    let MapsCommand::Dump(options) = command;
    if options.map.is_none() && !options.diff {
        let maps = WhichMap::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value);
        let maps: Vec<_> = maps.map(|map| map.get_name().to_owned()).collect();
        return Some(format!(
            "name a map: {}; or ask for --diff",
            maps.join(", ")
        ));
    }
    let misplaced = options.filter.is_set() && options.map != Some(WhichMap::Flows);
    misplaced.then(|| {
        "--src, --dst and --proto choose among flows: use them with `maps dump flows`".to_owned()
    })
}

/// Runs the command.
pub async fn run(command: &MapsCommand) -> anyhow::Result<Answer> {
    let MapsCommand::Dump(options) = command;
    if options.diff {
        return diff::run(&options.place).await;
    }
    print(options).await.map(Answer::from)
}

async fn print(options: &DumpOptions) -> anyhow::Result<String> {
    let DumpPlace { state, pins, .. } = &options.place;
    let links = if options.wants(WhichMap::Pods) {
        link_counters().await
    } else {
        None
    };
    match dump(options, &pins.found(state).await, links.as_ref()) {
        Ok(text) => Ok(text),
        Err(error) => Err(absent::explain(error, state).await),
    }
}

fn dump(
    options: &DumpOptions,
    pins: &PinRoot,
    links: Option<&AllLinkCounters>,
) -> Result<String, DatapathError> {
    let dump = Dump::read(options, pins, links)?;
    if options.place.output.is_json() {
        return Ok(flannel_command::json(&dump));
    }
    let tables = [
        dump.config.as_ref().map(config::table),
        dump.peers.as_deref().map(peers::table),
        dump.stats.as_deref().map(stats::table),
        dump.pods
            .as_deref()
            .filter(|pods| options.map == Some(WhichMap::Pods) || !pods.is_empty())
            .map(pods::table),
        dump.flows.as_deref().map(flows::table),
    ];
    Ok(tables.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

impl Dump {
    fn read(
        options: &DumpOptions,
        pins: &PinRoot,
        links: Option<&AllLinkCounters>,
    ) -> Result<Self, DatapathError> {
        let wants = |which| options.wants(which);
        let config = ConfigMap::open(pins)?.get()?;
        let (now, mut devices) = (clock::now_ns(), DeviceNames::default());
        Ok(Self {
            config: wants(WhichMap::Config)
                .then(|| {
                    Ok::<_, DatapathError>(ConfigRow::new(
                        &config,
                        ModeMap::open(pins)?.get()?,
                        now,
                        &mut devices,
                    ))
                })
                .transpose()?,
            peers: wants(WhichMap::Peers)
                .then(|| peer_rows(pins, &config, now, &mut devices))
                .transpose()?,
            stats: wants(WhichMap::Stats)
                .then(|| stats::rows(&StatsMap::open(pins)?))
                .transpose()?,
            pods: wants(WhichMap::Pods)
                .then(|| pods::rows(pins, links, &mut devices))
                .transpose()?,
            flows: (options.map == Some(WhichMap::Flows))
                .then(|| flow_rows(pins, &options.filter, &mut devices))
                .transpose()?,
        })
    }
}

fn peer_rows(
    pins: &PinRoot,
    config: &NodeConfig,
    now: u64,
    devices: &mut DeviceNames,
) -> Result<Vec<PeerRow>, DatapathError> {
    let (peers, ecmp_paths) = (pinned_peers(pins, config)?, PinnedEcmpPaths::read(pins)?);
    let counters = PeerCounters::open(pins)?;
    let row = |peer| {
        Ok(PeerRow::new(
            peer,
            counters.of(&peer)?,
            &ecmp_paths,
            now,
            devices,
        ))
    };
    peers.into_iter().map(row).collect()
}

fn flow_rows(
    pins: &PinRoot,
    filter: &FlowFilter,
    devices: &mut DeviceNames,
) -> Result<Vec<NamedFlow>, DatapathError> {
    let rows = known_flows::read(pins)?
        .into_iter()
        .filter(|row| filter.takes(row));
    Ok(rows.map(|row| NamedFlow::new(row, devices)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<Dump>(Dump::NAME, Dump::SCHEMA_VERSION);
    }
}
