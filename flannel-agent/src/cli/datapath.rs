//! `flannel-agent datapath show|set`: the mode, read and written straight in its pinned map.

use clap::{Args, Subcommand};
use flannel_common::mode::{Mode, ModeWord};
use serde::Serialize;

use super::{Output, PinOptions, choice::Choice};
use crate::datapath::{DatapathError, maps::ModeMap, policy::DEFAULT};

/// The subcommands of `datapath`.
#[derive(Debug, Subcommand)]
pub enum DatapathCommand {
    /// Print the mode in force
    Show(ShowOptions),
    /// Put a mode in force, at once and until it is set again; survives a restart of the agent, not a reboot
    Set(SetOptions),
}

/// How to print.
#[derive(Debug, Args)]
pub struct ShowOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pins: PinOptions,
}

/// What to set.
#[derive(Debug, Args)]
pub struct SetOptions {
    /// `kernel`, `encap`, `fast`, or `auto` to give up an earlier choice
    mode: Choice<Mode>,
    #[command(flatten)]
    pins: PinOptions,
}

#[derive(Debug, Serialize)]
struct Shown {
    mode: String,
    choice: Option<String>,
    generation: u32,
}

/// Runs the command; the text to print.
pub(super) fn run(command: &DatapathCommand) -> Result<String, DatapathError> {
    match command {
        DatapathCommand::Show(options) => {
            let word = ModeMap::open(&options.pins.root())?.get()?;
            Ok(if options.output.is_json() { super::json(&shown(word)) } else { text(word) })
        }
        DatapathCommand::Set(options) => {
            let mut map = ModeMap::open(&options.pins.root())?;
            let Choice(choice) = options.mode;
            // Without a choice the agent decides at its next beat; until then the default is the likeliest answer.
            let unlocked = map.set_anyway(choice.unwrap_or(DEFAULT), choice)?;
            Ok(text(map.get()?) + &caution(unlocked, "datapath show"))
        }
    }
}

/// Says that another process may overwrite what was set, if one may; `show` is the command that
/// shows whether it did.
pub(super) fn caution(unlocked: Option<DatapathError>, show: &str) -> String {
    unlocked.map_or_else(String::new, |error| {
        format!("set without waiting any longer: {error}. It may overwrite this: see `flannel-agent {show}`\n")
    })
}

fn shown(word: ModeWord) -> Shown {
    Shown {
        mode: word.mode().to_string(),
        choice: word.choice().map(|mode| mode.to_string()),
        generation: word.generation(),
    }
}

fn text(word: ModeWord) -> String {
    match word.choice() {
        Some(choice) if choice == word.mode() => format!("{} (chosen at run time)\n", word.mode()),
        Some(choice) => format!("{} ({choice} was chosen at run time, and the agent cannot do it)\n", word.mode()),
        None => format!("{} (auto)\n", word.mode()),
    }
}
