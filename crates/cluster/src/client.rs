//! The connection to the API server, found as kubectl finds it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use http::{HeaderValue, Request, header::USER_AGENT};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::request,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::ClusterError;

/// For one request. Lists of large clusters take seconds.
const DEADLINE: Duration = Duration::from_secs(30);
/// For the first packet of a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Names us in the server's audit log.
const NAME: &str = concat!("flannel-agent/", env!("CARGO_PKG_VERSION"));

/// The kubeconfig and the context in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiAccess {
    /// A kubeconfig file; else `KUBECONFIG`, `~/.kube/config` or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The context; else the current one.
    pub context: Option<String>,
}

/// A connection. Clones share it.
#[derive(Clone)]
pub struct ClusterClient {
    pub(super) client: Client,
    /// The host of the server, for messages.
    server: String,
}

impl ClusterClient {
    /// Reads the credentials. The first request connects.
    pub async fn new(access: &ApiAccess) -> anyhow::Result<Self> {
        let mut config = configuration(access).await?;
        config.connect_timeout = Some(CONNECT);
        config
            .headers
            .push((USER_AGENT, HeaderValue::from_static(NAME)));
        let server = config.cluster_url.host().unwrap_or_default().to_owned();
        let builder = ClientBuilder::try_from(config)
            .with_context(|| format!("cannot use the API server {server}"))?;
        Ok(Self {
            client: builder.build(),
            server,
        })
    }

    /// Sends a request and reads the answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        what: &str,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<T, ClusterError> {
        let request = request.map_err(|source| ClusterError::Request {
            what: what.to_owned(),
            source,
        })?;
        // On the heap: the client's futures are large.
        let answer = timeout(DEADLINE, Box::pin(self.client.request_text(request))).await;
        let answer = answer.map_err(|_elapsed| ClusterError::Deadline {
            what: what.to_owned(),
            limit: DEADLINE,
        })?;
        let text = answer.map_err(|error| ClusterError::new(what, &self.server, error))?;
        serde_json::from_str(&text).map_err(|source| ClusterError::Answer {
            what: what.to_owned(),
            source,
        })
    }
}

async fn configuration(access: &ApiAccess) -> anyhow::Result<Config> {
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &access.kubeconfig {
        let file = Kubeconfig::read_from(path).context("cannot use the file of --kubeconfig")?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        return config.with_context(|| format!("cannot use {}", path.display()));
    }
    match Config::from_kubeconfig(&options).await {
        Ok(config) => Ok(config),
        Err(file) if !is_absent(&file) || access.context.is_some() => {
            Err(file).context("cannot use the kubeconfig")
        }
        Err(file) => match Config::incluster() {
            Ok(config) => Ok(config),
            Err(pod) => bail!(
                "no cluster is known: {file}; and this is no pod with a service account: {pod}. \
                 Name a file by \
                 --kubeconfig or KUBECONFIG"
            ),
        },
    }
}

/// Returns true if the kubeconfig file is missing, so that a pod's service account may serve.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FILE: &str = r"
clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}, {name: d, cluster: {server: 'https://192.0.2.2'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: d, user: u}}]
current-context: one
";

    #[tokio::test]
    async fn the_file_and_the_context_of_the_flags_count() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("config");
        fs::write(&path, FILE).expect("written");
        let server = async |context: Option<&str>| {
            let access = ApiAccess {
                kubeconfig: Some(path.clone()),
                context: context.map(str::to_owned),
            };
            configuration(&access)
                .await
                .map(|config| config.cluster_url.to_string())
        };
        assert_eq!(
            server(None).await.expect("a server"),
            "https://192.0.2.1:6443/"
        );
        assert_eq!(
            server(Some("two")).await.expect("a server"),
            "https://192.0.2.2/"
        );
        let error = server(Some("three")).await.expect_err("no such context");
        assert!(format!("{error:#}").contains("three"), "{error:#}");
        let absent = ApiAccess {
            kubeconfig: Some(scratch.path().join("none")),
            context: None,
        };
        let error = configuration(&absent).await.expect_err("no file");
        assert!(error.to_string().contains("--kubeconfig"), "{error:#}");
    }
}
