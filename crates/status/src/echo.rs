//! The answers of peers, in the status document.

use serde::{Deserialize, Serialize};

/// The echo requests to peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EchoStatus {
    /// Seconds between two requests to one peer, more in a large cluster; 0 if there are none.
    pub interval: u64,
    /// The reason why some peers or none are asked.
    pub reason: Option<String>,
}

/// One peer's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerEchoStatus {
    /// The address at which it is asked.
    pub address: String,
    /// Its state.
    pub state: EchoState,
    /// The time from the last request with a reply to that reply, in microseconds.
    pub round_trip_us: Option<u64>,
    /// Requests without a reply, of the last `of`.
    pub lost: u32,
    /// The number of last requests that are remembered: 32 at most.
    pub of: u32,
    /// When the last reply arrived, in seconds since 1970 UTC; absent if none did since the agent
    /// started.
    pub last_reply: Option<u64>,
    /// The reason why the last request could not be sent.
    pub error: Option<String>,
}

/// The state of a peer by its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EchoState {
    /// It answers.
    Answering,
    /// It answered, and has not answered the last three requests or more.
    Silent,
    /// It has not answered since the agent started, to three requests or more.
    Never,
    /// It has not answered yet, and fewer than three requests are lost.
    Unknown,
}

impl EchoState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Answering, Self::Silent, Self::Never, Self::Unknown];

    /// Returns true for a peer that may be dead.
    pub const fn is_problem(self) -> bool {
        matches!(self, Self::Silent | Self::Never)
    }

    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answering => "answering",
            Self::Silent => "silent",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }
}
