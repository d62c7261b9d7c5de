//! The channel by which a store reports which pods of this node stay out of mode `fast`.
//!
//! Reports are requested only while the mode is active, because following pods costs the store's
//! server a watch for each node.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use tokio::{sync::watch, time::timeout};

/// The longest wait for the first report. It arrives at once unless the server has problems.
const PATIENCE: Duration = Duration::from_secs(3);

/// A store's report on the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOptOuts {
    /// Those that stay out: their names, by address.
    pub out: BTreeMap<IpAddr, String>,
    /// The names of all pods of this node in the pod network, by address.
    pub names: BTreeMap<IpAddr, String>,
    /// The reason the report may be outdated or empty, if there is one.
    pub problem: Option<String>,
    /// True once the server has answered, be it with a refusal.
    pub is_from_server: bool,
}

/// The asking side.
#[derive(Debug)]
pub struct OptOuts {
    ends: Option<(watch::Sender<bool>, watch::Receiver<PodOptOuts>)>,
    awaited: bool,
}

/// The store's side.
#[derive(Debug)]
pub(super) struct OptOutPublisher {
    /// True while the asking side wants reports.
    pub(super) wanted: watch::Receiver<bool>,
    pub(super) report: watch::Sender<PodOptOuts>,
}

impl OptOuts {
    /// Of a store that knows of no pods.
    pub const fn never() -> Self {
        Self {
            ends: None,
            awaited: false,
        }
    }

    pub(super) fn new() -> (Self, OptOutPublisher) {
        let (wants, wanted) = watch::channel(false);
        let (report, reports) = watch::channel(PodOptOuts::default());
        (
            Self {
                ends: Some((wants, reports)),
                awaited: false,
            },
            OptOutPublisher { wanted, report },
        )
    }

    /// Sets whether reports are wanted from now on.
    pub fn want(&mut self, wanted: bool) {
        if let Some((wants, _)) = &self.ends {
            wants.send_if_modified(|last| std::mem::replace(last, wanted) != wanted);
            self.awaited &= wanted;
        }
    }

    /// Waits for the first report after reports were wanted, once and for a bounded time, so that
    /// pods that stay out do not take part until it arrives.
    pub async fn first(&mut self) {
        if let Some((wants, reports)) = &mut self.ends
            && *wants.borrow()
            && !std::mem::replace(&mut self.awaited, true)
            && timeout(PATIENCE, reports.wait_for(|report| report.is_from_server))
                .await
                .is_err()
        {
            tracing::warn!(
                "which pods stay out of mode fast is not known yet; they take part until it is"
            );
        }
    }

    /// Waits for a report that differs from the last one. Cancel-safe.
    pub async fn changed(&mut self) {
        if let Some((_, reports)) = &mut self.ends
            && reports.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Returns the last report.
    pub fn latest(&self) -> PodOptOuts {
        self.ends
            .as_ref()
            .map(|(_, reports)| reports.borrow().clone())
            .unwrap_or_default()
    }

    /// Returns the reason the last report may be outdated or empty, if there is one.
    pub fn problem(&self) -> Option<String> {
        self.ends
            .as_ref()
            .and_then(|(_, reports)| reports.borrow().problem.clone())
    }
}
