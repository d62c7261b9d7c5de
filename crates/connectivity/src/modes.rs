//! The mode of all nodes during a run, and the way back.

use std::time::Duration;

use flannel_cluster::{
    AT_ONCE, answer::Silence, client::ClusterClient, exec::Container, report::agent_status,
};
use flannel_host::error_chain::chain;
use flannel_status::{ModeSource, ModeStatus};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};

/// For one command.
const LIMIT: Duration = Duration::from_secs(20);
/// For the agent to notice a new choice.
pub(super) const SETTLED: Duration = Duration::from_secs(15);
pub(super) const PERIOD: Duration = Duration::from_millis(200);

/// A node that runs flannel-agent.
#[derive(Clone, Debug)]
pub struct Switchable {
    /// The name of the node.
    pub node: String,
    /// The agent's container.
    pub agent: Container,
    /// The mode before the test.
    pub before: ModeStatus,
}

/// Asks an agent for its mode.
pub async fn switchable(
    client: &ClusterClient,
    node: &str,
    agent: Container,
) -> Result<Switchable, Silence> {
    let status = agent_status(client, &agent, LIMIT).await?;
    Ok(Switchable {
        node: node.to_owned(),
        agent,
        before: status.mode,
    })
}

/// Switches all nodes to a mode. Returns a line for each node that is in another mode.
pub async fn set(client: &ClusterClient, nodes: &[Switchable], mode: &str) -> Vec<String> {
    let notes = stream::iter(nodes)
        .map(|node| set_on(client, node, mode))
        .buffered(AT_ONCE);
    notes.filter_map(async |note| note).collect().await
}

/// The choice that sets a node back to the mode it had: the one made at run time, else none.
pub fn choice_before(before: &ModeStatus) -> String {
    match before.source {
        ModeSource::RunTime => before.wanted.clone(),
        ModeSource::NodeAnnotation
        | ModeSource::Flag
        | ModeSource::NetworkConfig
        | ModeSource::Default => "auto".to_owned(),
    }
}

/// Sets every node back to its choice before the test; a line for each node where that failed.
pub async fn restore(client: &ClusterClient, nodes: &[Switchable]) -> Vec<String> {
    let problems = stream::iter(nodes).map(async |node| {
        let choice = choice_before(&node.before);
        let problem = choose(client, node, &choice).await.err()?;
        Some(format!(
            "{}: the mode was not set back: {problem}; run `flannel-agent datapath set {choice}` \
             there",
            node.node
        ))
    });
    problems
        .buffered(AT_ONCE)
        .filter_map(async |problem| problem)
        .collect()
        .await
}

async fn set_on(client: &ClusterClient, node: &Switchable, mode: &str) -> Option<String> {
    if let Err(problem) = choose(client, node, mode).await {
        return Some(format!(
            "{} stays in mode {}: {problem}",
            node.node, node.before.effective
        ));
    }
    let deadline = Instant::now() + SETTLED;
    loop {
        match agent_status(client, &node.agent, LIMIT).await {
            Ok(status) if status.mode.effective == mode => return None,
            Ok(status) if status.mode.wanted == mode && Instant::now() >= deadline => {
                let reason = status
                    .mode
                    .reason
                    .unwrap_or_else(|| "no reason is known".to_owned());
                return Some(format!(
                    "{} is in mode {}: {reason}",
                    node.node, status.mode.effective
                ));
            }
            Err(silence) if Instant::now() >= deadline => {
                return Some(format!("{}: {}", node.node, chain(&silence)));
            }
            _ if Instant::now() >= deadline => {
                return Some(format!("{} did not take mode {mode}", node.node));
            }
            _ => sleep(PERIOD).await,
        }
    }
}

async fn choose(client: &ClusterClient, node: &Switchable, choice: &str) -> Result<(), String> {
    let command = ["flannel-agent", "datapath", "set", choice];
    match client.exec(&node.agent, &command, LIMIT).await {
        Ok(executed) if executed.code == 0 => Ok(()),
        Ok(executed) => Err(executed.stderr.trim().to_owned()),
        Err(error) => Err(chain(&error)),
    }
}
