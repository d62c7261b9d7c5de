//! How a store tells which pods of this node stay out of mode `fast`.
//!
//! It is asked only while the mode is in force: to follow pods costs its server a watch for each node.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use tokio::{sync::watch, time::timeout};

/// So long its first word is waited for. It comes at once, or the server has troubles.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a store says of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsToldOf {
    /// Those that stay out: their names, by address.
    pub out: BTreeMap<IpAddr, String>,
    /// Why what it says may be old, or nothing.
    pub problem: Option<String>,
    /// Whether it was heard at all, or refused.
    pub heard: bool,
}

/// The asking side.
#[derive(Debug)]
pub struct OptOuts {
    ends: Option<(watch::Sender<bool>, watch::Receiver<PodsToldOf>)>,
    awaited: bool,
}

/// The store's side.
#[derive(Debug)]
pub(super) struct Duty {
    /// Whether anybody wants to know.
    pub(super) wanted: watch::Receiver<bool>,
    pub(super) told: watch::Sender<PodsToldOf>,
}

impl OptOuts {
    /// Of a store that knows of no pods.
    pub const fn never() -> Self {
        Self { ends: None, awaited: false }
    }

    pub(super) fn new() -> (Self, Duty) {
        let (wants, wanted) = watch::channel(false);
        let (told, hears) = watch::channel(PodsToldOf::default());
        (Self { ends: Some((wants, hears)), awaited: false }, Duty { wanted, told })
    }

    /// Whether it is to be told from now on.
    pub fn want(&mut self, wanted: bool) {
        if let Some((wants, _)) = &self.ends {
            wants.send_if_modified(|told| std::mem::replace(told, wanted) != wanted);
            self.awaited &= wanted;
        }
    }

    /// Waits for the first word after it was wanted, once and for a bounded time: pods that stay out should not take part for
    /// the moment in which it comes.
    pub async fn first(&mut self) {
        if let Some((wants, hears)) = &mut self.ends
            && *wants.borrow()
            && !std::mem::replace(&mut self.awaited, true)
            && timeout(PATIENCE, hears.wait_for(|told| told.heard)).await.is_err()
        {
            tracing::warn!("which pods stay out of mode fast is not known yet; they take part until it is");
        }
    }

    /// Waits until something else was said. Cancel-safe.
    pub async fn changed(&mut self) {
        if let Some((_, hears)) = &mut self.ends
            && hears.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// What was said last.
    pub fn latest(&self) -> PodsToldOf {
        self.ends.as_ref().map(|(_, hears)| hears.borrow().clone()).unwrap_or_default()
    }

    /// Why what was said may be old, or nothing.
    pub fn problem(&self) -> Option<String> {
        self.ends.as_ref().and_then(|(_, hears)| hears.borrow().problem.clone())
    }
}
