//! The daemon: start-up, the main loop, and the end that leaves the datapath running.
//!
//! One loop owns the leases and the reconciler. The store's task and the kernel's event task only
//! send it events; every write to the kernel and to the maps is made here, so no locks are needed
//! and the order is that of the code.

mod bpf;
mod components;
mod external;
mod guard;
mod history;
mod host_addresses;
mod lost_subnets;
mod main_loop;
mod node_settings;
mod open_files;
mod problems;
mod programs;
mod published;
mod refusals;
mod report;
mod services;
mod start;
mod store;

use std::time::Duration;

use anyhow::{Context as _, bail};
use flannel_claims::state_dir::{StateDir, status_socket};
use flannel_datapath::PinRoot;
use flannel_echo::{Echo, EchoSetup, EchoSockets};
use flannel_flows::history::SharedHistory;
use flannel_host::{clock, count::Count, signals::Stop};
use flannel_metrics::{Counts, Metrics, pulse::Pulse, readiness::Readiness, shared::SharedState};
use flannel_names::{NameResolver, NameSources};
use flannel_observe::{
    health::HealthRoutes,
    http::HttpServer,
    notify::{ServiceManager, ServiceState},
    socket::{self, Answers},
};
use flannel_options::RunOptions;
use flannel_privileges as privileges;
use flannel_status::Status;
use tokio::sync::watch;

#[cfg(feature = "hubble")]
use crate::hubble::HubbleServer;

/// Between two signs of life while the agent starts.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT, or until start-up fails for good.
pub async fn run(options: RunOptions, echo: Option<EchoSockets>) -> anyhow::Result<()> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    check(&options).await?;
    let _state = StateDir::claim(&options.paths.state_dir, Some(&options.paths.subnet_file))?;
    let (publish, status) = watch::channel(report::starting(&options));
    let listener = socket::bind(&options.paths.state_dir).with_context(|| {
        format!(
            "cannot open {}",
            status_socket(&options.paths.state_dir).display()
        )
    })?;
    let pulse = Pulse::start();
    let shared = SharedState::default();
    let counts = Counts::new().context("cannot count")?;
    let readiness = Readiness::new(status.clone(), shared.clone(), pulse.clone());
    let pins = PinRoot::new(&options.paths.bpf_pin_root);
    let series = options.listeners.series;
    let metrics = Metrics::new(
        readiness.clone(),
        shared.clone(),
        counts.clone(),
        pins,
        series,
    );
    let _listeners = listen(&options, readiness, metrics.clone(), &counts, &shared)?;
    let _echo = start_echo(&options, echo, &shared, &counts);
    let manager = ServiceManager::of_environment();
    tokio::spawn(manager.clone().await_ready(status.clone()));
    let names = NameResolver::new(name_sources(&options, &status, &shared));
    let _hubble = start_hubble(&options, &names, &counts);
    let history = SharedHistory::default();
    let pins = PinRoot::new(&options.paths.bpf_pin_root);
    let recording = tokio::spawn(history::record(pins, shared.peers.clone(), history.clone()));
    let answers = Answers {
        status: document(status, shared.clone()),
        metrics: Some(metrics),
        names: Some(names),
        history: Some(history),
    };
    let answering = tokio::spawn(socket::serve(
        listener,
        counts.displaced.status.clone(),
        answers,
    ));
    let result = tokio::select! {
        result = daemon(&options, &publish, &pulse, &shared, &counts) => result,
        signal = stop.wait() => {
            tracing::info!(signal, "stopping; the datapath goes on without the agent");
            manager.notify(&ServiceState::Stopping);
            Ok(())
        }
    };
    answering.abort();
    recording.abort();
    if let Err(error) = std::fs::remove_file(status_socket(&options.paths.state_dir)) {
        tracing::debug!(%error, "the status socket stays behind");
    }
    result
}

/// Checks options and privileges before anything is touched.
async fn check(options: &RunOptions) -> anyhow::Result<()> {
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    privileges::check()?;
    open_files::check();
    if options.etcd.uses_tls() {
        options
            .etcd
            .tls
            .check()
            .await
            .context("cannot use TLS with etcd")?;
    }
    Ok(())
}

/// Starts to answer clients of Hubble, if the options ask for it. If that fails, the agent runs
/// without them.
#[cfg(feature = "hubble")]
fn start_hubble(
    options: &RunOptions,
    names: &NameResolver,
    counts: &Counts,
) -> Option<HubbleServer> {
    let pins = PinRoot::new(&options.paths.bpf_pin_root);
    let started = HubbleServer::start(&options.flows, pins, names.clone(), counts.flows.clone());
    started
        .inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread for clients of Hubble"),
        )
        .ok()
        .flatten()
}

/// A build without the feature only says that it has none.
#[cfg(not(feature = "hubble"))]
fn start_hubble(options: &RunOptions, _: &NameResolver, _: &Counts) {
    if options.flows.socket.is_some() || options.flows.listen.is_some() {
        tracing::warn!(
            "--hubble-socket and --hubble-listen do nothing: this build is without the feature \
             `hubble`"
        );
    }
}

/// The sources of the names in flows.
fn name_sources(
    options: &RunOptions,
    status: &watch::Receiver<Status>,
    shared: &SharedState,
) -> NameSources {
    let named = std::env::var("NODE_NAME")
        .ok()
        .filter(|name| !name.is_empty());
    let host = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    NameSources {
        status: status.clone(),
        peers: shared.peers.clone(),
        node: named.unwrap_or_else(host),
        kube: options.kube.clone(),
        hosts: options.flows.hosts.clone(),
    }
}

/// The whole status as it is when asked for. Thousands of peers are not written out before.
fn document(
    status: watch::Receiver<Status>,
    shared: SharedState,
) -> impl Fn() -> Status + Clone + Send + Sync + 'static {
    move || {
        let now = clock::unix_now();
        let mut status = Status {
            time: Some(now),
            peers: shared.peers.list(|peer| {
                report::peer(
                    peer,
                    shared.echoes.of(peer),
                    shared.wireguard.of_peer(&peer.peer),
                    shared.ipsec.of_peer(&peer.peer),
                )
            }),
            ..status.borrow().clone()
        };
        shared.add_to(&mut status);
        status.find_problems(now);
        status
    }
}

/// Starts to send echo requests to peers, if they are enabled. If that fails, the agent runs
/// without them.
fn start_echo(
    options: &RunOptions,
    sockets: Option<EchoSockets>,
    shared: &SharedState,
    counts: &Counts,
) -> Option<Echo> {
    let (sockets, interval) = sockets.zip(options.echo_interval)?;
    let round_trips = counts.echo_round_trips.clone();
    let setup = EchoSetup {
        interval,
        peers: shared.peers.clone(),
        echoes: shared.echoes.clone(),
        round_trips,
    };
    let started = Echo::start(sockets, setup);
    started
        .inspect_err(
            |error| tracing::warn!(%error, "cannot start the thread that sends echo requests"),
        )
        .ok()
}

async fn daemon(
    options: &RunOptions,
    publish: &watch::Sender<Status>,
    pulse: &Pulse,
    shared: &SharedState,
    counts: &Counts,
) -> anyhow::Result<()> {
    let started = tokio::select! {
        started = Box::pin(start::start(options, publish, shared, counts)) => started?,
        // The store may be away for hours, so until then health checks look only at this thread.
        () = record_heartbeats(pulse) => bail!("the clock stopped"),
    };
    let reports = problems::report(
        publish.subscribe(),
        shared.clone(),
        started.store.reports.clone(),
    );
    tokio::select! {
        // On the heap, because it holds the whole state of the agent.
        ended = Box::pin(started.run(publish, pulse, counts)) => ended,
        () = reports => bail!("the reports of problems ended"),
    }
}

/// Records heartbeats while the thread runs its tasks. Does not return.
async fn record_heartbeats(pulse: &Pulse) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        ticks.tick().await;
        pulse.record_heartbeat();
    }
}

/// Starts the listeners for health checks and scrapes, so that `/healthz` answers while the agent
/// waits for the store. Without a separate address, metrics are on the address of the health
/// checks.
fn listen(
    options: &RunOptions,
    readiness: Readiness,
    metrics: Metrics,
    counts: &Counts,
    shared: &SharedState,
) -> anyhow::Result<Vec<HttpServer>> {
    let (health, own) = match options.listeners.metrics {
        Some(address) => (
            HealthRoutes::Health(readiness),
            Some((address, HealthRoutes::Metrics(metrics))),
        ),
        None => (HealthRoutes::All(readiness, metrics), None),
    };
    let health = options
        .listeners
        .healthz
        .map(|address| (address, health, &counts.displaced.health));
    let own = own.map(|(address, routes)| (address, routes, &counts.displaced.metrics));
    let start = |(address, routes, displaced): (_, _, &Count)| {
        HttpServer::start(address, routes, displaced.clone(), &shared.listeners)
            .context("cannot answer health checks")
    };
    health.into_iter().chain(own).map(start).collect()
}
