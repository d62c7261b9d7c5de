//! Echo requests to peers.

use std::time::Duration;

use clap::Args;

use super::check::Checks;

/// Flags of the echo requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Health and metrics")]
pub(super) struct EchoFlags {
    /// Seconds between two ICMP echo requests to each peer, whose replies `status` and the metrics
    /// show; 0 for none, where the network forbids them
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        allow_negative_numbers = true
    )]
    peer_echo_interval: i64,
}

impl EchoFlags {
    /// `None` for no requests.
    pub(super) fn check(&self, checks: &mut Checks) -> Option<Duration> {
        let seconds = u32::try_from(self.peer_echo_interval);
        if seconds.is_err() {
            checks.refuse(
                "peer-echo-interval",
                self.peer_echo_interval,
                "0 to 4294967295 seconds",
            );
        }
        seconds
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into()))
    }
}
