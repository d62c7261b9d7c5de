//! The answer of an agent: a command in its pod whose output is one JSON document.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    client::ClusterClient,
    error::ExecError,
    exec::Container,
    members::{AgentPods, ClusterNode},
};

/// For the answer of one agent.
pub const LIMIT: Duration = Duration::from_secs(20);

/// An agent that does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// Its command has no result.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The output is not the expected document.
    #[error("`{command}` has no result that can be read: {said}")]
    Answer {
        /// The command, without its arguments.
        command: String,
        /// Its messages; without any, the error of the reader.
        said: String,
    },
}

impl ClusterClient {
    /// Runs a command of the agent in a container, and reads the document that it prints.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        container: &Container,
        command: &[&str],
        limit: Duration,
    ) -> Result<T, Silence> {
        let executed = self.exec(container, command, limit).await?;
        serde_json::from_slice(&executed.stdout).map_err(|error| {
            let said = executed.stderr.trim();
            let said = if said.is_empty() {
                error.to_string()
            } else {
                said.to_owned()
            };
            Silence::Answer {
                command: name(command),
                said,
            }
        })
    }
}

impl ClusterClient {
    /// Asks the agent of a node, until the deadline at most; `None` if no agent's pod runs there.
    pub async fn ask_node<T: DeserializeOwned>(
        &self,
        pods: &AgentPods,
        member: &ClusterNode,
        command: &[&str],
        deadline: Option<Instant>,
    ) -> Option<Result<T, Silence>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let container = member.running_agent(pods).ok()?;
        Some(
            self.ask(
                &container,
                command,
                left.map_or(LIMIT, |left| left.min(LIMIT)),
            )
            .await,
        )
    }
}

/// The program and its subcommand.
fn name(command: &[&str]) -> String {
    command.get(..2).unwrap_or(command).join(" ")
}
