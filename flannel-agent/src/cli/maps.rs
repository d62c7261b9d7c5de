//! `flannel-agent maps dump`: the maps, straight from their pins. It works while the agent is dead.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use flannel_common::{
    mode::ModeWord,
    node::{FamilyConfig, NodeConfig, heartbeat_is_fresh},
    peer::{PeerEntry, Word},
    program::Program,
    reason::Reason,
};
use serde::Serialize;

use super::{Output, PinOptions, table};
use crate::datapath::{
    DatapathError, clock,
    maps::{ConfigMap, ModeMap, PeerMap, StatsMap},
};

/// The subcommands of `maps`.
#[derive(Debug, Subcommand)]
pub enum MapsCommand {
    /// Print maps; needs no running agent
    Dump(DumpOptions),
}

/// What to dump, and how.
#[derive(Debug, Args)]
pub struct DumpOptions {
    /// Which map
    #[arg(value_enum)]
    map: WhichMap,
    #[command(flatten)]
    output: Output,
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
    /// All of them
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
}

#[derive(Debug, Serialize)]
struct ConfigRow {
    mode: String,
    choice: Option<String>,
    mode_generation: u32,
    valid: bool,
    generation: u32,
    heartbeat_age_seconds: Option<f64>,
    heartbeat_fresh: bool,
    network: String,
    subnet_len: u32,
    subnets: u32,
    vtep: String,
    vtep_mac: String,
    vni: u32,
    port: u16,
    source_ports: String,
    tunnel_ifindex: u32,
    underlay_ifindex: u32,
}

#[derive(Debug, Serialize)]
struct PeerRow {
    index: u32,
    subnet: String,
    vtep: String,
    vtep_mac: String,
    next_hop: String,
    oif: u32,
    mtu: u32,
    flags: Vec<&'static str>,
    generation: u32,
    /// Milliseconds for which the path is still vouched for.
    path_seen_ms: u64,
    /// Largest outer packet seen to leave whole.
    path_seen_len: u32,
}

#[derive(Debug, Serialize)]
struct StatsRow {
    program: &'static str,
    reason: &'static str,
    packets: u64,
    bytes: u64,
    meaning: &'static str,
}

/// Runs the command; the text to print.
pub(super) fn run(command: &MapsCommand) -> Result<String, DatapathError> {
    let MapsCommand::Dump(options) = command;
    let dump = Dump::read(options)?;
    if options.output.is_json() {
        return Ok(super::json(&dump));
    }
    let tables = [
        dump.config.as_ref().map(config_table),
        dump.peers.as_deref().map(peers_table),
        dump.stats.as_deref().map(stats_table),
    ];
    Ok(tables.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

impl Dump {
    fn read(options: &DumpOptions) -> Result<Self, DatapathError> {
        let pins = options.pins.root();
        let wants = |which| options.map == which || options.map == WhichMap::All;
        let config = ConfigMap::open(&pins)?.get()?;
        let now = clock::now_ns();
        let config_row = |mode: &ModeMap| {
            let word = mode.get()?;
            Ok::<_, DatapathError>(ConfigRow::new(&config, word, now))
        };
        let subnet_of = |index: u32| subnet(&config.v4, index);
        let peers = |map: &PeerMap| {
            let rows = map
                .entries()
                .map(|entry| entry.map(|(index, entry)| PeerRow::new(index, subnet_of(index), &entry, now)));
            rows.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            config: wants(WhichMap::Config).then(|| config_row(&ModeMap::open(&pins)?)).transpose()?,
            peers: wants(WhichMap::Peers).then(|| peers(&PeerMap::open(&pins)?)).transpose()?,
            stats: wants(WhichMap::Stats).then(|| stats_rows(&StatsMap::open(&pins)?)).transpose()?,
        })
    }
}

impl ConfigRow {
    fn new(config: &NodeConfig, word: ModeWord, now: u64) -> Self {
        let family = &config.v4;
        let age = now.checked_sub(config.heartbeat_ns).filter(|_| config.heartbeat_ns != 0);
        Self {
            mode: word.mode().to_string(),
            choice: word.choice().map(|mode| mode.to_string()),
            mode_generation: word.generation(),
            valid: config.word.has(Word::VALID),
            generation: config.word.generation(),
            heartbeat_age_seconds: age.map(|age| std::time::Duration::from_nanos(age).as_secs_f64()),
            heartbeat_fresh: heartbeat_is_fresh(now, config.heartbeat_ns),
            network: family.network.to_string(),
            subnet_len: 32_u32.saturating_sub(family.subnet_shift),
            subnets: family.subnet_count,
            vtep: family.vtep.to_string(),
            vtep_mac: family.vtep_mac.to_string(),
            vni: family.vni,
            port: u16::from_be_bytes(family.port),
            source_ports: format!("{}-{}", family.source_port_min, family.source_port_max),
            tunnel_ifindex: family.tunnel_ifindex,
            underlay_ifindex: family.underlay_ifindex,
        }
    }
}

impl PeerRow {
    fn new(index: u32, subnet: String, entry: &PeerEntry, now: u64) -> Self {
        let names = [(Word::PLAIN, "plain"), (Word::DIRECT, "direct")];
        let left = if entry.path_vouches(now) { (entry.seen.until_ns - now) / 1_000_000 } else { 0 };
        Self {
            index,
            subnet,
            vtep: entry.vtep.to_string(),
            vtep_mac: entry.mac.to_string(),
            next_hop: entry.next_hop.to_string(),
            oif: entry.oif,
            mtu: entry.mtu,
            flags: names.into_iter().filter(|(flag, _)| entry.word.has(*flag)).map(|(_, name)| name).collect(),
            generation: entry.word.generation(),
            path_seen_ms: left,
            path_seen_len: if left == 0 { 0 } else { entry.seen.max_len },
        }
    }
}

/// The subnet with this number.
pub(super) fn subnet(family: &FamilyConfig, index: u32) -> String {
    let base = u32::from_be_bytes(family.network.v4_bytes());
    let offset = index.checked_shl(family.subnet_shift).unwrap_or_default();
    let address = std::net::Ipv4Addr::from(base.wrapping_add(offset));
    format!("{address}/{}", 32_u32.saturating_sub(family.subnet_shift))
}

fn stats_rows(map: &StatsMap) -> Result<Vec<StatsRow>, DatapathError> {
    let mut rows = Vec::new();
    for program in Program::ALL {
        for reason in Reason::ALL {
            let counter = map.get(program, reason)?;
            if counter.packets != 0 {
                let (name, meaning) = (reason.name(), reason.meaning());
                let (packets, bytes) = (counter.packets, counter.bytes);
                rows.push(StatsRow { program: program.name(), reason: name, packets, bytes, meaning });
            }
        }
    }
    Ok(rows)
}

fn config_table(row: &ConfigRow) -> String {
    let heartbeat = match (row.heartbeat_age_seconds, row.heartbeat_fresh) {
        (None, _) => "never".to_owned(),
        (Some(age), true) => format!("{age:.1} s ago"),
        (Some(age), false) => format!("{age:.1} s ago: too old, every packet takes the kernel's path"),
    };
    let lines = [
        ("mode", row.mode.clone()),
        ("chosen at run time", row.choice.clone().unwrap_or_else(|| "no (auto)".to_owned())),
        ("heartbeat", heartbeat),
        ("valid", format!("{} (generation {})", if row.valid { "yes" } else { "no" }, row.generation)),
        ("network", format!("{} in {} subnets of /{}", row.network, row.subnets, row.subnet_len)),
        ("vtep", format!("{} {}", row.vtep, row.vtep_mac)),
        ("vni, port", format!("{}, {} (source ports {})", row.vni, row.port, row.source_ports)),
        ("interfaces", format!("tunnel {}, underlay {}", row.tunnel_ifindex, row.underlay_ifindex)),
    ];
    lines.into_iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<20}{value}");
        text
    })
}

fn peers_table(rows: &[PeerRow]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let seen = if row.path_seen_ms == 0 { "-".to_owned() } else { format!("<={} B", row.path_seen_len) };
            let flags = if row.flags.is_empty() { "kernel".to_owned() } else { row.flags.join(",") };
            let [oif, mtu] =
                [row.oif, row.mtu].map(|number| if number == 0 { "-".to_owned() } else { number.to_string() });
            let (vtep, mac, next_hop) = (row.vtep.clone(), row.vtep_mac.clone(), row.next_hop.clone());
            [row.subnet.clone(), vtep, mac, next_hop, oif, mtu, flags, seen]
        })
        .collect();
    table::render(["SUBNET", "VTEP", "VTEP-MAC", "NEXT-HOP", "OIF", "MTU", "PATH", "SEEN"], &rows)
}

fn stats_table(rows: &[StatsRow]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let texts = [row.program, row.reason].map(str::to_owned);
            let [program, reason] = texts;
            [program, reason, row.packets.to_string(), row.bytes.to_string(), row.meaning.to_owned()]
        })
        .collect();
    table::render(["PROGRAM", "REASON", "PACKETS", "BYTES", "MEANING"], &rows)
}
