//! `flannel-agent status`: what the agent says of itself or, when none runs, what its pins still tell.

use std::{fmt::Write as _, io, time::SystemTime};

use anyhow::Context as _;
use clap::Args;
use flannel_common::peer::Word;

use super::{
    Output, PinOptions, StateOptions, json,
    maps::{PinnedPeer, pinned_peers},
    table,
};
use crate::{
    datapath::{
        DatapathError, PinRoot,
        maps::{ConfigMap, ModeMap},
        policy::Source,
    },
    observe::{
        socket::ask_status,
        status::{ModeStatus, PeerStatus, Status},
    },
};

/// Where to look, and how to print.
#[derive(Debug, Args)]
pub struct StatusOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) async fn run(options: &StatusOptions) -> anyhow::Result<String> {
    let dir = &options.state.state_dir;
    let status = match ask_status(dir).await {
        Ok(status) => status,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            from_pins(options)?
        }
        Err(error) => {
            return Err(error)
                .with_context(|| format!("the agent with state directory {} does not answer", dir.display()));
        }
    };
    Ok(if options.output.is_json() { json(&status) } else { text(&status) })
}

/// The status without an agent.
fn from_pins(options: &StatusOptions) -> anyhow::Result<Status> {
    let pins = options.pins.root();
    let mode = match ModeMap::open(&pins) {
        Ok(mode) => Some(mode),
        Err(error) if error.is_absent() => None,
        Err(error) => return Err(error.into()),
    };
    let root = pins.root().display();
    let stage = match mode {
        Some(_) => "no agent is running; this is what its pins still tell".to_owned(),
        None => format!(
            "no agent is running, and nothing is pinned below {root}: it never ran here, ran without eBPF, or was cleaned up"
        ),
    };
    let peers = if mode.is_some() { peers_of(&pins)? } else { Vec::new() };
    let word = mode.map(|mode| mode.get()).transpose()?.unwrap_or_default();
    let mode = ModeStatus {
        effective: word.mode().to_string(),
        wanted: word.choice().unwrap_or(word.mode()).to_string(),
        source: if word.choice().is_some() { Source::RunTime } else { Source::Default },
        reason: None,
        attach: None,
    };
    Ok(Status { peers, ..Status::without_agent(&stage, mode) })
}

fn peers_of(pins: &PinRoot) -> Result<Vec<PeerStatus>, DatapathError> {
    let config = ConfigMap::open(pins)?.get()?;
    let status = |PinnedPeer { subnet, entry, .. }| {
        let way = match entry.word {
            word if word.has(Word::DIRECT) => "direct",
            word if word.has(Word::PLAIN) => "tunnel",
            _ => "kernel",
        };
        PeerStatus {
            subnet,
            public_ip: entry.vtep.to_string(),
            vtep_mac: entry.mac.to_string(),
            way: way.to_owned(),
            reason: None,
        }
    };
    Ok(pinned_peers(pins, &config)?.into_iter().map(status).collect())
}

fn text(status: &Status) -> String {
    let mut out = String::new();
    for (name, value) in summary(status) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<11}{value}");
    }
    if !status.peers.is_empty() {
        out.push('\n');
        out.push_str(&peers(&status.peers));
    }
    let rejected = status.rejected.iter().map(|lease| format!("refused lease: {}", lease.reason));
    let dirty = status
        .dirty
        .iter()
        .map(|entry| format!("refused by the kernel: {} ({} tries): {}", entry.object, entry.attempts, entry.error));
    let error = status.error.iter().map(|error| format!("cannot reconcile: {error}"));
    for line in rejected.chain(dirty).chain(error) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn summary(status: &Status) -> Vec<(&'static str, String)> {
    let agent = match status.pid {
        Some(pid) => format!("{} (process {pid}), {}", status.version, status.stage),
        None => status.stage.clone(),
    };
    let mut lines = vec![
        ("agent", agent),
        ("ready", if status.ready { "yes" } else { "no" }.to_owned()),
        ("mode", mode(&status.mode)),
    ];
    lines.extend(status.lease.as_ref().map(|lease| {
        let until = lease
            .expires_at
            .map_or("reserved".to_owned(), |at| format!("expires in {} s unless renewed", seconds_left(at)));
        let held = if lease.held { until } else { "lost, acquiring again".to_owned() };
        ("lease", format!("{} at {}, {held}", lease.subnet, lease.public_ip))
    }));
    lines.extend(status.store.as_ref().map(|store| {
        let state = match (&store.reason, store.in_sync) {
            (Some(reason), _) => format!("out of reach: {reason}"),
            (None, true) => "in sync".to_owned(),
            (None, false) => "not seen yet".to_owned(),
        };
        ("store", format!("{}, {state}", store.endpoints.join(",")))
    }));
    lines.extend(status.interface.as_ref().map(|interface| {
        ("interface", format!("{} {}, reached at {}", interface.name, interface.address, interface.public_ip))
    }));
    lines.extend(status.device.as_ref().map(|device| {
        ("device", format!("{} (index {}) {}, MTU {}", device.name, device.index, device.mac, device.mtu))
    }));
    lines
}

fn seconds_left(unix: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    unix.saturating_sub(now.as_secs())
}

fn mode(mode: &ModeStatus) -> String {
    let source = match mode.source {
        Source::RunTime => "chosen at run time",
        Source::Flag => "by option",
        Source::NetworkConfig => "by the network configuration",
        Source::Default => "default",
    };
    let attach = mode.attach.as_ref().map(|kind| format!(", attached by {kind}")).unwrap_or_default();
    match &mode.reason {
        Some(reason) => format!("{} ({} was asked for: {reason}){attach}", mode.effective, mode.wanted),
        None => format!("{} ({source}){attach}", mode.effective),
    }
}

fn peers(peers: &[PeerStatus]) -> String {
    let rows: Vec<_> = peers
        .iter()
        .map(|peer| {
            let reason = peer.reason.clone().unwrap_or_default();
            [peer.subnet.clone(), peer.public_ip.clone(), peer.vtep_mac.clone(), peer.way.clone(), reason]
        })
        .collect();
    table::render(["SUBNET", "PUBLIC-IP", "VTEP-MAC", "WAY", "WHY"], &rows)
}
