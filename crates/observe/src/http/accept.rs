//! Takes connections out of the kernel's queue, all that wait at once.
//!
//! Those a limit leaves no place for are closed here, before they cost more than a few system
//! calls: a flood ahead of a probe does not keep it waiting for long.

use std::{
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    os::fd::AsRawFd as _,
    task::{Context, Poll},
};

use flannel_host::count::Count;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::stream::reset_on_close;
use crate::connections::{Origin, displaced_by};

/// Connections the kernel holds until they are accepted, unless `net.core.somaxconn` is less.
const BACKLOG: i32 = 1024;
/// Connections that are taken at a time.
const BATCH: usize = 128;

/// Listens on the address, with a non-blocking socket.
pub(super) fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // An agent that was restarted does not wait for connections of the one before.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections that were taken together, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    sources: Vec<Origin>,
    streams: Vec<TcpStream>,
}

impl Newcomers {
    /// Waits for one, and takes those that wait with it.
    pub(super) async fn take(listener: &TcpListener, displaced: &Count) -> io::Result<Self> {
        let mut taken = Self::default();
        poll_fn(|context| taken.poll_take(listener, displaced, context)).await?;
        Ok(taken)
    }

    fn poll_take(
        &mut self,
        listener: &TcpListener,
        displaced: &Count,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.streams.len() < BATCH {
            match listener.poll_accept(context) {
                Poll::Ready(Ok((stream, peer))) => match stream.local_addr() {
                    Ok(own) => self.add(Origin::of(peer.ip(), own.ip()), stream, displaced),
                    Err(error) => tracing::debug!(%error, %peer, "a connection without an address"),
                },
                // An error is met again by the next call.
                Poll::Pending | Poll::Ready(Err(_)) if !self.streams.is_empty() => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// A connection whose request has begun to arrive is kept: it is read before another one can
    /// displace it.
    fn add(&mut self, source: Origin, stream: TcpStream, displaced: &Count) {
        let has_asked = |index: usize| has_bytes(&self.streams[index]);
        if let Some(index) =
            displaced_by(source, &self.sources, has_asked).filter(|index| !has_asked(*index))
        {
            self.sources.remove(index);
            reset_on_close(&self.streams.remove(index));
            displaced.add();
        }
        self.sources.push(source);
        self.streams.push(stream);
    }

    /// Those that are left.
    pub(super) fn into_each(self) -> impl Iterator<Item = (Origin, TcpStream)> {
        self.sources.into_iter().zip(self.streams)
    }
}

/// Returns true if at least one byte of a request has arrived.
fn has_bytes(stream: &TcpStream) -> bool {
    recv(
        stream.as_raw_fd(),
        &mut [0],
        MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
    )
    .is_ok_and(|bytes| bytes > 0)
}
