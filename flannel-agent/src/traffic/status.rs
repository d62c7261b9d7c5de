//! How the traffic rules stand, as `status` shows it.

use serde::{Deserialize, Serialize};

/// The traffic rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Who keeps the rules: `iptables 1.8.9 (nf_tables)`, `nftables`; absent when no rule is asked for, or nobody can.
    pub engine: Option<String>,
    /// The families with rules: `IPv4`, `IPv6`.
    pub families: Vec<String>,
    /// Whether masquerade is asked for.
    pub masquerade: bool,
    /// Whether forward rules are asked for.
    pub forward: bool,
    /// Whether a blackhole route is asked for.
    pub blackhole: bool,
    /// How often something of ours was found missing or changed after it had been in place, and mended.
    pub repairs: u64,
    /// When that was last, in seconds since 1970 UTC.
    pub repaired_at: Option<u64>,
    /// What is not as it was asked for.
    pub error: Option<String>,
}
