//! The commands on all nodes: `cluster`, through the API server; `connectivity`, the test of the
//! pod network; and `lease`, the leases in etcd.

mod access;
mod bugtool;
pub mod connectivity;
mod explain;
mod flows;
pub mod lease;
mod status;
mod top;

use clap::Subcommand;
use flannel_command::{Answer, NoResult};

pub use self::access::ClusterAccess;

/// The subcommands of `cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Print the state of all nodes, compared with each other: problems first, then mode, version
    /// and lease
    Status(status::ClusterStatusOptions),
    /// Write one archive with the state of the cluster and the `bugtool` archive of each node
    Bugtool(bugtool::ClusterBugtoolOptions),
    /// Explain the way of a packet between two pods on the nodes of both
    Explain(Box<explain::ClusterExplainOptions>),
    /// Show the busiest nodes, pairs of nodes and flows live, with the problems of all nodes
    Top(Box<top::ClusterTopOptions>),
    /// Print the busiest flows of all nodes with the names of their ends; with --follow new, active
    /// and ended flows and dropped packets of all nodes as they happen
    Flows(Box<flows::ClusterFlowsOptions>),
}

/// Returns the mistake that the parser cannot detect, if there is one.
pub fn mistake(command: &ClusterCommand) -> Option<String> {
    match command {
        ClusterCommand::Explain(options) => explain::mistake(options),
        ClusterCommand::Flows(options) => options.mistake(),
        ClusterCommand::Status(_) | ClusterCommand::Bugtool(_) | ClusterCommand::Top(_) => None,
    }
}

/// Runs the command.
pub async fn run(command: &ClusterCommand) -> anyhow::Result<Answer> {
    let (answer, failed) = match command {
        ClusterCommand::Status(options) => {
            (status::run(options).await, "the cluster cannot be asked")
        }
        ClusterCommand::Bugtool(options) => (
            bugtool::run(options).await.map(Answer::from),
            "there is no archive",
        ),
        ClusterCommand::Explain(options) => (
            Box::pin(explain::run(options)).await,
            "the packet cannot be explained",
        ),
        ClusterCommand::Top(options) => (
            Box::pin(top::run(options)).await.map(Answer::from),
            "there are no rates",
        ),
        ClusterCommand::Flows(options) => {
            (Box::pin(flows::run(options)).await, "there are no flows")
        }
    };
    answer.map_err(|error| error.context(NoResult(failed)))
}
