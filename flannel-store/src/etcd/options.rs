//! Options for reaching etcd, and for the lifetime of our lease there.

use std::{convert::Infallible, fmt, str::FromStr, time::Duration};

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

/// A password: text that must not reach a log. Its `Debug` form is a placeholder, and it has no
/// `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// The user that authenticates with etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret,
}
