//! The guard.

use serde::{Deserialize, Serialize};

/// The guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GuardStatus {
    /// The check that tunnel packets come from peers.
    pub outer: CheckStatus,
    /// The check that packets from peers come from their subnets.
    pub inner: CheckStatus,
    /// The outer check at the driver; absent where it is not asked for, or no agent says so.
    #[serde(default)]
    pub xdp: Option<XdpStatus>,
}

/// The guard at the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct XdpStatus {
    /// True if the program is attached.
    pub attached: bool,
    /// The reason why it is not.
    pub reason: Option<String>,
}

/// One check of the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckStatus {
    /// The active mode: `off`, `audit` or `enforce`.
    #[cfg_attr(test, schemars(with = "crate::schema::GuardModeName"))]
    pub effective: String,
    /// The mode asked for.
    #[cfg_attr(test, schemars(with = "crate::schema::GuardModeName"))]
    pub wanted: String,
    /// True if it was asked for at run time, by `flannel-agent guard set`.
    pub chosen_at_run_time: bool,
    /// The reason why the active mode is not the requested one.
    pub reason: Option<String>,
    /// Packets that failed the check and were dropped; a second old at most.
    pub refused: u64,
    /// Packets that failed the check and passed, because it was not enforced.
    pub passed: u64,
}
