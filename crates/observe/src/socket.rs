//! The agent's socket, `<state-dir>/agent.sock`: one line of JSON asks, one line of JSON answers.
//!
//! Requests: `{"request":"status"}`, `{"request":"metrics"}` and `{"request":"log"}`; the answers
//! to the last two have their text in the member `text`. `{"request":"names","addresses":[...]}` is
//! answered with the names of addresses, in the member `names`, and `{"request":"history"}` with
//! the rates of the last ten minutes, in the member `history`. The socket is made at each start.
//! Its mode (0600), which it has from the first moment, decides who may connect. `Connections` has
//! the limits of time and number.

use std::{io, net::IpAddr, path::Path, time::Duration};

use flannel_claims::state_dir::status_socket;
use flannel_document as document;
use flannel_flows::history::{SharedHistory, TrafficHistory};
use flannel_host::{count::Count, unix_socket};
use flannel_logging::recent;
use flannel_metrics::Metrics;
use flannel_names::{NameResolver, ResolvedNames};
use flannel_status::Status;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

use crate::connections::{Connections, LIMIT, Origin, RequestState};

/// The longest request.
const REQUEST: u64 = 4096;
/// Addresses in one request: as many as fit.
pub const NAMES: usize = 80;
/// The longest wait for names that are being looked up.
const NAMES_PATIENCE: Duration = Duration::from_secs(2);
/// The mode of the socket.
const MODE: u32 = 0o600;
/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// The status document.
    Status,
    /// The metrics, as Prometheus gets them.
    Metrics,
    /// The last lines of the log.
    Log,
    /// The rates of the last ten minutes.
    History,
    /// The names of these addresses, [`NAMES`] of them at most.
    Names {
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
}

/// The sources of the answers.
#[derive(Clone, Debug)]
pub struct Answers<S> {
    /// The status document as it is now.
    pub status: S,
    /// `None` where there are none.
    pub metrics: Option<Metrics>,
    /// `None` where there are none.
    pub names: Option<NameResolver>,
    /// `None` where there is none.
    pub history: Option<SharedHistory>,
}

#[derive(Serialize, Deserialize)]
struct HistoryAnswer {
    history: TrafficHistory,
}

#[derive(Serialize, Deserialize)]
struct NamesAnswer {
    names: ResolvedNames,
}

#[derive(Deserialize)]
struct Text {
    text: Option<String>,
    error: Option<String>,
}

/// Opens the socket. The caller holds the state directory's lock, so an existing socket belongs to
/// a dead agent.
pub fn bind(state_dir: &Path) -> io::Result<UnixListener> {
    UnixListener::from_std(unix_socket::listen(
        &status_socket(state_dir),
        MODE,
        BACKLOG,
    )?)
}

/// Answers until the task is dropped. `displaced` counts connections closed for newer ones.
pub async fn serve(
    listener: UnixListener,
    displaced: Count,
    answers: Answers<impl Fn() -> Status + Clone + Send + Sync + 'static>,
) {
    let mut connections = Connections::new(displaced);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answers = answers.clone();
                let serve = |request| async move {
                    if let Err(error) = answer(stream, request, &answers).await {
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

async fn answer(
    stream: UnixStream,
    state: RequestState,
    answers: &Answers<impl Fn() -> Status + Sync>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(REQUEST))
        .read_line(&mut line)
        .await?;
    state.mark_complete();
    let reply = match serde_json::from_str(&line) {
        Ok(Request::Status) => document::line(&(answers.status)()),
        Ok(Request::Metrics) => match &answers.metrics {
            Some(metrics) => text(&metrics.answer().await.unwrap_or_default()),
            None => refusal("no metrics here"),
        },
        Ok(Request::Log) => text(&recent::lines()),
        Ok(Request::History) => match &answers.history {
            Some(history) => serde_json::to_string(&HistoryAnswer {
                history: history.document(),
            })?,
            None => refusal("no history here"),
        },
        Ok(Request::Names { addresses }) => match &answers.names {
            Some(names) => {
                let names = names.resolve(&addresses, NAMES_PATIENCE).await;
                serde_json::to_string(&NamesAnswer { names })?
            }
            None => refusal("no names here"),
        },
        Err(error) => refusal(&format!("not a request: {error}")),
    };
    writer.write_all(reply.as_bytes()).await?;
    writer.write_all(b"\n").await
}

fn text(text: &[u8]) -> String {
    json!({ "text": String::from_utf8_lossy(text) }).to_string()
}

fn refusal(error: &str) -> String {
    json!({ "error": error }).to_string()
}

/// A connection, as soon as there is room in the kernel's queue.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sleep(Duration::from_millis(10)).await;
            }
            result => return result,
        }
    }
}

/// Asks a running agent for its status. An error of kind `NotFound` or `ConnectionRefused` means
/// that none runs.
pub async fn ask_status(state_dir: &Path) -> io::Result<Status> {
    ask(state_dir, &Request::Status).await
}

/// Asks a running agent for the names of addresses. Errors are those of [`ask_text`].
pub async fn ask_names(state_dir: &Path, addresses: &[IpAddr]) -> io::Result<ResolvedNames> {
    let mut names = ResolvedNames::new();
    for addresses in addresses.chunks(NAMES) {
        let answer: NamesAnswer = ask(
            state_dir,
            &Request::Names {
                addresses: addresses.to_vec(),
            },
        )
        .await?;
        names.extend(answer.names);
    }
    Ok(names)
}

/// Asks a running agent for the rates of the last ten minutes. Errors are those of [`ask_text`].
pub async fn ask_history(state_dir: &Path) -> io::Result<TrafficHistory> {
    let answer: HistoryAnswer = ask(state_dir, &Request::History).await?;
    Ok(answer.history)
}

/// Asks a running agent for its metrics or its log. Errors are those of [`ask_status`]; an agent of
/// an earlier version does not know the request.
pub async fn ask_text(state_dir: &Path, request: Request) -> io::Result<String> {
    let Text { text, error } = ask(state_dir, &request).await?;
    text.ok_or_else(|| {
        io::Error::other(error.unwrap_or_else(|| "no text in the answer".to_owned()))
    })
}

async fn ask<T: DeserializeOwned>(state_dir: &Path, request: &Request) -> io::Result<T> {
    let path = status_socket(state_dir);
    let asking = async {
        loop {
            match exchange(&path, request).await {
                Err(error) if is_displaced(&error) => sleep(Duration::from_millis(10)).await,
                result => return result,
            }
        }
    };
    timeout(LIMIT, asking).await.map_err(io::Error::from)?
}

/// The process of the agent with this state directory, by its number here.
pub async fn agent_process(state_dir: &Path) -> io::Result<i32> {
    let stream = connect(&status_socket(state_dir)).await?;
    let process = stream.peer_cred()?.pid().filter(|pid| *pid > 0);
    process.ok_or_else(|| {
        io::Error::other("its process cannot be seen from here, such as one of another container")
    })
}

/// Sends one request on its own connection.
async fn exchange<T: DeserializeOwned>(path: &Path, request: &Request) -> io::Result<T> {
    let mut stream = connect(path).await?;
    let request = serde_json::to_string(request)? + "\n";
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
