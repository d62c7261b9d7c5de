//! The connection to the API server: requests with deadlines, and fresh credentials after a
//! refusal.
//!
//! A token file is read once a minute. After a refusal everything is read again, so that a rotated
//! token or a corrected kubeconfig takes effect at the next attempt.

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::kube::connection::{
    connect::{Connection, Connector},
    requests::Built,
    transport::PacedServer,
};
use crate::kube::{
    error::{KubeError, Problem},
    items::ListText,
    options::KubeOptions,
    stream::WatchStream,
};

/// Timeouts for detecting a silent server, and the grace period for short failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// For one request, connecting included.
    pub deadline: Duration,
    /// For a word on a watch. Servers send a
    /// [bookmark](https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks)
    /// every minute.
    pub silence: Duration,
    /// So long a node stays without a `NetworkUnavailable` condition while it is not ready: the
    /// condition keeps pods away, and most troubles are over at once.
    pub grace: Duration,
    /// The least time between two looks at that condition, which other clients write too: each
    /// look is a request, and follows a change of the Node.
    pub review: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(15),
            silence: Duration::from_secs(90),
            grace: Duration::from_secs(10),
            review: Duration::from_secs(30),
        }
    }
}

/// A client that survives its credentials. Clones share what their connections are made from.
#[derive(Clone)]
pub(in crate::kube) struct KubeClient {
    options: KubeOptions,
    liveness: Liveness,
    connector: Connector,
    server: PacedServer,
    connection: Option<Connection>,
}

impl KubeClient {
    pub(in crate::kube) fn new(options: KubeOptions, liveness: Liveness) -> Self {
        Self {
            options,
            liveness,
            connector: Connector::default(),
            server: PacedServer::default(),
            connection: None,
        }
    }

    pub(in crate::kube) fn options(&self) -> &KubeOptions {
        &self.options
    }

    pub(in crate::kube) fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Sends a request and reads the answer.
    pub(in crate::kube) async fn call<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        request: Built,
    ) -> Result<T, KubeError> {
        let request = request.map_err(|error| self.failed(what, error.into()))?;
        let client = self.connect().await?;
        let answer = self.in_time(read(&client, request)).await;
        answer
            .and_then(|text| serde_json::from_slice(&text).map_err(Problem::Answer))
            .map_err(|problem| self.failed(what, problem))
    }

    /// Sends a request for a list, passes its items one by one while they arrive, and returns the
    /// rest. The time limit is for each piece of the answer: a list of thousands of objects may
    /// take longer as a whole.
    pub(in crate::kube) async fn list<I: DeserializeOwned, T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        request: Built,
        mut take: impl FnMut(I) + Send,
    ) -> Result<T, KubeError> {
        let request = request.map_err(|error| self.failed(what, error.into()))?;
        let client = self.connect().await?;
        let answer = self.in_time(client.request_stream(request)).await;
        let mut body = answer.map_err(|problem| self.failed(what, problem))?;
        let mut list = ListText::default();
        loop {
            let push =
                |piece: &[u8]| list.push(piece, |item| serde_json::from_slice(item).map(&mut take));
            let taken = self.in_time(take_piece(&mut body, push)).await;
            match taken.map_err(|problem| self.failed(what, problem))? {
                Some(pushed) => {
                    pushed.map_err(|error| self.failed(what, Problem::Answer(error)))?;
                }
                None => break,
            }
        }
        serde_json::from_slice(list.frame())
            .map_err(|error| self.failed(what, Problem::Answer(error)))
    }

    /// Opens a watch.
    pub(in crate::kube) async fn watch<T: Clone + DeserializeOwned + Send + 'static>(
        &mut self,
        what: &'static str,
        request: Built,
    ) -> Result<WatchStream<T>, KubeError> {
        let request = request.map_err(|error| self.failed(what, error.into()))?;
        let client = self.connect().await?;
        match self.in_time(client.request_events::<T>(request)).await {
            Ok(stream) => Ok(WatchStream::new(stream, self.liveness.silence)),
            Err(problem) => Err(self.failed(what, problem)),
        }
    }

    /// Makes a new connection for the next request. One from an address that the host lost gets no
    /// answer, which only `TCP_USER_TIMEOUT` would notice.
    pub(in crate::kube) fn forget_connection(&mut self) {
        self.connection = None;
    }

    /// Turns a problem into the error to report, and forgets a connection that may be to blame.
    pub(in crate::kube) fn failed(&mut self, what: &'static str, problem: Problem) -> KubeError {
        let api = self.options.api();
        if problem.is_refusal() {
            if problem.code() == Some(401) {
                self.connection = None;
            }
            return KubeError::Refused { api, what, problem };
        }
        if matches!(
            problem,
            Problem::Deadline(_) | Problem::Silent(_) | Problem::Client(_)
        ) {
            // A connection without an answering server would be taken from the pool repeatedly.
            self.connection = None;
        }
        KubeError::Unreachable { api, what, problem }
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<T, Problem> {
        let deadline = self.liveness.deadline;
        // On the heap: the client's futures are large, and every caller would carry one per
        // request.
        match timeout(deadline, Box::pin(request)).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_elapsed) => Err(Problem::Deadline(deadline)),
        }
    }

    async fn connect(&mut self) -> Result<Client, KubeError> {
        sleep(self.server.pause()).await;
        if let Some(connection) = self
            .connection
            .as_ref()
            .filter(|connection| !connection.is_expired())
        {
            return Ok(connection.client.clone());
        }
        let made = self
            .connector
            .connect(&self.options, self.server.clone(), self.liveness.deadline)
            .await;
        let connection = made.map_err(|problem| KubeError::Setup {
            api: self.options.api(),
            problem,
        })?;
        Ok(self.connection.insert(connection).client.clone())
    }
}

/// Reads the text of an answer. The client's own reading copies it twice more, and logs an answer
/// that it cannot read, however large it is.
async fn read(client: &Client, request: Request<Vec<u8>>) -> kube::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut body = client.request_stream(request).await?;
    while take_piece(&mut body, |piece| text.extend_from_slice(piece))
        .await?
        .is_some()
    {}
    Ok(text)
}

/// Passes the next piece of a body; `None` at its end.
async fn take_piece<T>(
    body: &mut (impl AsyncBufRead + Unpin),
    take: impl FnOnce(&[u8]) -> T,
) -> kube::Result<Option<T>> {
    let piece = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
    let size = piece.len();
    if size == 0 {
        return Ok(None);
    }
    let taken = take(piece);
    body.consume_unpin(size);
    Ok(Some(taken))
}
