//! A TCP connection that a test leads step by step, and what the ends think of the packets.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use crate::{Host, eventually, harness::wait::patient};

/// Both ends of a connection.
#[derive(Debug)]
pub struct Talk {
    /// The end that opened it.
    pub client: TcpStream,
    /// The end that accepted it.
    pub server: TcpStream,
    /// The number of the message under way.
    pub(super) message: u32,
}

impl Talk {
    /// Opens a connection from a host to a listener at `at` of another; `to` is where the client
    /// sends instead, such as a Service.
    pub fn open(from: &Host, host: &Host, at: SocketAddr, to: Option<SocketAddr>) -> Result<Self> {
        let listener = host.bound(at, TcpListener::bind)?;
        let to = to.map_or_else(|| listener.local_addr(), Ok)?;
        let client =
            from.enter(|| TcpStream::connect_timeout(&to, patient(Duration::from_secs(5))))?;
        Self::accepted(client.with_context(|| to.to_string())?, &listener)
    }

    /// Opens a connection from a host to a Service, which leads to one of these listeners.
    pub fn open_to_any(from: &Host, to: SocketAddr, listeners: &[TcpListener]) -> Result<Self> {
        for listener in listeners {
            listener.set_nonblocking(true)?;
        }
        let client =
            from.enter(|| TcpStream::connect_timeout(&to, patient(Duration::from_secs(5))))?;
        let accept = || listeners.iter().find_map(|listener| listener.accept().ok());
        let (server, _) = eventually("an accepted connection", Duration::from_secs(5), accept)?;
        server.set_nonblocking(false)?;
        Self::of(client.with_context(|| to.to_string())?, server, 0)
    }

    /// The same from a given address and port of the client, which may be in TIME_WAIT, or in use
    /// to another end.
    pub fn open_from(
        from: &Host,
        source: SocketAddr,
        host: &Host,
        at: SocketAddr,
        to: Option<SocketAddr>,
    ) -> Result<Self> {
        let listener = host.bound(at, TcpListener::bind)?;
        let to = to.unwrap_or(at);
        let client = from.enter(|| -> Result<TcpStream> {
            let family = if at.is_ipv4() {
                AddressFamily::Inet
            } else {
                AddressFamily::Inet6
            };
            let client = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            setsockopt(&client, sockopt::ReuseAddr, &true)?;
            bind(client.as_raw_fd(), &SockaddrStorage::from(source))
                .with_context(|| source.to_string())?;
            connect(client.as_raw_fd(), &SockaddrStorage::from(to))
                .with_context(|| to.to_string())?;
            Ok(client.into())
        })??;
        Self::accepted(client, &listener)
    }

    fn accepted(client: TcpStream, listener: &TcpListener) -> Result<Self> {
        Self::of(client, listener.accept()?.0, 0)
    }

    pub(super) fn of(client: TcpStream, server: TcpStream, message: u32) -> Result<Self> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
        }
        Ok(Self {
            client,
            server,
            message,
        })
    }

    /// Messages there and back, one after the other. What a failed exchange left on its way is
    /// passed over by the next.
    pub fn exchange(&mut self, messages: u32) -> Result<()> {
        for _ in 0..messages {
            self.message += 1;
            self.client.write_all(&self.message.to_be_bytes())?;
            read_message(&mut self.server, self.message).context("on the way there")?;
            self.server.write_all(&self.message.to_be_bytes())?;
            read_message(&mut self.client, self.message).context("on the way back")?;
        }
        Ok(())
    }

    /// Both ends as people write them: client, server.
    pub fn ends(&self) -> Result<[SocketAddr; 2]> {
        Ok([self.client.local_addr()?, self.server.local_addr()?])
    }
}

/// Reads until the message with this number.
fn read_message(end: &mut TcpStream, number: u32) -> Result<()> {
    let mut message = [0; 4];
    loop {
        end.read_exact(&mut message)?;
        match u32::from_be_bytes(message) {
            read if read == number => return Ok(()),
            read => ensure!(read < number, "message {read} before it was sent"),
        }
    }
}
