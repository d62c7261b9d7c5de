//! `flannel-agent guard show|set`: the guard, read and written straight in its pinned maps.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use flannel_command::{
    Output, PinOptions, StateOptions, absent,
    choice::{self, Choice},
};
use flannel_common::abi::{
    guard::{Checks, GuardMode, GuardWord},
    node::heartbeat_is_fresh,
    reason::Reason,
};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::guard::{GuardMap, ViolationMap},
    maps::{ConfigMap, StatsMap},
};
use flannel_document::Document;
use flannel_guard::{self as guard, Suspected};
use flannel_host::words::count;
use flannel_options::OneOf;
use flannel_status::{CheckStatus, GuardStatus, Status};
use flannel_terminal::table;
use serde::Serialize;

/// The subcommands of `guard`.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// Print the active modes, what was refused, and where it came from
    Show(ShowOptions),
    /// Switch to a mode until another one is set; the choice survives a restart of the agent, not a
    /// reboot. A weaker mode takes effect at once, also without an agent; a stricter one when the
    /// agent next looks, within a second
    Set(SetOptions),
}

/// The output format, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct ShowOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// The mode to set, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct SetOptions {
    /// `off`, `audit`, `enforce`, or `auto` to give up an earlier choice
    #[arg(
        value_parser = OneOf::new(
            ["off", "audit", "enforce", "auto"],
            choice::parse::<GuardMode>,
        ),
        hide_possible_values = true,
    )]
    mode: Choice<GuardMode>,
    /// One of the two checks, instead of both
    #[arg(long, value_enum, value_name = "CHECK")]
    only: Option<Check>,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// One of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Check {
    /// Check that tunnel packets come from peers
    Outer,
    /// Check that what peers send comes from their subnets
    Inner,
}

/// The guard of a node, and the senders that it found.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct Shown {
    #[serde(flatten)]
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::GuardStatus")
    )]
    guard: GuardStatus,
    /// True if the programs trust the maps; otherwise they refuse nothing.
    trusted: bool,
    /// True if there are tunnel packets at all.
    tunnel: bool,
    /// The reason why the node has no programs; absent if it has programs.
    no_bpf: Option<String>,
    /// The senders of packets that failed a check, the latest first.
    sources: Vec<SourceRow>,
}

impl Document for Shown {
    const NAME: &'static str = "guard-show";
}

/// A sender of packets that failed a check.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct SourceRow {
    /// The outer source address.
    source: String,
    /// Its packets that failed a check.
    packets: u64,
    /// The number of them that were dropped.
    dropped: u64,
    /// Seconds since the last of them.
    last_seconds_ago: f64,
    /// The reason for which the last of them failed; absent if this version does not know it.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ReasonName>")
    )]
    reason: Option<&'static str>,
    /// The meaning of that reason in words.
    meaning: Option<&'static str>,
}

/// Runs the command; the text to print.
pub async fn run(command: &GuardCommand) -> anyhow::Result<String> {
    match command {
        GuardCommand::Show(options) => {
            let shown = match Shown::read(&options.pins.found(&options.state).await) {
                Ok(shown) => shown,
                Err(error) => {
                    Shown::without_bpf(absent::agent_without_bpf(error, &options.state).await?)?
                }
            };
            Ok(if options.output.is_json() {
                flannel_command::json(&shown)
            } else {
                shown.text()
            })
        }
        GuardCommand::Set(options) => {
            match choose(options, &options.pins.found(&options.state).await) {
                Ok(text) => Ok(text),
                Err(error) => Err(absent::explain(error, &options.state).await),
            }
        }
    }
}

fn choose(options: &SetOptions, pins: &PinRoot) -> Result<String, DatapathError> {
    let unlocked = GuardMap::open(pins)?.change_anyway(|word| changed(word, options))?;
    Ok(Shown::read(pins)?.modes() + &super::datapath::caution(unlocked, "guard show"))
}

/// Returns the word with the choice. It leaves a stricter mode for the agent to enable, because
/// only the agent knows if all peers are known.
fn changed(word: GuardWord, options: &SetOptions) -> GuardWord {
    let (mut in_force, mut choice) = (word.in_force(), word.choice());
    let Choice(wanted) = options.mode;
    let change = |check, in_force: &mut GuardMode, choice: &mut Option<GuardMode>| {
        if options.only.is_none_or(|only| only == check) {
            *choice = wanted;
            *in_force = wanted.map_or(*in_force, |wanted| wanted.min(*in_force));
        }
    };
    change(Check::Outer, &mut in_force.outer, &mut choice.outer);
    change(Check::Inner, &mut in_force.inner, &mut choice.inner);
    GuardWord::new(in_force, choice)
}

impl Shown {
    fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        let now = clock::now_ns();
        let suspects = guard::suspects(&ViolationMap::open(pins)?)?;
        let config = ConfigMap::open(pins)?.get()?;
        Ok(Self {
            guard: guard::status_of_pins(GuardMap::open(pins)?.get()?, &StatsMap::open(pins)?)?,
            trusted: heartbeat_is_fresh(now, config.heartbeat_ns),
            tunnel: config.has_tunnel(),
            no_bpf: None,
            sources: suspects
                .iter()
                .map(|suspect| SourceRow::new(suspect, now))
                .collect(),
        })
    }

    /// The guard of a node whose agent has no programs.
    fn without_bpf(status: Status) -> anyhow::Result<Self> {
        let reason = absent::reason(&status).to_owned();
        let guard = status
            .guard
            .with_context(|| format!("there is no guard on this node: no eBPF: {reason}"))?;
        Ok(Self {
            guard,
            trusted: false,
            tunnel: true,
            no_bpf: Some(reason),
            sources: Vec::new(),
        })
    }

    fn modes(&self) -> String {
        let Checks { outer, inner } = Checks {
            outer: line(&self.guard.outer),
            inner: line(&self.guard.inner),
        };
        if let Some(reason) = &self.no_bpf {
            return format!("outer   {outer}\ninner   {inner}\nno eBPF: {reason}\n");
        }
        let note = match (self.tunnel, self.trusted) {
            (false, _) => {
                "the backend has no tunnel: there is nothing to refuse, whatever the modes\n"
            }
            (true, false) => "no agent for a minute: nothing is refused, whatever the modes\n",
            (true, true) => "",
        };
        format!("outer   {outer}\ninner   {inner}\n{note}")
    }

    fn text(&self) -> String {
        if self.sources.is_empty() {
            return self.modes();
        }
        let rows: Vec<_> = self
            .sources
            .iter()
            .map(|row| {
                let last = format!("{:.0} s ago", row.last_seconds_ago);
                let meaning = row.meaning.unwrap_or_default().to_owned();
                [
                    row.source.clone(),
                    row.packets.to_string(),
                    row.dropped.to_string(),
                    last,
                    meaning,
                ]
            })
            .collect();
        format!(
            "{}\n{}",
            self.modes(),
            table::render(["SOURCE", "PACKETS", "DROPPED", "LAST", "WHY"], &rows)
        )
    }
}

impl SourceRow {
    fn new(suspect: &Suspected, now: u64) -> Self {
        Self {
            source: suspect.source.to_string(),
            packets: suspect.packets,
            dropped: suspect.dropped,
            last_seconds_ago: Duration::from_nanos(now.saturating_sub(suspect.last_ns))
                .as_secs_f64(),
            reason: suspect.reason.map(Reason::name),
            meaning: suspect.reason.map(Reason::meaning),
        }
    }
}

fn line(check: &CheckStatus) -> String {
    format!(
        "{}, {} refused, {} let pass",
        mode(check),
        count(check.refused, "packet", "packets"),
        check.passed
    )
}

/// Returns the active mode, and its origin or the reason why it is not the wanted one.
pub fn mode(check: &CheckStatus) -> String {
    let CheckStatus {
        effective,
        wanted,
        chosen_at_run_time,
        reason,
        ..
    } = check;
    let chosen = if *chosen_at_run_time {
        " (chosen at run time)"
    } else {
        ""
    };
    match reason {
        Some(reason) if *chosen_at_run_time => {
            format!("{effective} ({wanted} was chosen at run time: {reason})")
        }
        Some(reason) => format!("{effective} ({wanted} was asked for: {reason})"),
        None if effective != wanted => {
            format!("{effective}, and {wanted}{chosen} as soon as an agent sees to it")
        }
        None => format!("{effective}{chosen}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<Shown>(Shown::NAME, Shown::SCHEMA_VERSION);
    }
}
