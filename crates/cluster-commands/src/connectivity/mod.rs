//! `flannel-agent connectivity test` and `hosts`, and the hidden commands that run in their pods
//! and namespaces.

mod agent_options;
mod text;

use std::{fs, net::IpAddr, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use flannel_cluster::progress::Progress;
use flannel_command::{Answer, NoResult, PrintOptions, StateOptions};
use flannel_common::abi::mode::Mode;
use flannel_connectivity::{
    hosts::{self, HostSettings, Quorum},
    probe::probe,
    run::{TestReport, TestSettings, run as run_test},
    serve::serve,
    target::Target,
};
use flannel_host::duration;
use flannel_options::OneOf;

use crate::access::ClusterAccess;

/// The port of test pods: outside the ranges of NodePorts and of ephemeral ports.
const PORT: &str = "9473";

pub use self::agent_options::ParseAgent;

/// The subcommands of `connectivity`.
#[derive(Debug, Subcommand)]
pub enum ConnectivityCommand {
    /// Test packets between all nodes by short-lived pods: pod to pod, Service, node and outside,
    /// and the MTU
    Test(Box<TestOptions>),
    /// Test packets between hosts without Kubernetes: run this on each of them at about the same
    /// time. They meet in etcd, and each prints the whole result
    Hosts(Box<HostsOptions>),
    /// Answer probes, in a test pod
    #[command(hide = true)]
    Serve(ServeOptions),
    /// Probe targets, in a test pod
    #[command(hide = true)]
    Probe(ProbeOptions),
    /// Be a test namespace of this host
    #[command(hide = true)]
    Namespace,
}

/// The checks, the pods and the cluster.
#[derive(Debug, Args)]
pub struct TestOptions {
    /// Modes to switch all nodes to, one after the other, and back: kernel, encap, fast; else the
    /// test uses the active mode
    #[arg(
        long,
        value_name = "MODE,...",
        value_delimiter = ',',
        value_parser = OneOf::new(["kernel", "encap", "fast"], parse_mode),
        hide_possible_values = true,
    )]
    modes: Vec<Mode>,
    /// Nodes to test, by name; else all, which may be a hundred
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    nodes: Vec<String>,
    /// A TCP server outside the cluster that pods have to reach
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    outside: Option<String>,
    /// Image of the test pods, with this program; else that of the agents
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Port of the servers in the test pods, which has to be free on each node
    #[arg(long, value_name = "PORT", default_value = PORT)]
    port: u16,
    /// Time for the test pods to start: seconds, or for example 5m
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    start_limit: Duration,
    #[command(flatten)]
    access: ClusterAccess,
    #[command(flatten)]
    print: PrintOptions,
}

/// The checks, this host and the agent on it.
#[derive(Debug, Args)]
pub struct HostsOptions {
    /// Hosts to wait for; else as many as have a lease
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(2..))]
    hosts: Option<u16>,
    /// Longest wait for these hosts, after which the test begins with the hosts that have answered:
    /// seconds, or for example 5m
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    start_limit: Duration,
    /// Modes to switch all hosts to, one after the other, and back: kernel, encap, fast; else the
    /// test uses the active mode. The modes given on the host that begins count
    #[arg(
        long,
        value_name = "MODE,...",
        value_delimiter = ',',
        value_parser = OneOf::new(["kernel", "encap", "fast"], parse_mode),
        hide_possible_values = true,
    )]
    modes: Vec<Mode>,
    /// A TCP server outside the pod network that containers have to reach; that of the host that
    /// begins counts
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    outside: Option<String>,
    /// Name of this host in the result [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Bridge of this host's containers [default: the one with an address of its subnet]
    #[arg(long, value_name = "DEVICE")]
    bridge: Option<String>,
    /// Port of the servers, which has to be free on each host and the same for all
    #[arg(long, value_name = "PORT", default_value = PORT)]
    port: u16,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    print: PrintOptions,
}

/// The server in a test pod.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// The name in its answers
    #[arg(long)]
    name: String,
    /// The addresses to listen on; all if none is given
    #[arg(long = "address")]
    addresses: Vec<IpAddr>,
    /// The port of TCP and UDP
    #[arg(long)]
    port: u16,
}

/// The probes of a test pod.
#[derive(Debug, Args)]
pub struct ProbeOptions {
    /// The time for a target to answer for the first time
    #[arg(long, value_parser = duration::parse)]
    patience: Duration,
    /// KEY=KIND:ADDRESS
    targets: Vec<Target>,
}

/// Checks that there is a port, before pods are made that would find out.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_port = |(host, port): (&str, &str)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let is_valid = text.rsplit_once(':').is_some_and(is_port);
    is_valid
        .then(|| text.to_owned())
        .ok_or_else(|| "expected HOST:PORT, such as example.com:443".to_owned())
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|error: <Mode as std::str::FromStr>::Err| error.to_string())
}

/// Runs the command.
pub async fn run(command: &ConnectivityCommand, parse_agent: ParseAgent) -> anyhow::Result<Answer> {
    match command {
        ConnectivityCommand::Test(options) => test(options)
            .await
            .map_err(|error| error.context(NoResult("the connectivity test could not run"))),
        ConnectivityCommand::Hosts(options) => Box::pin(hosts(options, parse_agent))
            .await
            .map_err(|error| error.context(NoResult("the connectivity test could not run"))),
        ConnectivityCommand::Namespace => {
            hosts::inside::run().await?;
            Ok(String::new().into())
        }
        ConnectivityCommand::Serve(options) => {
            serve(&options.name, &options.addresses, options.port).await?;
            Ok(String::new().into())
        }
        ConnectivityCommand::Probe(options) => {
            let outcomes = probe(&options.targets, options.patience).await;
            Ok((serde_json::to_string(&outcomes)? + "\n").into())
        }
    }
}

async fn test(options: &TestOptions) -> anyhow::Result<Answer> {
    let settings = TestSettings {
        agents: options.access.pods(),
        nodes: options.nodes.clone(),
        image: options.image.clone(),
        port: options.port,
        modes: options.modes.iter().map(ToString::to_string).collect(),
        outside: options.outside.clone(),
        start_limit: options.start_limit,
    };
    let client = options.access.client().await?;
    let mut progress = Progress::new();
    let report = run_test(&client, &settings, &mut progress).await?;
    drop(progress);
    Ok(answer(&report, options.print))
}

async fn hosts(options: &HostsOptions, parse_agent: ParseAgent) -> anyhow::Result<Answer> {
    let agent = agent_options::local_agent(&options.state.state_dir, parse_agent).await?;
    let settings = HostSettings {
        name: options.name.clone().map_or_else(host_name, Ok)?,
        bridge: options.bridge.clone(),
        port: options.port,
        modes: options.modes.iter().map(ToString::to_string).collect(),
        outside: options.outside.clone(),
        quorum: Quorum {
            hosts: options.hosts.map(usize::from),
            limit: options.start_limit,
        },
    };
    let mut progress = Progress::new();
    let report = hosts::run(&agent, &settings, &mut progress).await?;
    drop(progress);
    Ok(answer(&report, options.print))
}

fn host_name() -> anyhow::Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let name = fs::read_to_string(path)
        .with_context(|| format!("cannot read {path}: name this host by --name"))?;
    Ok(name.trim().to_owned())
}

fn answer(report: &TestReport, print: PrintOptions) -> Answer {
    Answer {
        text: print.print(report, |paint| text::text(report, paint)),
        code: u8::from(!report.ok),
    }
}
