//! The command line: its description, and the names of the binary.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{CommandFactory as _, Parser, Subcommand};
use flannel_cluster_commands::lease;
use flannel_node_commands::flows;
use flannel_options::{RunFlags, RunOptions, go_style};

use super::{
    command::{Command, Once},
    exit_status, plugin,
    stop::{Stop, parsed},
};

/// Names that programs of flannel's image have, each with the subcommand that takes its arguments.
const NAMES: [(&str, &str); 2] = [("flanneld", "run"), ("install-conf", "install")];

/// The command line.
#[derive(Parser)]
#[command(
    name = "flannel-agent",
    version,
    about = "A drop-in flanneld with an eBPF datapath"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the daemon; flags are Go-style and may come from `FLANNELD_*` variables
    Run(Box<RunFlags>),
    #[command(flatten)]
    Once(Once),
}

/// Parses a whole command line (`args` starts with the program) in an environment.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, Stop> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args
        .first()
        .is_some_and(|program| plugin::is_named(program))
    {
        return plugin::parse(args);
    }
    let subcommand = args.first().and_then(|program| subcommand_of(program));
    args.splice(1..1, subcommand.map(OsString::from));
    let as_flanneld = subcommand == Some("run");
    parse_verb(args, env).map_err(|stop| Stop {
        to_stderr: stop.to_stderr || as_flanneld,
        ..stop
    })
}

/// The subcommand that a name of this binary stands for.
fn subcommand_of(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    NAMES
        .iter()
        .find(|(known, _)| name == *known)
        .map(|(_, subcommand)| *subcommand)
}

fn parse_verb(
    mut args: Vec<OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, Stop> {
    let mut mistakes = Vec::new();
    if args.get(1).is_some_and(|verb| verb == "run") {
        let normalised = go_style::normalise(args.drain(2..), env);
        mistakes.extend(normalised.mistakes.iter().map(ToString::to_string));
        args.extend(normalised.flags.into_iter().map(OsString::from));
    } else if args.get(1).is_some_and(|verb| verb == "lease") && args.len() > 2 {
        lease::read_environment(&mut args, env);
    }
    flows::add_list(&mut args);
    let raw = match parsed::<Cli>(exit_status::explained(Cli::command(), ""), args)?.command {
        Verb::Run(raw) => raw,
        Verb::Once(once) => return once.checked(),
    };
    let asks_version = raw.version;
    let options = RunOptions::new(&raw);
    mistakes.extend(
        options
            .as_ref()
            .err()
            .into_iter()
            .flatten()
            .map(ToString::to_string),
    );
    match options {
        _ if asks_version && mistakes.is_empty() => Err(version()),
        Ok(options) if mistakes.is_empty() => Ok(Command::Run(Box::new(options))),
        _ => Err(usage(&mistakes)),
    }
}

fn version() -> Stop {
    Stop {
        code: 0,
        to_stderr: false,
        text: format!("{}\n", env!("CARGO_PKG_VERSION")),
    }
}

fn usage(mistakes: &[String]) -> Stop {
    Stop::usage(&format!(
        "error: {}\n\nSee `flannel-agent run --help`, or `flanneld --help`, for the flags.\n",
        mistakes.join("\nerror: ")
    ))
}
