//! Leases that are not believed, in the log: no more lines than help, however many there are and however often they
//! change.

use std::time::Instant;

use crate::{log_limit::LogLimit, subnet::Rejected};

/// Logs refused leases.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    limit: LogLimit,
}

impl RefusalLog {
    /// Logs those that are newly refused, or for another reason, and how many are not named.
    pub(super) fn log(&mut self, refused: &[Rejected], now: Instant) {
        for lease in refused {
            if self.limit.admit(now) {
                tracing::warn!("refused: {lease}");
            }
        }
        self.report(now);
    }

    /// Logs how many were not named, when that is due.
    pub(super) fn report(&mut self, now: Instant) {
        if let Some(more) = self.limit.report(now) {
            tracing::warn!("refused: {more} more; `flannel-agent status` lists leases that are refused now");
        }
    }
}
