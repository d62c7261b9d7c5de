//! Options for reaching etcd, and for the lifetime of our lease there.

use std::time::Duration;

use flannel_host::secret::Secret;

use super::tls::TlsFiles;

/// The operator's settings for etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// At least one `http://host:port` or `https://host:port`, tried in order.
    pub endpoints: Vec<String>,
    /// The CA that `https` endpoints are verified against, and our client certificate.
    pub tls: TlsFiles,
    /// The prefix of our keys, as written.
    pub prefix: String,
    /// User and password, when etcd asks for them.
    pub credentials: Option<Credentials>,
    /// The lifetime of a lease, whole seconds.
    pub lease_ttl: Duration,
    /// The time before expiry at which a lease is renewed; shorter than the lifetime.
    pub renew_margin: Duration,
}

impl EtcdOptions {
    /// Returns true if any endpoint is reached by TLS.
    pub fn uses_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| is_tls(endpoint))
    }
}

/// Returns true if this endpoint is reached by TLS.
pub(super) fn is_tls(endpoint: &str) -> bool {
    endpoint.starts_with("https://")
}

/// The user that authenticates with etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret,
}
