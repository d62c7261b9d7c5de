//! The commands of the backend extension, which carry the packets of pods in its stead.
//!
//! Two run once at the start ([`before_lease`], [`after_lease`]). The others run for peers that
//! come, change and go, one at a time, in a separate task ([`ExtensionCommands`]): a command may
//! take long, and the main loop does not wait for it. Each peer that a command was run for is
//! recorded in the state directory, so that the next agent, or `cleanup`, can run the command that
//! undoes it.

mod environment;
mod error;
mod peers;
mod record;
mod run;
mod shared;
mod worker;

use std::path::Path;

use flannel_store::{Changes, RawJson, config::ExtensionConfig};
use tokio::sync::mpsc;

pub use self::{
    environment::{Networks, NodeFacts},
    error::ExtensionError,
    record::{Recorded, recorded, undo},
    shared::SharedExtensionStatus,
};
use self::{
    error::Key,
    record::Records,
    run::{Job, PATIENCE, run},
    worker::{CommandRequest, CommandWorker},
};

/// Runs `PreStartupCommand`. Returns what it printed, which peers get: a JSON text.
pub async fn before_lease(
    config: &ExtensionConfig,
    networks: Networks,
    node: &NodeFacts,
) -> Result<Option<RawJson>, ExtensionError> {
    let Some(command) = &config.pre_startup else { return Ok(None) };
    let printed = run(&Job { key: Key::PreStartup, command, networks, node, input: None, patience: PATIENCE }).await?;
    tracing::info!(%command, bytes = printed.len(), "PreStartupCommand done");
    Ok(Some(RawJson::of_text(&printed)))
}

/// Runs `PostStartupCommand`.
pub async fn after_lease(config: &ExtensionConfig, networks: Networks, node: &NodeFacts) -> Result<(), ExtensionError> {
    let Some(command) = &config.post_startup else { return Ok(()) };
    run(&Job { key: Key::PostStartup, command, networks, node, input: None, patience: PATIENCE }).await?;
    tracing::info!(%command, "PostStartupCommand done");
    Ok(())
}

/// The main loop's side of the task that runs commands for peers. The task ends with it; a command
/// that runs then goes on.
#[derive(Debug)]
pub struct ExtensionCommands {
    requests: mpsc::UnboundedSender<CommandRequest>,
}

impl ExtensionCommands {
    /// Starts the task.
    pub fn start(
        config: ExtensionConfig,
        networks: Networks,
        state_dir: &Path,
        shared: SharedExtensionStatus,
    ) -> Result<Self, ExtensionError> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let worker = CommandWorker::new(config, networks, Records::new(state_dir), shared)?;
        tokio::spawn(worker.run(receiver));
        Ok(Self { requests })
    }

    /// Takes in which peers are new, different or gone.
    pub fn learn(&self, changes: &Changes, in_sync: bool) {
        let request = CommandRequest { all: changes.all, peers: changes.peers.clone(), in_sync };
        // The task ends after this value only.
        let _ = self.requests.send(request);
    }
}
