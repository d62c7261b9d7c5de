//! `flannel-agent datapath show|set`: the mode, read and written straight in its pinned map.

use clap::{Args, Subcommand};
use flannel_command::{
    Output, PinOptions, StateOptions, absent,
    choice::{self, Choice},
};
use flannel_common::abi::mode::{Mode, ModeWord};
use flannel_datapath::{DatapathError, PinRoot, maps::ModeMap, policy::DEFAULT};
use flannel_document::Document;
use flannel_options::OneOf;
use flannel_status::Status;
use serde::Serialize;

/// The subcommands of `datapath`.
#[derive(Debug, Subcommand)]
pub enum DatapathCommand {
    /// Print the active mode
    Show(ShowOptions),
    /// Switch to a mode at once, until another one is set; the choice survives a restart of the
    /// agent, not a reboot
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
    /// `kernel`, `encap`, `fast`, or `auto` to give up an earlier choice
    #[arg(
        value_parser = OneOf::new(["kernel", "encap", "fast", "auto"], choice::parse::<Mode>),
        hide_possible_values = true,
    )]
    mode: Choice<Mode>,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// The mode of the datapath.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct Shown {
    /// The active mode.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ModeName")
    )]
    mode: String,
    /// The mode that was chosen at run time; absent without a choice.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ModeName>")
    )]
    choice: Option<String>,
    /// The number of the generation of flows, which grows with each change of the mode and each
    /// `flows flush`; 0 without programs.
    generation: u32,
    /// The reason why the node has no programs; absent if it has programs.
    no_bpf: Option<String>,
}

impl Document for Shown {
    const NAME: &'static str = "datapath-show";
}

/// Runs the command; the text to print.
pub async fn run(command: &DatapathCommand) -> anyhow::Result<String> {
    match command {
        DatapathCommand::Show(options) => {
            let (document, text) = match read(&options.pins.found(&options.state).await) {
                Ok(word) => (shown(word), text(word)),
                Err(error) => without_bpf(&absent::agent_without_bpf(error, &options.state).await?),
            };
            Ok(if options.output.is_json() {
                flannel_command::json(&document)
            } else {
                text
            })
        }
        DatapathCommand::Set(options) => {
            match set(options, &options.pins.found(&options.state).await) {
                Ok(text) => Ok(text),
                Err(error) => Err(absent::explain(error, &options.state).await),
            }
        }
    }
}

/// Says that another process may overwrite what was set, if one may; `show` is the command that
/// shows whether it did.
pub fn caution(unlocked: Option<DatapathError>, show: &str) -> String {
    unlocked.map_or_else(String::new, |error| {
        format!(
            "set without waiting any longer: {error}. It may overwrite this: see \
            `flannel-agent {show}`\n"
        )
    })
}

fn read(pins: &PinRoot) -> Result<ModeWord, DatapathError> {
    ModeMap::open(pins)?.get()
}

fn set(options: &SetOptions, pins: &PinRoot) -> Result<String, DatapathError> {
    let mut map = ModeMap::open(pins)?;
    let Choice(choice) = options.mode;
    // Without a choice the agent decides at its next heartbeat; until then the default is the
    // likeliest answer.
    let unlocked = map.set_anyway(choice.unwrap_or(DEFAULT), choice)?;
    Ok(text(map.get()?) + &caution(unlocked, "datapath show"))
}

/// The mode of a node whose agent has no programs.
fn without_bpf(status: &Status) -> (Shown, String) {
    let (mode, reason) = (status.mode.effective.clone(), absent::reason(status));
    let text = format!("{mode} (no eBPF: {reason})\n");
    (
        Shown {
            mode,
            choice: None,
            generation: 0,
            no_bpf: Some(reason.to_owned()),
        },
        text,
    )
}

fn shown(word: ModeWord) -> Shown {
    Shown {
        mode: word.mode().to_string(),
        choice: word.choice().map(|mode| mode.to_string()),
        generation: word.generation(),
        no_bpf: None,
    }
}

fn text(word: ModeWord) -> String {
    match word.choice() {
        Some(choice) if choice == word.mode() => format!("{} (chosen at run time)\n", word.mode()),
        Some(choice) => format!(
            "{} ({choice} was chosen at run time, and the agent cannot do it)\n",
            word.mode()
        ),
        None => format!("{} (not chosen at run time)\n", word.mode()),
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
