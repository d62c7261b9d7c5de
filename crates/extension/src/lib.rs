//! The commands of the backend extension, which carry the packets of pods in its stead.
//!
//! Two run once at the start ([`before_lease`], [`after_lease`]). The others run for peers that
//! come, change and go, one at a time, in a separate task ([`ExtensionCommands`]): a command may
//! take long, and the main loop does not wait for it. Each peer that a command was run for is
//! recorded in the state directory, so that the next agent, or `cleanup`, can run the command that
//! undoes it.

mod environment;
mod error;
mod limits;
mod peers;
mod record;
mod routes;
mod run;
mod shared;
mod worker;

use std::path::Path;

use flannel_store::{Changes, LeaseKey, RawJson, config::ExtensionConfig};
use tokio::sync::{mpsc, watch};

pub use self::{
    environment::{Networks, NodeFacts},
    error::ExtensionError,
    record::{Recorded, recorded, undo},
    routes::RouteWatchSetup,
    shared::SharedExtensionStatus,
};
use self::{
    error::Key,
    limits::PATIENCE,
    record::Records,
    routes::RouteWatch,
    run::{Job, run},
    worker::{CommandRequest, CommandWorker},
};

/// Runs `PreStartupCommand`. Returns what it printed, which peers get: a JSON text.
pub async fn before_lease(
    config: &ExtensionConfig,
    networks: Networks,
    node: &NodeFacts,
) -> Result<Option<RawJson>, ExtensionError> {
    let Some(command) = &config.pre_startup else {
        return Ok(None);
    };
    let printed = run(&Job {
        key: Key::PreStartup,
        command,
        networks,
        node,
        input: None,
        patience: PATIENCE,
    })
    .await?;
    tracing::info!(%command, bytes = printed.len(), "PreStartupCommand done");
    Ok(Some(RawJson::of_text(&printed)))
}

/// Runs `PostStartupCommand`.
pub async fn after_lease(
    config: &ExtensionConfig,
    networks: Networks,
    node: &NodeFacts,
) -> Result<(), ExtensionError> {
    let Some(command) = &config.post_startup else {
        return Ok(());
    };
    run(&Job {
        key: Key::PostStartup,
        command,
        networks,
        node,
        input: None,
        patience: PATIENCE,
    })
    .await?;
    tracing::info!(%command, "PostStartupCommand done");
    Ok(())
}

/// The main loop's side of the tasks that run commands for peers and ask for the routes to them.
/// The tasks end with it; a command that runs then goes on.
#[derive(Debug)]
pub struct ExtensionCommands {
    requests: mpsc::UnboundedSender<CommandRequest>,
    own: watch::Sender<LeaseKey>,
}

impl ExtensionCommands {
    /// Starts the tasks.
    pub fn start(
        config: ExtensionConfig,
        networks: Networks,
        state_dir: &Path,
        shared: SharedExtensionStatus,
        setup: RouteWatchSetup,
    ) -> Result<Self, ExtensionError> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (own, subnets) = watch::channel(LeaseKey::default());
        let worker = CommandWorker::new(config, networks, Records::new(state_dir), shared.clone())?;
        tokio::spawn(worker.run(receiver));
        tokio::spawn(RouteWatch::new(setup, shared, subnets).run());
        Ok(Self { requests, own })
    }

    /// Takes in this node's subnets, and which peers are new, different or gone.
    pub fn learn(&self, own: LeaseKey, changes: &Changes, in_sync: bool) {
        self.own
            .send_if_modified(|known| std::mem::replace(known, own) != own);
        let request = CommandRequest {
            all: changes.all,
            peers: changes.peers.clone(),
            in_sync,
        };
        // The task ends after this value only.
        let _ = self.requests.send(request);
    }
}
