//! The lifetime of our leases.

use std::time::Duration;

/// The longest wait between attempts to renew.
const RENEW_RETRY: Duration = Duration::from_mins(1);

/// The lifetime of our leases.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd) struct Term {
    pub(in crate::etcd) ttl: Duration,
    /// So long before expiry a lease is renewed.
    pub(in crate::etcd) margin: Duration,
}

impl Term {
    /// Between attempts to renew: a minute, or less if the margin leaves room for few attempts.
    pub(in crate::etcd) fn retry(self) -> Duration {
        (self.margin / 10).clamp(Duration::from_millis(100), RENEW_RETRY)
    }
}
