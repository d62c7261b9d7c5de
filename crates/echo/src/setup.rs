//! The input of the thread that asks.

use std::time::Duration;

use flannel_reconcile::SharedPeers;
use prometheus::Histogram;

use super::SharedEchoes;

/// The peers to ask, how often, and where the answers go.
#[derive(Debug)]
pub struct EchoSetup {
    /// The time between two requests to one peer.
    pub interval: Duration,
    /// The peers.
    pub peers: SharedPeers,
    /// The answers.
    pub echoes: SharedEchoes,
    /// The time from each request to its reply.
    pub round_trips: Histogram,
}
