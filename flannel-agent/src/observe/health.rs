//! Health checks by HTTP, with flanneld's paths and texts, and [metrics](super::metrics) beside them.
//!
//! `/healthz` answers 200 for as long as the process does anything; `/readyz` answers 200 while the node is ready, and 503
//! otherwise, also after it was ready once: that is where flanneld differs. `/metrics` is what Prometheus scrapes. Any method; other paths
//! are 404.
//!
//! The answers come from a thread of their own, so that they come whatever the agent's tasks are doing. A main loop that
//! hangs is not ready: besides what the status says, its [`Pulse`] has to be younger than 30 seconds.
//!
//! One request per connection, its head 16 KiB at most, its body not read. A client has 5 seconds for all of it, and no more than 128 are served at a time; those beyond
//! wait in the kernel's queue until one is through.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Semaphore, oneshot, watch},
    time::{sleep, timeout},
};

use crate::observe::{
    metrics::{MEDIA_TYPE, Metrics},
    pulse::Pulse,
    status::Status,
};

/// A main loop that was not seen to go round for this long hangs. One round may reconcile thousands of peers.
const STALE: Duration = Duration::from_secs(30);
/// For one client.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients served at a time.
const CLIENTS: usize = 128;
/// Bytes of a request's head.
const HEAD: usize = 16 << 10;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health checks: {source}; choose another --healthz-ip or --healthz-port")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// Whether the node is ready, as of now.
#[derive(Clone, Debug)]
pub struct Readiness {
    status: watch::Receiver<Status>,
    pulse: Pulse,
}

impl Readiness {
    /// What the status says, as long as the pulse beats.
    pub fn new(status: watch::Receiver<Status>, pulse: Pulse) -> Self {
        Self { status, pulse }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.borrow().ready && self.pulse.age() < STALE
    }

    /// The status as last published. To be held for a moment only: the main loop waits with the next one.
    pub(super) fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// Since the main loop was last seen to go round.
    pub(super) fn silence(&self) -> Duration {
        self.pulse.age()
    }
}

/// The thread that answers. It ends when this is dropped.
#[derive(Debug)]
pub struct HealthServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthServer {
    /// Listens, and answers from then on.
    pub fn start(address: SocketAddr, readiness: Readiness, metrics: Metrics) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let answering = move || {
            runtime.block_on(async {
                tokio::select! {
                    result = serve(listener, readiness, metrics) => if let Err(error) = result {
                        tracing::error!(%error, "health checks are not answered any more");
                    },
                    _ = stopped => {}
                }
            });
            // A scrape that is being answered holds nobody up who wants to end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("health".to_owned()).spawn(answering).map_err(failed)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that answers health checks panicked");
        }
    }
}

async fn serve(listener: StdListener, readiness: Readiness, metrics: Metrics) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (readiness, metrics) = (readiness.clone(), metrics.clone());
                tokio::spawn(async move {
                    if let Ok(Err(error)) = timeout(PATIENCE, answer(stream, readiness, metrics)).await {
                        tracing::debug!(%error, "a health check broke off");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, or a client that has gone already: waiting is all that helps.
                tracing::debug!(%error, "cannot accept a health check");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, readiness: Readiness, metrics: Metrics) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (readiness, metrics) = (readiness.clone(), metrics.clone());
        async move { Ok::<_, Infallible>(response(request.uri().path(), &readiness, &metrics).await) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn response(path: &str, readiness: &Readiness, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/metrics" => match metrics.answer().await {
            Some(text) => return respond(StatusCode::OK, text, MEDIA_TYPE),
            None => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be put together; the log says why"),
        },
        "/healthz" => (StatusCode::OK, "flanneld is running"),
        "/readyz" if readiness.is_ready() => (StatusCode::OK, "flanneld is ready"),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "flanneld is not ready yet"),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    respond(status, Bytes::from_static(text.as_bytes()), "text/plain; charset=utf-8")
}

fn respond(status: StatusCode, text: Bytes, media_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests;
