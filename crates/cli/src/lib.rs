//! The command line: subcommands, and what the process name means.
//!
//! `flannel-agent run [flags]` is the daemon. Under the name `flanneld` the same binary is the
//! daemon without naming the subcommand, so that it replaces flanneld in place; and so is `install`
//! under the name `install-conf`. Under the name `kubectl-flannel` it is a plugin of kubectl, with
//! the commands on a whole cluster (`plugin`). The flags of `run` are Go-style and go through
//! `go_style` first; those of every other subcommand are plain clap.
//!
//! Help and version go to standard output, as is usual; under the name `flanneld` to standard
//! error, as flanneld does. Wrong usage exits with 64 and lists every mistake at once.

mod bugtool;
mod command;
mod command_line;
mod exit_status;
mod generate;
mod manual;
mod plugin;
mod stop;

#[cfg(test)]
mod documents;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::{ffi::OsString, pin::Pin};

use anyhow::bail;
use clap::CommandFactory as _;
use flannel_cluster_commands::{self as cluster, connectivity, lease};
pub use flannel_command::Answer;
use flannel_node_commands::{
    check, datapath, explain, flows, guard, maps, monitor, status, top, udp,
};
use flannel_options::RunOptions;
use flannel_setup_commands::{cleanup, docker_opts, install, prepare};

pub use self::{
    command::{Command, Once},
    command_line::{Cli, parse},
    exit_status::{CommandExit, EXIT_STATUSES, WRONG_USAGE},
    stop::Stop,
};

impl Once {
    /// Runs the command; what to print, and how to end.
    pub async fn run(&self) -> anyhow::Result<Answer> {
        match self {
            Self::Status(options) => status::run(options).await,
            Self::Maps(command) => maps::run(command).await,
            Self::Datapath(command) => datapath::run(command).await.map(Answer::from),
            Self::Guard(command) => guard::run(command).await.map(Answer::from),
            Self::Flows(command) => flows::run(command).await.map(Answer::from),
            Self::Bugtool(options) => bugtool::run(options, output_of).await.map(Answer::from),
            Self::Check(options) => check::run(options).await,
            Self::Explain(options) => Box::pin(explain::run(options)).await,
            Self::Monitor(options) => monitor::run(options).await.map(Answer::from),
            Self::Top(options) => top::run(options).await,
            Self::Cluster(command) => cluster::run(command).await,
            Self::Connectivity(command) => connectivity::run(command, options_of_agent).await,
            Self::Lease(command) => lease::run(command).await,
            Self::Cleanup(options) => cleanup::run(options).await.map(Answer::from),
            Self::Prepare(options) => Ok(prepare::run(options)?.into()),
            Self::DockerOpts(options) => docker_opts::run(options).await.map(Answer::from),
            Self::Install(options) => Ok(install::run(options)?.into()),
            Self::Completions(options) => {
                generate::completions(options, Cli::command()).map(Answer::from)
            }
            Self::Manual(options) => manual::manual(options, Cli::command()).map(Answer::from),
            Self::UdpTunnel(options) => udp::run(options).map(Answer::from),
        }
    }
}

/// The options of an agent with these arguments and this environment; none if they are not those of
/// an agent.
fn options_of_agent(
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
) -> Option<Box<RunOptions>> {
    match parse(arguments, environment) {
        Ok(Command::Run(options)) => Some(options),
        _ => None,
    }
}

/// Runs the command of a command line; the text that it prints.
fn output_of(line: Vec<OsString>) -> Pin<Box<dyn Future<Output = anyhow::Result<String>>>> {
    Box::pin(async {
        match parse(line, []) {
            Ok(Command::Once(command)) => Ok(command.run().await?.text),
            Ok(Command::Run(_)) => bail!("no command that ends"),
            Err(stop) if stop.code == 0 => Ok(stop.text),
            Err(stop) => bail!("{}", stop.text),
        }
    })
}
