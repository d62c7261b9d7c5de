//! The agent's socket, `<state-dir>/agent.sock`: one line of JSON asks, one line of JSON answers.
//!
//! Requests: `{"request":"status"}`. The socket is made at each start; who may connect is decided
//! by its mode (0600), which it has from the first moment. `Connections` has the limits of time and
//! number.

use std::{
    io,
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    time::Duration,
};

use flannel_host::count::Count;
use nix::sys::stat::{Mode, fchmod};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

use crate::observe::{
    connections::{Connections, LIMIT, Origin, RequestState},
    status::Status,
};

/// The longest request.
const REQUEST: u64 = 4096;
/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// The status document.
    Status,
}

/// The socket of an agent with this state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("agent.sock")
}

/// Opens the socket. The caller holds the state directory's lock, so a socket that is there is a
/// dead agent's.
pub fn bind(state_dir: &Path) -> io::Result<UnixListener> {
    let path = path(state_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Linux gives the file the mode of the socket, less the umask (`unix_bind_bsd()` in
    // net/unix/af_unix.c, 5.10 to 6.18), so it never has another.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    socket.bind(&SockAddr::unix(&path)?)?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(StdListener::from(socket))
}

/// Answers until the task is dropped. `displaced` counts connections closed for newer ones.
pub async fn serve(
    listener: UnixListener,
    displaced: Count,
    status: impl Fn() -> Status + Clone + Send + Sync + 'static,
) {
    let mut connections = Connections::new(displaced);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let status = status.clone();
                let serve = |request| async move {
                    if let Err(error) = answer(stream, request, &status).await {
                        tracing::debug!(%error, "a client of the status socket went away");
                    }
                };
                connections.admit(Origin::Local, serve).await;
            }
            Err(error) => {
                // Out of descriptors: waiting is all that helps.
                tracing::warn!(%error, "cannot accept on the status socket");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, state: RequestState, status: &impl Fn() -> Status) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(REQUEST)).read_line(&mut line).await?;
    state.mark_complete();
    let reply = match serde_json::from_str(&line) {
        Ok(Request::Status) => serde_json::to_string(&status())?,
        Err(error) => serde_json::json!({ "error": format!("not a request: {error}") }).to_string(),
    };
    writer.write_all(reply.as_bytes()).await?;
    writer.write_all(b"\n").await
}

/// A connection, as soon as there is room in the kernel's queue.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(Duration::from_millis(10)).await,
            result => return result,
        }
    }
}

/// Asks a running agent for its status. An error of kind `NotFound` or `ConnectionRefused` means
/// that none runs.
pub async fn ask_status(state_dir: &Path) -> io::Result<Status> {
    let path = path(state_dir);
    let asking = async {
        loop {
            match exchange(&path).await {
                Err(error) if is_displaced(&error) => sleep(Duration::from_millis(10)).await,
                result => return result,
            }
        }
    };
    timeout(LIMIT, asking).await.map_err(io::Error::from)?
}

/// The process of the agent with this state directory, by its number here.
pub async fn agent_process(state_dir: &Path) -> io::Result<i32> {
    let stream = connect(&path(state_dir)).await?;
    let process = stream.peer_cred()?.pid().filter(|pid| *pid > 0);
    process.ok_or_else(|| io::Error::other("its process cannot be seen from here, such as one of another container"))
}

/// One question on a connection of its own.
async fn exchange(path: &Path) -> io::Result<Status> {
    let mut stream = connect(path).await?;
    let request = serde_json::to_string(&Request::Status)? + "\n";
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    if stream.read_to_string(&mut reply).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&reply)?)
}

/// Returns true if the agent closed the connection without an answer: newer connections took its
/// place, as `Connections` describes.
fn is_displaced(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests;
