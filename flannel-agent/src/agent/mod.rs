//! The daemon: start-up, the main loop, and the end that leaves the datapath running.
//!
//! One loop owns the leases and the reconciler. The store's task and the kernel's event task only send it what happened;
//! every write to the kernel and to the maps is made here, so nothing has to be locked and the order is the program's.

mod bpf;
mod external;
mod guard;
mod host_addresses;
mod main_loop;
pub mod privileges;
mod published;
mod report;
mod start;
pub mod state_dir;
mod store;
pub(crate) mod sysctl;

use anyhow::Context as _;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{
    cli::RunOptions,
    datapath::PinRoot,
    observe::{
        health::{HealthServer, Readiness},
        metrics::{Counts, Metrics},
        notify::{ServiceManager, State},
        pulse::Pulse,
        socket,
        status::Status,
    },
    reconcile::PeerBook,
};
use state_dir::StateDir;

/// Runs until SIGTERM or SIGINT, or until start-up fails for good.
pub async fn run(options: RunOptions) -> anyhow::Result<()> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    privileges::check()?;
    if options.etcd.uses_tls() {
        options.etcd.tls.check().await.context("cannot use TLS with etcd")?;
    }
    let _state = StateDir::claim(&options.state_dir)?;
    let (publish, status) = watch::channel(Status::starting(&options));
    let listener = socket::bind(&options.state_dir)
        .with_context(|| format!("cannot open {}", socket::path(&options.state_dir).display()))?;
    let pulse = Pulse::start();
    let (book, counts) = (PeerBook::default(), Counts::new().context("cannot count")?);
    let readiness = Readiness::new(status.clone(), pulse.clone());
    let metrics = Metrics::new(readiness.clone(), book.clone(), counts.clone(), PinRoot::new(&options.bpf_pin_root));
    let _health = health(&options, readiness, metrics)?;
    let manager = ServiceManager::of_environment();
    tokio::spawn(manager.clone().await_ready(status.clone()));
    let answering = tokio::spawn(socket::serve(listener, document(status, book.clone())));
    let result = tokio::select! {
        result = daemon(&options, &publish, &pulse, &book, &counts) => result,
        signal = stop.wait() => {
            tracing::info!(signal, "stopping; the datapath goes on without the agent");
            manager.tell(State::Stopping);
            Ok(())
        }
    };
    answering.abort();
    if let Err(error) = std::fs::remove_file(socket::path(&options.state_dir)) {
        tracing::debug!(%error, "the status socket stays behind");
    }
    result
}

/// The whole status as it is when asked for. Thousands of peers are not written out before.
fn document(status: watch::Receiver<Status>, book: PeerBook) -> impl Fn() -> Status + Clone + Send + Sync + 'static {
    move || Status { peers: book.list(report::peer), ..status.borrow().clone() }
}

async fn daemon(
    options: &RunOptions,
    publish: &watch::Sender<Status>,
    pulse: &Pulse,
    book: &PeerBook,
    counts: &Counts,
) -> anyhow::Result<()> {
    let started = start::start(options, publish, book, counts).await?;
    started.run(publish, pulse, counts).await
}

/// Answers health checks and scrapes from here on, so that `/healthz` does while the store is waited for.
fn health(options: &RunOptions, readiness: Readiness, metrics: Metrics) -> anyhow::Result<Option<HealthServer>> {
    let server = options.healthz.map(|address| HealthServer::start(address, readiness, metrics)).transpose()?;
    if let Some(server) = &server {
        tracing::info!(address = %server.address(), "answering health checks");
    }
    Ok(server)
}

/// The signals that end a command that runs on.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
