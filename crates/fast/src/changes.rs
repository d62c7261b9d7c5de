//! Changes of nftables, which make what was learned doubtful before its refresh would notice.
//! Legacy iptables and ipsets announce nothing: for them the refresh is the bound.

use std::{future::pending, time::Instant};

use flannel_netlink::NftablesChanges;
use tokio::time::sleep_until;

use super::debounce::Debounce;

/// The changes of the namespace's rules.
#[derive(Debug)]
pub struct RuleChanges {
    changes: Option<NftablesChanges>,
    pace: Debounce,
}

impl RuleChanges {
    /// Listens from now on. Call inside a Tokio runtime.
    pub fn listen() -> Self {
        let changes = NftablesChanges::subscribe_all();
        if let Err(error) = &changes {
            tracing::warn!(%error, "changes of nftables reach known flows at their next refresh \
                only");
        }
        Self {
            changes: changes.ok(),
            pace: Debounce::default(),
        }
    }

    /// Waits until a new generation is due. Cancel-safe.
    pub async fn due(&mut self) {
        loop {
            let due = self.pace.due();
            tokio::select! {
                () = changed(self.changes.as_mut()) => self.pace.changed(Instant::now()),
                () = until(due) => {
                    self.pace.begun(Instant::now());
                    return;
                }
            }
        }
    }
}

async fn changed(changes: Option<&mut NftablesChanges>) {
    match changes {
        Some(changes) => changes.next().await,
        None => pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
    }
}
