//! Flags and arguments of all commands: their names, values and defaults.

use clap::{Arg, Command, CommandFactory as _};
use flannel_cli::Cli;

use super::Interface;

pub(super) fn all() -> Vec<Interface> {
    let mut root = Cli::command();
    root.build();
    of(&root, "flannel-agent")
}

fn of(command: &Command, place: &str) -> Vec<Interface> {
    let own = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    let mut all: Vec<_> = own
        .map(|arg| Interface::new("flag", place, &name(arg), &form(arg)))
        .collect();
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        all.push(Interface::new("command", place, below.get_name(), ""));
        all.extend(of(below, &format!("{place}.{}", below.get_name())));
    }
    all
}

fn name(arg: &Arg) -> String {
    arg.get_long().map_or_else(
        || arg.get_id().as_str().to_uppercase(),
        |long| format!("--{long}"),
    )
}

/// Its short name, default and values.
fn form(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = (!defaults.is_empty()).then(|| format!("default={}", defaults.join(",")));
    let values = arg.get_possible_values();
    let names: Vec<_> = values
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    let values = (!names.is_empty()).then(|| format!("values={}", names.join(",")));
    [short, default, values]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}
