//! The control socket of the process.

use std::{
    fs, io,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use crate::{
    build::build,
    client::{read_line, set_patience, write_line},
    datapath::{Datapath, Parts},
    error::TunnelError,
    options::TunnelOptions,
    protocol::{Peers, Reply, Request, State},
    readiness::{Awaited, await_readable},
    takeover::hand_over,
    tun::set_persistent,
};

/// The time for a client to send its request, and to take the reply. Clients are served one by one.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket that is not at its path yet.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    temporary: PathBuf,
}

impl Listener {
    /// Opens the socket under a name of this process. Only root may use it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let temporary = path.with_extension(format!("{}", process::id()));
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            temporary,
        })
    }

    /// Gives the socket its name, in place of that of another process.
    pub(crate) fn publish(self, path: &Path) -> io::Result<UnixListener> {
        fs::rename(&self.temporary, path)?;
        Ok(self.listener)
    }

    /// Removes a socket that is not needed.
    pub(crate) fn abandon(&self) {
        // It is in the way of nothing.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// The process as clients see it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) options: TunnelOptions,
    pub(crate) parts: Parts,
    pub(crate) datapath: Option<Datapath>,
}

/// The fate of the process after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    /// A successor has everything.
    Leave,
    /// Device and socket are to go.
    Remove,
}

impl Server {
    /// Answers requests until the process is to end.
    pub(crate) fn serve(mut self, listener: &UnixListener) -> Result<(), TunnelError> {
        let path = self.options.control.clone();
        let failed = |error| TunnelError::Control {
            path: path.clone(),
            error,
        };
        loop {
            let Some(datapath) = &self.datapath else {
                return Ok(());
            };
            let failure = datapath.failed();
            if await_readable(listener, failure).map_err(failed)? == Awaited::Signal {
                // Without its device there is nothing left to do.
                let _ = fs::remove_file(&self.options.control);
                return self.stop();
            }
            let Ok((mut stream, _)) = listener.accept() else {
                continue;
            };
            // The process continues if a client disconnects before its answer.
            match self.answer(&mut stream).unwrap_or(Next::GoOn) {
                Next::GoOn => {}
                Next::Leave => return Ok(()),
                Next::Remove => return self.remove(&mut stream),
            }
        }
    }

    fn stop(&mut self) -> Result<(), TunnelError> {
        self.datapath.take().map_or(Ok(()), Datapath::stop)
    }

    /// Ends the datapath and lets the device go with this process.
    fn remove(&mut self, stream: &mut UnixStream) -> Result<(), TunnelError> {
        let stopped = self.stop();
        let removed = set_persistent(&self.parts.device, false);
        let _ = fs::remove_file(&self.options.control);
        // The client may be gone; the device goes all the same.
        let _ = write_line(stream, &Reply::Done);
        removed.map_err(|error| TunnelError::device(&self.options.device, error))?;
        stopped
    }

    fn answer(&mut self, stream: &mut UnixStream) -> io::Result<Next> {
        stream.set_nonblocking(false)?;
        set_patience(stream, PATIENCE)?;
        let text = read_line(stream)?;
        let request = match serde_json::from_str(&text) {
            Ok(request) => request,
            Err(error) => {
                write_line(
                    stream,
                    &Reply::Refused {
                        reason: error.to_string(),
                    },
                )?;
                return Ok(Next::GoOn);
            }
        };
        match request {
            Request::State => write_line(stream, &Reply::State(self.state()))?,
            Request::Peers => write_line(stream, &Reply::Peers(self.peers()))?,
            Request::Change {
                own,
                upserts,
                removals,
            } => {
                let table = self.parts.table.get().changed(own, &upserts, &removals);
                self.parts.table.set(table);
                write_line(stream, &Reply::Done)?;
            }
            Request::TakeOver => return self.pass_on(stream),
            Request::Stop => return Ok(Next::Remove),
        }
        Ok(Next::GoOn)
    }

    /// Passes device and socket on, and goes on itself if the successor does not take them.
    fn pass_on(&mut self, stream: &mut UnixStream) -> io::Result<Next> {
        // A thread that failed has no packet either.
        let _ = self.stop();
        let (state, peers) = (self.state(), self.peers());
        let taken = hand_over(stream, &self.parts.device, &self.parts.socket, state, peers);
        if taken.unwrap_or(false) {
            return Ok(Next::Leave);
        }
        self.datapath = Some(Datapath::start(&self.parts)?);
        Ok(Next::GoOn)
    }

    fn state(&self) -> State {
        let TunnelOptions {
            device,
            network,
            source,
            port,
            ..
        } = &self.options;
        State {
            build: build(),
            pid: process::id(),
            device: device.clone(),
            index: self.parts.index,
            network: *network,
            source: *source,
            port: *port,
            counts: self.parts.counters.read(),
        }
    }

    fn peers(&self) -> Peers {
        let table = self.parts.table.get();
        Peers {
            own: table.own(),
            peers: table.peers().clone(),
        }
    }
}
