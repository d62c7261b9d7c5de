//! A proxy in front of a server that does to its answers what a faulty network or a faulty server
//! does.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{Host, host::joined};

/// The interval at which a thread checks whether the manner has changed.
const LOOK: Duration = Duration::from_millis(20);
/// The delay of [`Manner::Slow`].
const LATE: Duration = Duration::from_secs(1);

/// The treatment of the server's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// They are handed on.
    Faithful,
    /// Each piece is handed on a second late.
    Slow,
    /// Every bit of them is inverted.
    Garbled,
    /// The first half of each piece is handed on, and the connection is closed.
    Cut,
    /// The proxy closes every connection at once and hands no data on.
    Closed,
    /// They are held back, on connections that stay.
    Silent,
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct FaultyProxy {
    state: Arc<State>,
    acceptor: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    manner: Mutex<Manner>,
    ended: AtomicBool,
}

impl FaultyProxy {
    /// Starts a faithful proxy on `host`, from `at` to `server`.
    pub fn start(host: &Host, at: SocketAddr, server: SocketAddr) -> Result<Self> {
        let listener = host.bound(at, TcpListener::bind)?;
        listener.set_nonblocking(true)?;
        let state = Arc::new(State {
            server,
            manner: Mutex::new(Manner::Faithful),
            ended: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&state);
        let acceptor = host.thread(move || of_thread.accept(&listener))?;
        Ok(Self {
            state,
            acceptor: Some(acceptor),
        })
    }

    /// Sets the treatment of answers from now on, also on connections that are open.
    pub fn set(&self, manner: Manner) {
        *self
            .state
            .manner
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.acceptor.take().map(joined) {
            eprintln!("proxy to {}: {error:#}", self.state.server);
        }
    }
}

impl State {
    fn accept(&self, listener: &TcpListener) -> Result<()> {
        thread::scope(|scope| {
            while !self.has_ended() {
                match listener.accept() {
                    Ok((client, _)) => {
                        scope.spawn(move || self.serve(&client));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                    Err(error) => return Err(error).context("accept"),
                }
            }
            Ok(())
        })
    }

    /// A connection that breaks is the affair of its two ends.
    fn serve(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return;
        };
        if [client, &server]
            .into_iter()
            .any(|end| end.set_nonblocking(false).is_err())
        {
            return;
        }
        thread::scope(|scope| {
            scope.spawn(|| self.pump(client, &server, |_| Manner::Faithful));
            self.pump(&server, client, Self::manner);
        });
    }

    /// Hands on what `from` says, until either end or the proxy ends.
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, manner: impl Fn(&Self) -> Manner) {
        let mut piece = vec![0; 64 << 10];
        while !self.has_ended()
            && self.manner() != Manner::Closed
            && from.set_read_timeout(Some(LOOK)).is_ok()
        {
            let length = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => break,
            };
            self.while_silent(&manner);
            match manner(self) {
                Manner::Slow => thread::sleep(LATE),
                Manner::Garbled => piece[..length].iter_mut().for_each(|byte| *byte = !*byte),
                _ => {}
            }
            let cut = manner(self) == Manner::Cut;
            if to
                .write_all(&piece[..if cut { length / 2 } else { length }])
                .is_err()
                || cut
            {
                break;
            }
        }
        for end in [from, to] {
            // It may have been closed by the other direction.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn while_silent(&self, manner: impl Fn(&Self) -> Manner) {
        while manner(self) == Manner::Silent && !self.has_ended() {
            thread::sleep(LOOK);
        }
    }

    fn manner(&self) -> Manner {
        *self.manner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
