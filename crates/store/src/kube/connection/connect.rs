//! Making a client: the kubeconfig or the pod's service account, its files, its credential plugin.
//!
//! Files may be on a network file system that hangs, and a plugin may hang, so neither is read on
//! the calling thread, and both have a deadline.

use std::time::Duration;

use http::{HeaderValue, header::USER_AGENT};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{runtime::Handle, time::Instant};
use tower::{BoxError, ServiceBuilder};

use crate::kube::connection::{
    credential_plugin::PluginCredentials,
    token::{AddToken, TokenFile},
    transport::{Answers, PacedServer},
};
use crate::{kube::options::KubeOptions, off_thread::OffThread};

/// Names us in the server's audit log, and as the manager of the fields we write.
const NAME: &str = concat!("flannel-agent/", env!("CARGO_PKG_VERSION"));
/// The directory where the kubelet mounts the service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A connection that is silent for this long is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(7);
/// Between two such questions, of which the second one without an answer ends the connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 2;
/// For the acknowledgement of what was sent (`TCP_USER_TIMEOUT`).
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The time before the end of credentials from which on new ones are asked for.
const RENEWAL: i64 = 60;

/// A client, and the end of its credentials.
#[derive(Clone)]
pub(in crate::kube) struct Connection {
    pub(in crate::kube) client: Client,
    valid_until: Option<Timestamp>,
}

impl Connection {
    /// Returns true if new credentials are due.
    pub(in crate::kube) fn is_expired(&self) -> bool {
        self.valid_until
            .is_some_and(|end| Timestamp::now().as_second() + RENEWAL >= end.as_second())
    }
}

/// Makes connections. Clones share the one thread that may wait for files.
#[derive(Clone, Debug, Default)]
pub(in crate::kube) struct Connector {
    files: OffThread,
}

impl Connector {
    /// Makes a connection within `limit`.
    pub(in crate::kube) async fn connect(
        &self,
        options: &KubeOptions,
        pace: PacedServer,
        limit: Duration,
    ) -> Result<Connection, String> {
        let (end, files) = (Instant::now() + limit, files(options));
        let asked = options.clone();
        let mut config = self
            .off_thread(end, &files, move || {
                Handle::current()
                    .block_on(configuration(&asked))
                    .and_then(without_user_info)
            })
            .await?;
        let mut valid_until = None;
        if let Some(plugin) = config.auth_info.exec.take() {
            let left = end.saturating_duration_since(Instant::now());
            let credentials = PluginCredentials::ask(&plugin, left).await?;
            credentials.apply(&mut config.auth_info)?;
            valid_until = credentials.expires();
        }
        let client = self
            .off_thread(end, &files, move || client(config, pace))
            .await?;
        Ok(Connection {
            client,
            valid_until,
        })
    }

    async fn off_thread<T: Send + 'static>(
        &self,
        end: Instant,
        files: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let result = self.files.run(end, work).await;
        result.unwrap_or_else(|unfinished| Err(format!("{files}: {unfinished}")))
    }
}

/// The files that a connection is made from, in words.
fn files(options: &KubeOptions) -> String {
    match (&options.kubeconfig, &options.api_url) {
        (Some(path), _) => format!("kubeconfig {} and the files that it names", path.display()),
        (None, Some(_)) => "certificates of the system".to_owned(),
        (None, None) => format!("service account in {ACCOUNT}, or the default kubeconfig"),
    }
}

/// The client library's own stack, but for retries without a word, and with a socket that notices a
/// server that is gone.
fn client(mut config: Config, pace: PacedServer) -> Result<Client, String> {
    if let Some(proxy) = &config.proxy_url {
        return Err(format!(
            "a proxy to the API server ({:?}) is not supported",
            proxy.scheme_str().unwrap_or("")
        ));
    }
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(NAME)));
    let token = TokenFile::take(&mut config.auth_info)?;
    let text = |error: kube::Error| error.to_string();
    let connector = config
        .rustls_https_connector_with_connector(socket())
        .map_err(text)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(text)?)
        .layer(config.extra_headers_layer().map_err(text)?)
        .map_err(BoxError::from)
        .service(http);
    let builder = ClientBuilder::new(service, config.default_namespace);
    Ok(builder
        .with_layer(&AddToken(token))
        .with_layer(&Answers(pace))
        .build())
}

/// The kernel ends a connection whose other end does not answer, `KEEPALIVE` and two intervals
/// after its last word, or at the timeout of what was sent: tcp(7).
fn socket() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}

/// The URL may be shown, and the client uses no credentials in it. A kubeconfig has other places
/// for them.
fn without_user_info(config: Config) -> Result<Config, String> {
    if config
        .cluster_url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(
            "the URL of its server has a user name or password, which is not used; put them under \
             users"
                .to_owned(),
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
        for cluster in file
            .clusters
            .iter_mut()
            .filter_map(|named| named.cluster.as_mut())
        {
            cluster.server = url.map(str::to_owned).or(cluster.server.take());
        }
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        return config.map_err(|error| format!("{}: {error}", path.display()));
    }
    if let Some(url) = url {
        return url
            .parse()
            .map(Config::new)
            .map_err(|error| format!("{url:?} is no URL: {error}"));
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
        let checked =
            |url: &str| without_user_info(Config::new(url.parse().expect("a URL"))).map(drop);
        assert_eq!(checked("https://192.0.2.1:6443/a@b"), Ok(()));
        let refusal = checked("https://flannel:S3cr3t@192.0.2.1:6443").expect_err("a password");
        assert!(
            refusal.contains("put them under users") && !refusal.contains("S3cr3t"),
            "{refusal}"
        );
    }
}
