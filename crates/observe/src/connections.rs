//! The connections of one listener: a bounded number, and a newcomer is always taken.
//!
//! At a limit the newcomer takes the place of the oldest connection that has not sent its whole
//! request, or of the oldest one if all have. So idle connections do not exclude others, however
//! many there are. Connections of this node itself, the kubelet's probes among them, have reserved
//! places, which no other host or pod can take.
//!
//! The listeners decide on requests and answers.

use std::{
    future::Future,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flannel_host::count::Count;
use tokio::{
    task::{JoinHandle, yield_now},
    time::sleep,
};

/// Time for a whole request. Clients send it at once, and the limit of a probe is 1 s by default.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(1);
/// Time for request and answer.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// Connections of this node: probes, and a few people.
pub(super) const LOCAL: usize = 32;
/// Connections of all others.
pub(super) const REMOTE: usize = 128;
/// Connections of one source among them.
pub(super) const PER_SOURCE: usize = 16;

/// The origin of a connection, as the limits count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// This node.
    Local,
    /// An IPv4 address, or the /64 of an IPv6 address: one host may have all addresses of it.
    Remote(IpAddr),
}

impl Origin {
    /// The source of a TCP connection from `peer` to `own`. A peer with our own address is this
    /// node: the answers to that address do not leave it, so no other host completes a handshake.
    pub(super) fn of(peer: IpAddr, own: IpAddr) -> Self {
        let (peer, own) = (peer.to_canonical(), own.to_canonical());
        match peer {
            _ if peer == own || peer.is_loopback() => Self::Local,
            IpAddr::V4(_) => Self::Remote(peer),
            IpAddr::V6(v6) => Self::Remote(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
        }
    }
}

/// The progress of a connection's request: sent whole, or not yet. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestState(Arc<AtomicBool>);

impl RequestState {
    pub(super) fn mark_complete(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_complete(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns once the connection has had its time.
    async fn expire(&self) {
        sleep(REQUEST_LIMIT).await;
        if self.is_complete() {
            sleep(LIMIT.saturating_sub(REQUEST_LIMIT)).await;
        }
    }
}

#[derive(Debug)]
struct Connection {
    source: Origin,
    request: RequestState,
    task: JoinHandle<()>,
}

/// The open connections of a listener, the oldest first.
#[derive(Debug)]
pub(super) struct Connections {
    open: Vec<Connection>,
    displaced: Count,
}

impl Connections {
    /// No connections yet. `displaced` counts those closed for newer ones.
    pub(super) const fn new(displaced: Count) -> Self {
        Self {
            open: Vec::new(),
            displaced,
        }
    }

    /// Serves a connection in its own task. When this returns, the displaced connection is closed.
    ///
    /// It must be called on a task (not in `block_on`): then a request that has already arrived is
    /// read before the next connection can displace this one.
    pub(super) async fn admit<F>(&mut self, source: Origin, serve: impl FnOnce(RequestState) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.open
            .retain(|connection| !connection.task.is_finished());
        let sources: Vec<_> = self.open.iter().map(|open| open.source).collect();
        if let Some(index) = displaced_by(source, &sources, |index| {
            self.open[index].request.is_complete()
        }) {
            let Connection { task, .. } = self.open.remove(index);
            task.abort();
            // Whatever way it ended, its descriptor is closed.
            let _ = task.await;
            self.displaced.add();
        }
        let request = RequestState::default();
        let serving = serve(request.clone());
        let expiry = request.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = serving => {}
                () = expiry.expire() => {}
            }
        });
        self.open.push(Connection {
            source,
            request,
            task,
        });
        yield_now().await;
    }
}

/// The connection that a newcomer displaces, as an index of `open`, the sources of all, the oldest
/// first. `has_asked` says of an index whether there is a request.
pub(super) fn displaced_by(
    newcomer: Origin,
    open: &[Origin],
    has_asked: impl Fn(usize) -> bool,
) -> Option<usize> {
    let oldest = |limit: usize, is_meant: &dyn Fn(Origin) -> bool| {
        let meant: Vec<_> = (0..open.len())
            .filter(|index| is_meant(open[*index]))
            .collect();
        if meant.len() < limit {
            return None;
        }
        meant
            .iter()
            .find(|index| !has_asked(**index))
            .or(meant.first())
            .copied()
    };
    match newcomer {
        Origin::Local => oldest(LOCAL, &|source| source == Origin::Local),
        Origin::Remote(_) => oldest(PER_SOURCE, &|source| source == newcomer)
            .or_else(|| oldest(REMOTE, &|source| source != Origin::Local)),
    }
}

#[cfg(test)]
mod tests;
