//! The process of the backend udp.

use flannel_udp::Counts;
use serde::{Deserialize, Serialize};

/// The process that carries the packets, as `status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UdpStatus {
    /// Its process id; absent while there is none.
    pub pid: Option<u32>,
    /// The UDP port.
    pub port: u16,
    /// The number of times that this agent started one. Zero if it found one and kept it.
    pub starts: u64,
    /// The reason why there is none.
    pub error: Option<String>,
    /// Packets, also those of predecessors that handed over.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    pub counts: Counts,
}
