//! `flannel-agent connectivity test`, and the hidden commands that run in its pods.

mod text;

use std::{net::IpAddr, time::Duration};

use anyhow::bail;
use clap::{Args, Subcommand};
use flannel_common::mode::Mode;
use flannel_host::duration;

use super::{Answer, NoResult, PrintOptions, cluster::ClusterAccess, json};
use crate::{
    cluster::progress::Progress,
    connectivity::{
        probe::probe,
        run::{TestSettings, run as run_test},
        serve::serve,
        target::Target,
    },
    options::OneOf,
};

/// The port of test pods: outside the ranges of NodePorts and of ephemeral ports.
const PORT: &str = "9473";

/// The subcommands of `connectivity`.
#[derive(Debug, Subcommand)]
pub enum ConnectivityCommand {
    /// Test packets between all nodes by short-lived pods: pod to pod, Service, node and outside,
    /// and the MTU. Ends with 0 if all is well, 1 after a failure, 2 if it could not run
    Test(Box<TestOptions>),
    /// Answer probes, in a test pod
    #[command(hide = true)]
    Serve(ServeOptions),
    /// Probe targets, in a test pod
    #[command(hide = true)]
    Probe(ProbeOptions),
}

/// The checks, the pods and the cluster.
#[derive(Debug, Args)]
pub struct TestOptions {
    /// Modes to switch all nodes to, one after the other, and back: kernel, encap, fast; else the
    /// one in force
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', value_parser = OneOf::new(["kernel", "encap", "fast"], parse_mode), hide_possible_values = true)]
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
    /// Not built: a test without Kubernetes
    #[arg(long, hide = true)]
    etcd: bool,
    #[command(flatten)]
    access: ClusterAccess,
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
    let is_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_valid = text.rsplit_once(':').is_some_and(is_port);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "expected HOST:PORT, such as example.com:443".to_owned())
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|error: <Mode as std::str::FromStr>::Err| error.to_string())
}

/// Runs the command.
pub(super) async fn run(command: &ConnectivityCommand) -> anyhow::Result<Answer> {
    match command {
        ConnectivityCommand::Test(options) => {
            test(options).await.map_err(|error| error.context(NoResult("the connectivity test could not run")))
        }
        ConnectivityCommand::Serve(options) => {
            serve(&options.name, &options.addresses, options.port).await?;
            Ok(String::new().into())
        }
        ConnectivityCommand::Probe(options) => Ok(json(&probe(&options.targets, options.patience).await).into()),
    }
}

async fn test(options: &TestOptions) -> anyhow::Result<Answer> {
    if options.etcd {
        bail!(
            "a test without Kubernetes is not built: with etcd nothing starts pods on other nodes; use \
             `flannel-agent explain` on both nodes"
        );
    }
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
    let text = options.print.print(&report, |paint| text::text(&report, paint));
    Ok(Answer { text, code: u8::from(!report.ok) })
}
