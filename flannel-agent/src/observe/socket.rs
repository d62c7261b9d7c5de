//! The agent's socket, `<state-dir>/agent.sock`: one line of JSON asks, one line of JSON answers.
//!
//! Requests: `{"request":"status"}`. The socket is made anew at each start; who may connect is decided by its mode (0600).

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use crate::observe::status::Status;

/// A client that says nothing for this long is sent away.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST: u64 = 4096;

/// What can be asked.
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

/// Opens the socket. The caller holds the state directory's lock, so a socket that is there is a dead agent's.
pub fn bind(state_dir: &Path) -> io::Result<UnixListener> {
    let path = path(state_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until the task is dropped.
pub async fn serve(listener: UnixListener, status: impl Fn() -> Status + Clone + Send + Sync + 'static) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let status = status.clone();
                tokio::spawn(async move {
                    if let Ok(Err(error)) = timeout(PATIENCE, answer(stream, &status)).await {
                        tracing::debug!(%error, "a client of the status socket went away");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors: waiting is all that helps.
                tracing::warn!(%error, "cannot accept on the status socket");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, status: &impl Fn() -> Status) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(REQUEST)).read_line(&mut line).await?;
    let reply = match serde_json::from_str(&line) {
        Ok(Request::Status) => serde_json::to_string(&status())?,
        Err(error) => serde_json::json!({ "error": format!("not a request: {error}") }).to_string(),
    };
    writer.write_all(reply.as_bytes()).await?;
    writer.write_all(b"\n").await
}

/// Asks a running agent for its status. An error of kind `NotFound` or `ConnectionRefused` means that none runs.
pub async fn ask_status(state_dir: &Path) -> io::Result<Status> {
    let exchange = async {
        let mut stream = UnixStream::connect(path(state_dir)).await?;
        let request = serde_json::to_string(&Request::Status)? + "\n";
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(serde_json::from_str(&reply)?)
    };
    timeout(PATIENCE, exchange).await.map_err(io::Error::from)?
}
