//! The options of the command, and the commands on nodes that they lead to. Pure.

use clap::Args;
use flannel_command::PrintOptions;
use flannel_node_commands::flows::{FollowOptions, NamedFilter, VerdictChoice};

use crate::access::ClusterAccess;

/// The flows to show, the output format, and the cluster.
#[derive(Debug, Args)]
pub struct ClusterFlowsOptions {
    #[command(flatten)]
    filter: NamedFilter,
    /// Flows with a pod or a Service in this namespace
    #[arg(short = 'N', long, value_name = "NAME")]
    pod_namespace: Option<String>,
    /// Flows with this outcome; needs --follow
    #[arg(long, value_enum, value_name = "VERDICT", requires = "follow")]
    verdict: Option<VerdictChoice>,
    #[command(flatten)]
    pub(super) follow: FollowOptions,
    /// The most flows, the busiest first; each node is asked for this number
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        conflicts_with = "follow"
    )]
    pub(super) rows: usize,
    /// Print addresses, and look no names up
    #[arg(long)]
    no_names: bool,
    #[command(flatten)]
    pub(super) print: PrintOptions,
    #[command(flatten)]
    pub(super) access: ClusterAccess,
}

impl ClusterFlowsOptions {
    /// Returns the mistake in the options, if there is one.
    pub(crate) fn mistake(&self) -> Option<String> {
        let has = self.no_names && (self.pod_namespace.is_some() || self.filter.has_names());
        has.then(|| {
            "--pod, --pod-namespace, --node and --service need names: leave --no-names out"
                .to_owned()
        })
    }

    /// The command that is run on each node.
    pub(super) fn command(&self) -> Vec<String> {
        self.words([format!("--rows={}", self.rows)])
    }

    /// The command that is run on each node to follow its flows.
    pub(super) fn follow_command(&self) -> Vec<String> {
        let verdict = self.verdict.map(|verdict| verdict.flag().to_owned());
        let flags = [
            "--follow".to_owned(),
            "--remote".to_owned(),
            format!("--rate={}", self.follow.rate),
        ];
        self.words(flags.into_iter().chain(verdict))
    }

    /// `flows list` with these flags and the filters.
    fn words(&self, flags: impl IntoIterator<Item = String>) -> Vec<String> {
        let words = ["flannel-agent", "flows", "list", "--output=json"]
            .map(str::to_owned)
            .into_iter();
        let namespace = self
            .pod_namespace
            .as_ref()
            .map(|name| format!("--namespace={name}"));
        let names = self.no_names.then(|| "--no-names".to_owned());
        words
            .chain(flags)
            .chain(self.filter.flags())
            .chain(namespace)
            .chain(names)
            .collect()
    }
}
