//! `flannel-agent cluster flows`: the busiest flows of all nodes, each with the nodes that know it.
//!
//! One `flannel-agent flows list -o json` runs on each node, with the filters of this command.
//! [`merge`] makes one list of the documents. Nodes that do not answer are named, and the exit
//! status is 2 then: their flows are not known. With `--follow`, [`follow`] prints events instead.

mod follow;
mod merge;
mod options;
mod report;
mod reported_flow;
#[cfg(test)]
mod tests;

use flannel_cluster::{
    AT_ONCE,
    answer::Silence,
    client::ClusterClient,
    members::{AgentPods, ClusterNode},
    progress::Progress,
    report::ServedBy,
};
use flannel_command::{Answer, NoResult};
use flannel_host::error_chain::chain;
use flannel_node_commands::flows::FlowsDocument;
use futures::{StreamExt as _, stream};

pub(super) use self::options::ClusterFlowsOptions;
use self::report::{ClusterFlows, NodeFlows};

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
