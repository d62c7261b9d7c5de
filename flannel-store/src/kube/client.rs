//! The connection to the API server: requests with deadlines, and fresh credentials after a
//! refusal.
//!
//! A token file is read once a minute. After a refusal everything is read again, so that a rotated
//! token or a corrected kubeconfig takes effect at the next attempt.

use std::time::Duration;

use futures::AsyncBufReadExt as _;
use http::{HeaderValue, Request, header::USER_AGENT};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    bounded::BoundAnswers,
    error::{KubeError, Problem},
    options::KubeOptions,
    requests::Built,
    stream::WatchStream,
    token::{AddToken, TokenFile},
};

/// Timeouts for detecting a silent server, and the grace period for short failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// For one request, connecting included.
    pub deadline: Duration,
    /// For a word on a watch. Servers send a bookmark every minute.
    pub silence: Duration,
    /// So long a node stays without a `NetworkUnavailable` condition while it is not ready: the
    /// condition keeps pods away, and most troubles are over at once.
    pub grace: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(15), silence: Duration::from_secs(90), grace: Duration::from_secs(10) }
    }
}

/// Names us in the server's audit log, and as the manager of the fields we write.
const NAME: &str = concat!("flannel-agent/", env!("CARGO_PKG_VERSION"));

/// A client that survives its credentials. Clones share what their connections are made from.
#[derive(Clone)]
pub(super) struct KubeClient {
    options: KubeOptions,
    liveness: Liveness,
    connection: Option<Client>,
}

impl KubeClient {
    pub(super) fn new(options: KubeOptions, liveness: Liveness) -> Self {
        Self { options, liveness, connection: None }
    }

    pub(super) fn options(&self) -> &KubeOptions {
        &self.options
    }

    pub(super) fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Sends a request and reads the answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        request: Built,
    ) -> Result<T, KubeError> {
        self.call_with(what, request, &mut Vec::new()).await
    }

    /// The same with a buffer for the answer's text, for a caller with several requests: memory
    /// that is taken from the system for each large answer costs more than reading it.
    pub(super) async fn call_with<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        request: Built,
        text: &mut Vec<u8>,
    ) -> Result<T, KubeError> {
        let request = request.map_err(|error| self.failed(what, error.into()))?;
        let client = self.connect().await?;
        let answer = self.in_time(read(&client, request, text)).await;
        answer
            .and_then(|()| serde_json::from_slice(text).map_err(Problem::Answer))
            .map_err(|problem| self.failed(what, problem))
    }

    /// Opens a watch.
    pub(super) async fn watch<T: Clone + DeserializeOwned + Send + 'static>(
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

    /// Turns a problem into the error to report, and forgets a connection that may be to blame.
    pub(super) fn failed(&mut self, what: &'static str, problem: Problem) -> KubeError {
        let api = self.options.api();
        if problem.is_refusal() {
            if problem.code() == Some(401) {
                self.connection = None;
            }
            return KubeError::Refused { api, what, problem };
        }
        if matches!(problem, Problem::Deadline(_) | Problem::Silent(_) | Problem::Client(_)) {
            // A connection without an answering server would be taken from the pool repeatedly.
            self.connection = None;
        }
        KubeError::Unreachable { api, what, problem }
    }

    async fn in_time<T>(&self, request: impl Future<Output = kube::Result<T>> + Send) -> Result<T, Problem> {
        let deadline = self.liveness.deadline;
        // On the heap: the client's futures are large, and every caller would carry one per
        // request.
        match timeout(deadline, Box::pin(request)).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_elapsed) => Err(Problem::Deadline(deadline)),
        }
    }

    async fn connect(&mut self) -> Result<Client, KubeError> {
        if let Some(client) = &self.connection {
            return Ok(client.clone());
        }
        let setup = |problem: String| KubeError::Setup { api: self.options.api(), problem };
        let mut config = configuration(&self.options).await.and_then(without_user_info).map_err(setup)?;
        config.connect_timeout = Some(self.liveness.deadline);
        // We have delays of our own, and want to know.
        config.default_retry = false;
        config.headers.push((USER_AGENT, HeaderValue::from_static(NAME)));
        let token = TokenFile::take(&mut config.auth_info).map_err(setup)?;
        let builder = ClientBuilder::try_from(config).map_err(|error| setup(error.to_string()))?;
        let client = builder.with_layer(&AddToken(token)).with_layer(&BoundAnswers).build();
        Ok(self.connection.insert(client).clone())
    }
}

/// Reads the text of an answer. The client's own reading copies it twice more, and logs an answer
/// that it cannot read, however large it is.
async fn read(client: &Client, request: Request<Vec<u8>>, text: &mut Vec<u8>) -> kube::Result<()> {
    text.clear();
    let mut body = client.request_stream(request).await?;
    loop {
        let piece = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
        let size = piece.len();
        if size == 0 {
            return Ok(());
        }
        text.extend_from_slice(piece);
        body.consume_unpin(size);
    }
}

/// The URL may be shown, and the client uses no credentials in it. A kubeconfig has other places
/// for them.
fn without_user_info(config: Config) -> Result<Config, String> {
    if config.cluster_url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(
            "the URL of its server has a user name or password, which is not used; put them under users".to_owned()
        );
    }
    Ok(config)
}

/// As flannel chooses: the file and the URL if given; with neither the pod's service account, else
/// the default file.
async fn configuration(options: &KubeOptions) -> Result<Config, String> {
    let url = options.api_url.as_deref();
    if let Some(path) = &options.kubeconfig {
        let mut file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
        for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            cluster.server = url.map(str::to_owned).or(cluster.server.take());
        }
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        return config.map_err(|error| format!("{}: {error}", path.display()));
    }
    if let Some(url) = url {
        return url.parse().map(Config::new).map_err(|error| format!("{url:?} is no URL: {error}"));
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(pod) => Config::from_kubeconfig(&KubeConfigOptions::default())
            .await
            .map_err(|file| format!("as a pod: {pod}; with the default kubeconfig file: {file}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_password_in_its_url_is_refused_and_not_quoted() {
        let checked = |url: &str| without_user_info(Config::new(url.parse().expect("a URL"))).map(drop);
        assert_eq!(checked("https://192.0.2.1:6443/a@b"), Ok(()));
        let refusal = checked("https://flannel:S3cr3t@192.0.2.1:6443").expect_err("a password");
        assert!(refusal.contains("put them under users") && !refusal.contains("S3cr3t"), "{refusal}");
    }
}
