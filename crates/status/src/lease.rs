//! Leases, ours and those that are rejected, and the store.

use serde::{Deserialize, Serialize};

/// Our lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaseStatus {
    /// Our subnet; the IPv4 one if there are two.
    pub subnet: String,
    /// The address peers send to, of the same family.
    pub public_ip: String,
    /// Our IPv6 subnet, where IPv6 is on.
    pub ipv6_subnet: Option<String>,
    /// The address peers send IPv6 to.
    pub public_ipv6: Option<String>,
    /// True if we hold it right now.
    pub held: bool,
    /// When the store drops it unless it is renewed, in seconds since 1970 UTC; absent for a
    /// reservation, and for a subnet that was assigned.
    pub expires_at: Option<u64>,
    /// True if the cluster assigned the subnet to this node for good, as Kubernetes does.
    #[serde(default)]
    pub assigned: bool,
}

/// The store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoreStatus {
    /// The addresses of the store.
    pub endpoints: Vec<String>,
    /// True if we see its changes.
    pub in_sync: bool,
    /// The reason why we do not.
    pub reason: Option<String>,
    /// Since when it is so, in seconds since 1970 UTC; absent while the agent starts.
    pub since: Option<u64>,
    /// The time of the last known change of any lease, likewise; absent until the first.
    pub last_change: Option<u64>,
}

/// Leases refused because another node has what they claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConflictStatus {
    /// Its VTEP MAC.
    pub mac: usize,
    /// Its public key.
    #[serde(default)]
    pub key: usize,
    /// Its subnet, or a part of it.
    pub subnet: usize,
    /// Its public address: 1 while another machine with ours contests our lease in etcd.
    #[serde(default)]
    pub address: usize,
}

/// The resource of this node that another node claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// Its VTEP MAC.
    Mac,
    /// Its public key.
    Key,
    /// Its subnet, or a part of it.
    Subnet,
}

/// A lease that the agent rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RejectedStatus {
    /// Its key, cut.
    pub key: String,
    /// The reason why it is rejected.
    pub reason: String,
    /// The resource of this node that it claims, if that is the reason.
    #[serde(default)]
    pub claim: Option<Claim>,
}
