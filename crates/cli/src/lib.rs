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
mod exit_status;
mod generate;
mod manual;
mod plugin;

#[cfg(test)]
mod documents;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory as _, FromArgMatches, Parser, Subcommand};
use flannel_cluster_commands::{self as cluster, connectivity, lease};
pub use flannel_command::Answer;
use flannel_node_commands::{
    check, datapath, explain, flows, guard, maps, monitor, status, top, udp,
};
use flannel_options::{RunFlags, RunOptions, go_style};
use flannel_setup_commands::{cleanup, docker_opts, install, prepare};

pub use self::exit_status::{CommandExit, EXIT_STATUSES, WRONG_USAGE};

/// Names that programs of flannel's image have, each with the subcommand that takes its arguments.
const NAMES: [(&str, &str); 2] = [("flanneld", "run"), ("install-conf", "install")];

/// The command that the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Run the daemon.
    Run(Box<RunOptions>),
    /// Look or tidy up, print, and end.
    Once(Once),
}

/// The subcommands that do without an agent's work: they look or tidy up, and end.
#[derive(Debug, Subcommand)]
pub enum Once {
    /// Print the state of this node: lease, peers, datapath mode, and what is wrong
    Status(status::StatusOptions),
    /// Look into the BPF maps
    #[command(subcommand)]
    Maps(maps::MapsCommand),
    /// Print or set the datapath mode
    #[command(subcommand)]
    Datapath(datapath::DatapathCommand),
    /// Print or set what is done about tunnel packets that come from no peer
    #[command(subcommand)]
    Guard(guard::GuardCommand),
    /// Print the flows of this node with names, once or live, as `flows list` does, or discard what
    /// mode `fast` has learned
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// Write one archive for a bug report; passwords, tokens and keys are left out
    Bugtool(bugtool::BugtoolOptions),
    /// Say what this host can do and what stands in the way; needs no agent
    Check(check::CheckOptions),
    /// Show what would happen to a packet on this node, and why
    Explain(explain::ExplainOptions),
    /// Show packets as the programs see them, live: which program, what became of them and why
    Monitor(monitor::MonitorOptions),
    /// Show rates live: peers, flows, the share of the fast path, drops; needs no agent
    Top(top::TopOptions),
    /// Look at all nodes of a Kubernetes cluster, through kubeconfig
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Test the pod network of a Kubernetes cluster, through kubeconfig
    #[command(subcommand)]
    Connectivity(connectivity::ConnectivityCommand),
    /// List, show and release the leases of nodes in etcd
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Remove everything the agent made on this node; refuses while it runs. The lease in the store
    /// and subnet.env stay
    Cleanup(cleanup::CleanupOptions),
    /// Do for an agent what it may not: mount the bpf filesystem and set the sysctls mode `fast`
    /// needs, in an init container
    Prepare(prepare::PrepareOptions),
    /// Write the options of the Docker daemon that subnet.env asks for, as mk-docker-opts.sh does
    DockerOpts(docker_opts::DockerOptions),
    /// Copy a file atomically to where others look for it, such as the CNI plugin to the host
    Install(install::InstallOptions),
    /// Print what lets a shell complete this command line
    Completions(generate::CompletionOptions),
    /// Write the manual pages
    Manual(manual::ManualOptions),
    /// Carry the packets of the backend udp; the agent starts it
    #[command(hide = true)]
    UdpTunnel(udp::UdpTunnelOptions),
}

impl Once {
    /// Runs the command; what to print, and how to end.
    pub async fn run(&self) -> anyhow::Result<Answer> {
        match self {
            Self::Status(options) => status::run(options).await,
            Self::Maps(command) => maps::run(command).await,
            Self::Datapath(command) => datapath::run(command).await.map(Answer::from),
            Self::Guard(command) => guard::run(command).await.map(Answer::from),
            Self::Flows(command) => flows::run(command).await.map(Answer::from),
            Self::Bugtool(options) => bugtool::run(options).await.map(Answer::from),
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
            Self::Completions(options) => generate::completions(options).map(Answer::from),
            Self::Manual(options) => manual::manual(options).map(Answer::from),
            Self::UdpTunnel(options) => udp::run(options).map(Answer::from),
        }
    }

    /// The command, unless its arguments do not go together.
    fn checked(self) -> Result<Command, Stop> {
        let mistake = self
            .mistake()
            .map(|text| Stop::usage(&format!("error: {text}\n")));
        mistake.map_or(Ok(Command::Once(self)), Err)
    }

    /// Returns the mistake that the parser cannot detect, if there is one: arguments that do not go
    /// together.
    fn mistake(&self) -> Option<String> {
        match self {
            Self::Maps(command) => maps::mistake(command),
            Self::Explain(options) => explain::mistake(options),
            Self::Flows(command) => flows::mistake(command),
            Self::Cluster(command) => cluster::mistake(command),
            _ => None,
        }
    }
}

/// The exit code of wrong usage: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// The process ends here, with a text to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The exit code: 0 for help and version, 64 for wrong usage.
    pub code: u8,
    /// True if the text belongs on standard error.
    pub to_stderr: bool,
    /// The text, with its final newline.
    pub text: String,
}

impl Stop {
    fn usage(text: &str) -> Self {
        Self {
            code: USAGE,
            to_stderr: true,
            text: text.to_owned(),
        }
    }

    /// Prints the text and yields the exit code, which a reader that has gone away does not change.
    pub fn report(&self) -> ExitCode {
        let text = self.text.as_bytes();
        let _ = if self.to_stderr {
            io::stderr().write_all(text)
        } else {
            io::stdout().write_all(text)
        };
        ExitCode::from(self.code)
    }
}

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

/// Parses arguments (the first is the program) by a description.
fn parsed<T: FromArgMatches>(mut command: clap::Command, args: Vec<OsString>) -> Result<T, Stop> {
    let matches = command.try_get_matches_from_mut(args);
    let value = matches.and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    value.map_err(|error| from_clap(&error.format(&mut command)))
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

fn from_clap(error: &clap::Error) -> Stop {
    Stop {
        code: if error.use_stderr() { USAGE } else { 0 },
        to_stderr: error.use_stderr(),
        text: error.to_string(),
    }
}
