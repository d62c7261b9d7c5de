//! The owner of a claim: its answer, and what the kernel says of its process.

use std::{fmt, io, time::Duration};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::UnixStream,
    time::{Instant, sleep, timeout},
};

/// The longest answer.
const ANSWER: u64 = 16 * 1024;
/// The time an agent has for its answer. One that was stopped gives none.
const LIMIT: Duration = Duration::from_secs(1);
/// Between two tries to connect to a socket whose queue is full.
const PERIOD: Duration = Duration::from_millis(10);

/// The facts that another agent gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its process, by the number in its own PID namespace.
    pub pid: u32,
    /// Its state directory, by the path in its own mount namespace.
    pub state_dir: String,
    /// Its pin root, likewise.
    pub pin_root: String,
}

impl Identity {
    /// The answer to a client: a line of JSON.
    pub(super) fn answer(&self) -> String {
        serde_json::json!(self).to_string() + "\n"
    }
}

/// An agent that owns something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The number of its process here; `None` for one of a container that cannot be seen.
    pub(super) pid: Option<i32>,
    /// Its own words; `None` if it does not answer.
    pub(super) identity: Option<Identity>,
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.identity) {
            (Some(pid), _) => write!(f, "process {pid}")?,
            (None, Some(identity)) => write!(f, "process {} of another container", identity.pid)?,
            (None, None) => f.write_str("a process of another container")?,
        }
        match &self.identity {
            Some(Identity {
                state_dir,
                pin_root,
                ..
            }) => write!(
                f,
                " with the state directory {} and the pin root {}",
                state_dir.escape_debug(),
                pin_root.escape_debug()
            ),
            None => f.write_str(", which does not answer"),
        }
    }
}

/// The process that has the name of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameHolder {
    /// An agent.
    Agent(Claimant),
    /// A process of another user, by the number of the user.
    Stranger(u32),
}

/// The holder of a name; `None` if the name is free by now.
pub(super) async fn of(name: &str) -> Option<NameHolder> {
    let deadline = Instant::now() + LIMIT;
    let stream = loop {
        match UnixStream::connect(format!("\0{name}")).await {
            Ok(stream) => break stream,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                sleep(PERIOD).await;
            }
            // Its queue stays full: it was stopped, and still owns what it owns.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(NameHolder::Agent(Claimant {
                    pid: None,
                    identity: None,
                }));
            }
            Err(_) => return None,
        }
    };
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != 0 && peer.uid() != geteuid().as_raw() {
        return Some(NameHolder::Stranger(peer.uid()));
    }
    let identity = timeout(LIMIT, read(stream)).await.ok().flatten();
    Some(NameHolder::Agent(Claimant {
        pid: peer.pid().filter(|pid| *pid > 0),
        identity,
    }))
}

async fn read(stream: UnixStream) -> Option<Identity> {
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER))
        .read_line(&mut line)
        .await
        .ok()?;
    serde_json::from_str(&line).ok()
}
