//! Connections that say nothing: as many as asked for at a time, and each that is ended is made
//! again.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::{TcpStream, UnixStream},
    runtime,
    sync::watch,
    time::sleep,
};

use crate::{Host, eventually, host::joined};

/// Descriptors of this process apart from the connections.
const OTHERS: u64 = 1024;

/// Idle connections of one host. They end with this.
#[derive(Debug)]
pub struct IdleConnections {
    sockets: usize,
    tried: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl IdleConnections {
    /// From `host` to each of these addresses in turn, `sockets` in all.
    pub fn tcp(host: &Host, to: Vec<SocketAddr>, sockets: usize) -> Result<Self> {
        Self::start(host, sockets, move |number| {
            TcpStream::connect(to[number % to.len()])
        })
    }

    /// To a socket of `host`.
    pub fn unix(host: &Host, path: PathBuf, sockets: usize) -> Result<Self> {
        Self::start(host, sockets, move |_| UnixStream::connect(path.clone()))
    }

    fn start<C, F, S>(host: &Host, sockets: usize, connect: C) -> Result<Self>
    where
        C: Fn(usize) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + Unpin + Send + 'static,
    {
        raise_limit(u64::try_from(sockets)? + OTHERS)?;
        let (tried, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (stop, mut stopped) = watch::channel(());
        let (tries, makes) = (Arc::clone(&tried), Arc::clone(&made));
        let thread = host.thread(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let connect = Arc::new(connect);
            runtime.block_on(async {
                for number in 0..sockets {
                    tokio::spawn(keep(
                        number,
                        Arc::clone(&connect),
                        Arc::clone(&tries),
                        Arc::clone(&makes),
                    ));
                }
                drop(stopped.changed().await);
            });
            Ok(())
        })?;
        Ok(Self {
            sockets,
            tried,
            made,
            stop,
            thread: Some(thread),
        })
    }

    /// Waits until every socket has tried, and at least `connections` connections are established.
    pub fn wait_made(&self, connections: usize) -> Result<()> {
        eventually("idle connections", Duration::from_secs(20), || {
            let (tried, made) = (self.tried.load(Ordering::Relaxed), self.made());
            ensure!(
                tried >= self.sockets && made >= connections,
                "{tried} tried, {made} of {connections} made"
            );
            Ok(())
        })
    }

    /// Returns the number of connections established so far.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Ends them. How many came about.
    pub fn end(mut self) -> Result<usize> {
        self.stop.send_replace(());
        self.thread.take().map_or(Ok(()), joined)?;
        Ok(self.made())
    }
}

impl Drop for IdleConnections {
    fn drop(&mut self) {
        self.stop.send_replace(());
    }
}

/// One socket: connects, waits for the end, and begins again.
async fn keep<F, S>(
    number: usize,
    connect: Arc<impl Fn(usize) -> F>,
    tried: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
) where
    F: Future<Output = io::Result<S>>,
    S: AsyncRead + Unpin,
{
    loop {
        tried.fetch_add(1, Ordering::Relaxed);
        match connect(number).await {
            Ok(mut stream) => {
                made.fetch_add(1, Ordering::Relaxed);
                // Ended, in whatever way.
                let _ = stream.read(&mut [0]).await;
            }
            // It came about, and was ended before this task looked.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                made.fetch_add(1, Ordering::Relaxed);
            }
            // Refused at once: the CPU is for the others.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

fn raise_limit(descriptors: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < descriptors {
        setrlimit(Resource::RLIMIT_NOFILE, descriptors, hard.max(descriptors))
            .context("RLIMIT_NOFILE")?;
    }
    Ok(())
}
