//! The lifetime of our leases.

use std::time::Duration;

/// The longest wait between attempts to renew.
const RENEW_RETRY: Duration = Duration::from_mins(1);

/// The lifetime of our leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) ttl: Duration,
    /// So long before expiry a lease is renewed.
    pub(super) margin: Duration,
}

impl Term {
    /// Between attempts to renew: a minute, or less if the margin leaves room for few attempts.
    pub(super) fn retry(self) -> Duration {
        (self.margin / 10).clamp(Duration::from_millis(100), RENEW_RETRY)
    }
}
