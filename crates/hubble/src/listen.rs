//! The server: a unix socket, an address with TLS, or both.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::net::UnixListener as StdUnixListener,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use flannel_host::unix_socket;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tonic::body::Body;
use tower::Service as _;

use crate::{
    ObserverService,
    tls::{Acceptor, OverTls, TlsError, TlsFiles},
};

/// Connections at a time. One more is closed.
const CONNECTIONS: usize = 16;
/// Requests of a connection at a time.
const STREAMS: u32 = 16;
/// The longest handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time between two pings to a client, and the wait for their answer.
const PING: Duration = Duration::from_secs(30);
/// The mode of the unix socket.
const MODE: u32 = 0o660;
/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 64;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A unix socket, for root and the group of the agent.
    Unix(PathBuf),
    /// An address, for clients with a certificate.
    Tls(SocketAddr, TlsFiles),
}

/// The reason why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The unix socket.
    #[error("cannot open the socket {}", path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The address.
    #[error("cannot listen on {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// TLS.
    #[error("cannot use TLS for the observer on {address}")]
    Tls {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: TlsError,
    },
}

/// Open listeners, which do not answer yet.
pub struct Server(Vec<Open>);

enum Open {
    Unix(StdUnixListener),
    Tls(StdTcpListener, Box<Acceptor>),
}

impl Server {
    /// Opens all listeners. A unix socket that exists is removed, any other file is an error.
    pub fn open(listeners: &[Listener]) -> Result<Self, ListenError> {
        let open = |listener: &Listener| match listener {
            Listener::Unix(path) => unix_socket::listen(path, MODE, BACKLOG)
                .map(Open::Unix)
                .map_err(|source| ListenError::Unix {
                    path: path.clone(),
                    source,
                }),
            Listener::Tls(address, files) => {
                let acceptor = Acceptor::new(files.clone()).map_err(|source| ListenError::Tls {
                    address: *address,
                    source,
                })?;
                let listener = tcp(*address).map_err(|source| ListenError::Tcp {
                    address: *address,
                    source,
                })?;
                Ok(Open::Tls(listener, Box::new(acceptor)))
            }
        };
        listeners
            .iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The addresses with TLS; their ports are those that the kernel chose if 0 was asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |open: &Open| match open {
            Open::Unix(_) => None,
            Open::Tls(listener, _) => listener.local_addr().ok(),
        };
        self.0.iter().filter_map(address).collect()
    }

    /// Answers until the future is dropped, or a listener is broken.
    pub async fn serve(self, service: ObserverService) -> io::Result<()> {
        let limit = Arc::new(Semaphore::new(CONNECTIONS));
        let serving = self
            .0
            .into_iter()
            .map(|open| serve(open, service.clone(), limit.clone()));
        futures::future::try_join_all(serving).await.map(drop)
    }
}

fn tcp(address: SocketAddr) -> io::Result<StdTcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        None,
    )?;
    // An agent that was restarted does not wait for connections of the one before.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

async fn serve(open: Open, service: ObserverService, limit: Arc<Semaphore>) -> io::Result<()> {
    match open {
        Open::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            loop {
                if let Some((stream, permit)) =
                    admitted(listener.accept().await.map(|(stream, _)| stream), &limit).await
                {
                    tokio::spawn(answer(stream, service.clone(), false, permit));
                }
            }
        }
        Open::Tls(listener, mut acceptor) => {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let accepted = listener.accept().await.map(|(stream, _)| stream);
                if let Some((stream, permit)) = admitted(accepted, &limit).await {
                    let (acceptor, service) = (acceptor.current(), service.clone());
                    tokio::spawn(async move {
                        match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => answer(stream, service, true, permit).await,
                            Ok(Err(error)) => {
                                tracing::debug!(%error, "a client of the observer is refused");
                            }
                            Err(_) => tracing::debug!(
                                "a client of the observer does not finish its handshake"
                            ),
                        }
                    });
                }
            }
        }
    }
}

/// An accepted connection, unless there are too many.
async fn admitted<S>(
    accepted: io::Result<S>,
    limit: &Arc<Semaphore>,
) -> Option<(S, OwnedSemaphorePermit)> {
    match accepted {
        Ok(stream) => {
            let permit = limit.clone().try_acquire_owned().ok();
            if permit.is_none() {
                tracing::debug!(
                    "a client of the observer is refused: it has {CONNECTIONS} connections"
                );
            }
            permit.map(|permit| (stream, permit))
        }
        Err(error) => {
            // Out of descriptors, or a client that has gone already: waiting is all that helps.
            tracing::debug!(%error, "cannot accept a client of the observer");
            sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: ObserverService,
    is_tls: bool,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let mut request = request.map(Body::new);
        if is_tls {
            request.extensions_mut().insert(OverTls);
        }
        let answered = service.clone().call(request);
        async move { Ok::<_, Infallible>(answered.await.unwrap_or_else(|never| match never {})) }
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the observer broke off");
    }
}
