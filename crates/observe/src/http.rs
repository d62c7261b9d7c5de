//! A listener for HTTP on its own thread. It serves [`HealthRoutes`].
//!
//! A connection serves one request, with a head of 16 KiB at most; the body is not read.
//! `Connections` has the limits of time and number. Load on one listener does not delay another:
//! each has its thread, its limits and its queue in the kernel.

mod accept;
mod stream;

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flannel_host::{
    count::Count,
    port_holder::{PortKind, port_holder},
};
use flannel_metrics::listener_state::{ListenerState, SharedListeners};
use flannel_status::ListenerStatus;
use flannel_store::LogThrottle;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::oneshot,
    time::sleep,
};

use self::{
    accept::{Newcomers, listen},
    stream::ResetUnlessAnswered,
};
use crate::{
    connections::{Connections, RequestState},
    health::HealthRoutes,
};

/// Bytes of a request's head.
const HEAD: usize = 16 << 10;

/// Between two attempts to listen on an address that another process has.
const RETRY: Duration = Duration::from_secs(1);
/// The attempts between two looks at which process has it.
const LOOK_AFTER: u32 = 30;

/// The thread that answers. It ends when this is dropped.
///
/// If the address cannot be listened on, such as while another process has it, the thread tries
/// again: pods do not wait for a port.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    state: ListenerState,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens, and answers from then on. `displaced` counts connections closed for newer ones.
    /// Fails if there can be no thread.
    pub fn start(
        address: SocketAddr,
        routes: HealthRoutes,
        displaced: Count,
        listeners: &SharedListeners,
    ) -> io::Result<Self> {
        let (purpose, flags) = (routes.purpose(), routes.flags());
        let first = listen(address);
        let bound = first
            .as_ref()
            .ok()
            .and_then(|listener| listener.local_addr().ok());
        let address = bound.unwrap_or(address);
        let state = ListenerState::new(purpose, flags, address);
        listeners.add(state.clone());
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let listening = state.clone();
        let answering = move || {
            let serving = async {
                let listener = match first {
                    Ok(listener) => listener,
                    Err(error) => retry(address, error, &listening).await,
                };
                tracing::info!(%address, "answering {purpose}");
                serve(listener, routes, displaced).await
            };
            runtime.block_on(async {
                tokio::select! {
                    result = serving => tracing::error!(?result, "{purpose} are not answered any \
                        more"),
                    _ = stopped => {}
                }
            });
            // A scrape that is being answered does not delay the shutdown.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new()
            .name(flags.to_owned())
            .spawn(answering)?;
        Ok(Self {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address it listens on; its port is the one the kernel chose if 0 was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Tries until the address can be listened on.
async fn retry(address: SocketAddr, first: io::Error, state: &ListenerState) -> StdListener {
    let (mut error, mut complaint, mut attempts) = (first, LogThrottle::default(), 0);
    loop {
        if attempts % LOOK_AFTER == 0 {
            let reason = reason(address, &error);
            if complaint.is_due(&reason, Instant::now()) {
                let ListenerStatus { purpose, flags, .. } = state.status();
                tracing::warn!(
                    "cannot listen on {address} for {purpose}: {reason}; tried again every second; \
                     end the other \
                     process, or choose another --{flags}-ip or --{flags}-port"
                );
            }
            state.set_error(Some(reason));
        }
        attempts += 1;
        sleep(RETRY).await;
        match listen(address) {
            Ok(listener) => {
                state.set_error(None);
                return listener;
            }
            Err(again) => error = again,
        }
    }
}

fn reason(address: SocketAddr, error: &io::Error) -> String {
    let holder = || port_holder(PortKind::TcpListener, address.port());
    let holder = (error.kind() == io::ErrorKind::AddrInUse)
        .then(holder)
        .flatten();
    holder.map_or_else(
        || error.to_string(),
        |holder| format!("{holder} has the port"),
    )
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(
                "the thread that answers {} panicked",
                self.state.status().purpose
            );
        }
    }
}

async fn serve(
    listener: StdListener,
    routes: HealthRoutes,
    displaced: Count,
) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = Connections::new(displaced.clone());
    loop {
        match Newcomers::take(&listener, &displaced).await {
            Ok(newcomers) => {
                for (source, stream) in newcomers.into_each() {
                    connections
                        .admit(source, |request| answer(stream, request, routes.clone()))
                        .await;
                }
            }
            Err(error) => {
                // Out of descriptors, or a client that has gone already: waiting is all that helps.
                tracing::debug!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, state: RequestState, routes: HealthRoutes) {
    let service = service_fn(move |request: Request<Incoming>| {
        state.mark_complete();
        let routes = routes.clone();
        async move { Ok::<_, Infallible>(routes.answer(request.uri().path()).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(ResetUnlessAnswered::new(stream)), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a request broke off");
    }
}

#[cfg(test)]
mod tests;
