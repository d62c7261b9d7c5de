//! `flannel-agent cluster flows`: the busiest flows of all nodes, each with the nodes that know it.
//!
//! One `flannel-agent flows list -o json` runs on each node, with the filters of this command.
//! [`merge`] makes one list of the documents. Nodes that do not answer are named, and the exit
//! status is 2 then: their flows are not known. With `--follow`, [`follow`] prints events instead.

mod follow;
mod merge;
mod report;
#[cfg(test)]
mod tests;

use clap::Args;
use flannel_cluster::{
    AT_ONCE,
    answer::Silence,
    client::ClusterClient,
    members::{AgentPods, ClusterNode},
    progress::Progress,
    report::ServedBy,
};
use flannel_command::{Answer, NoResult, PrintOptions};
use flannel_host::error_chain::chain;
use flannel_node_commands::flows::{FlowsDocument, FollowOptions, NamedFilter, VerdictChoice};
use futures::{StreamExt as _, stream};

use self::report::{ClusterFlows, NodeFlows};
use super::ClusterAccess;

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
    follow: FollowOptions,
    /// The most flows, the busiest first; each node is asked for this number
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        conflicts_with = "follow"
    )]
    rows: usize,
    /// Print addresses, and look no names up
    #[arg(long)]
    no_names: bool,
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    access: ClusterAccess,
}

impl ClusterFlowsOptions {
    /// Returns the mistake in the options, if there is one.
    pub(super) fn mistake(&self) -> Option<String> {
        let has = self.no_names && (self.pod_namespace.is_some() || self.filter.has_names());
        has.then(|| {
            "--pod, --pod-namespace, --node and --service need names: leave --no-names out"
                .to_owned()
        })
    }

    /// The command that is run on each node.
    fn command(&self) -> Vec<String> {
        self.words([format!("--rows={}", self.rows)])
    }

    /// The command that is run on each node to follow its flows.
    fn follow_command(&self) -> Vec<String> {
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

/// Runs the command; the text to print, and 0 if every node answered.
pub(super) async fn run(options: &ClusterFlowsOptions) -> anyhow::Result<Answer> {
    if options.follow.follow {
        return follow::run(options).await;
    }
    let report = ask(
        &options.access.client().await?,
        &options.access.pods(),
        options,
    )
    .await?;
    let code = if report.complete { 0 } else { NoResult::CODE };
    Ok(Answer {
        text: options.print.print(&report, |paint| report.text(paint)),
        code,
    })
}

/// Asks every node.
async fn ask(
    client: &ClusterClient,
    pods: &AgentPods,
    options: &ClusterFlowsOptions,
) -> anyhow::Result<ClusterFlows> {
    let members = client.nodes(pods).await?;
    let command = options.command();
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let asked = stream::iter(&members)
        .map(async |member| (member, client.ask_node(pods, member, &words, None).await));
    let (mut progress, mut asked) = (Progress::new(), std::pin::pin!(asked.buffered(AT_ONCE)));
    let (mut nodes, mut documents) = (Vec::new(), Vec::new());
    while let Some((member, answer)) = asked.next().await {
        let (node, document) = judge(member, pods, answer);
        nodes.push(node);
        documents.extend(document.map(|document| (member.name().to_owned(), document)));
        progress.show(&format!("{} of {} nodes asked", nodes.len(), members.len()));
    }
    Ok(ClusterFlows::new(nodes, documents, options.rows))
}

/// The row of a node, and its document if it answered.
fn judge(
    member: &ClusterNode,
    pods: &AgentPods,
    answer: Option<Result<FlowsDocument, Silence>>,
) -> (NodeFlows, Option<FlowsDocument>) {
    let row = |served_by, flows, reason| NodeFlows {
        node: member.name().to_owned(),
        served_by,
        flows,
        reason,
    };
    match answer {
        Some(Ok(document)) => {
            let flows = document.flows.len() + document.left_out;
            (
                row(ServedBy::FlannelAgent, Some(flows), None),
                Some(document),
            )
        }
        Some(Err(Silence::Exec(error))) if error.lacks_program() => {
            (row(ServedBy::StockFlannel, None, None), None)
        }
        Some(Err(silence)) => (row(ServedBy::Unknown, None, Some(chain(&silence))), None),
        None => {
            let absence = member
                .running_agent(pods)
                .err()
                .map(|absence| absence.to_string());
            (row(ServedBy::Unknown, None, absence), None)
        }
    }
}
