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
    time::Duration,
};

use flannel_host::count::Count;
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
use crate::observe::{
    connections::{Connections, RequestState},
    health::HealthRoutes,
};

/// Bytes of a request's head.
const HEAD: usize = 16 << 10;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}: {source}; choose another --{flags}-ip or --{flags}-port")]
pub struct BindError {
    address: SocketAddr,
    purpose: &'static str,
    flags: &'static str,
    source: io::Error,
}

/// The thread that answers. It ends when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    purpose: &'static str,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens, and answers from then on. `displaced` counts connections closed for newer ones.
    pub fn start(address: SocketAddr, routes: HealthRoutes, displaced: Count) -> Result<Self, BindError> {
        let (purpose, flags) = (routes.purpose(), routes.flags());
        let failed = |source| BindError { address, purpose, flags, source };
        let listener = listen(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let answering = move || {
            runtime.block_on(async {
                tokio::select! {
                    result = tokio::spawn(serve(listener, routes, displaced)) => {
                        tracing::error!(?result, "{purpose} are not answered any more");
                    },
                    _ = stopped => {}
                }
            });
            // A scrape that is being answered does not delay the shutdown.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(flags.to_owned()).spawn(answering).map_err(failed)?;
        Ok(Self { address, purpose, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address it listens on; its port is the one the kernel chose if 0 was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the purpose of the listener in words, for messages.
    pub const fn purpose(&self) -> &'static str {
        self.purpose
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that answers {} panicked", self.purpose);
        }
    }
}

async fn serve(listener: StdListener, routes: HealthRoutes, displaced: Count) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = Connections::new(displaced.clone());
    loop {
        match Newcomers::take(&listener, &displaced).await {
            Ok(newcomers) => {
                for (source, stream) in newcomers.into_each() {
                    connections.admit(source, |request| answer(stream, request, routes.clone())).await;
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
