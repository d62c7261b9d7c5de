//! Log lines for rejected leases. Their number is limited, however many such leases there are and
//! however often they change.

use std::time::Instant;

use flannel_host::log_limit::LogLimit;
use flannel_store::Rejected;

/// Logs refused leases. Conflicts between nodes have a separate limit, so that other refusals do
/// not hide them.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    conflicts: LogLimit,
    others: LogLimit,
}

impl RefusalLog {
    /// Logs those that are newly refused, or for another reason, and how many are not named.
    pub(super) fn log(&mut self, refused: &[Rejected], now: Instant) {
        for lease in refused {
            let is_conflict = lease.reason.conflict().is_some();
            let limit = if is_conflict {
                &mut self.conflicts
            } else {
                &mut self.others
            };
            match limit.admit(now) {
                true if is_conflict => tracing::error!("refused: {lease}"),
                true => tracing::warn!("refused: {lease}"),
                false => {}
            }
        }
        self.report(now);
    }

    /// Logs how many were not named, when that is due.
    pub(super) fn report(&mut self, now: Instant) {
        for more in [&mut self.conflicts, &mut self.others]
            .into_iter()
            .filter_map(|limit| limit.report(now))
        {
            tracing::warn!(
                "refused: {more} more; `flannel-agent status` lists leases that are refused now"
            );
        }
    }
}
