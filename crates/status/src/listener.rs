//! The listeners for health checks and metrics.

use serde::{Deserialize, Serialize};

/// A listener for HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListenerStatus {
    /// Its use: `health checks`, `metrics` or both.
    pub purpose: String,
    /// Its address and port.
    pub address: String,
    /// The prefix of the flags that choose the address: `healthz` or `metrics`.
    pub flags: String,
    /// The reason why it does not listen yet; absent if it does.
    pub error: Option<String>,
}
