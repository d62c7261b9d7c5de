//! The traffic rules of the node: masquerade, forward accept, the blackhole route.
//!
//! Owns flannel's chains (`FLANNEL-POSTRTG`, `FLANNEL-FWD`) and tables (`flannel-ipv4`,
//! `flannel-ipv6`), the jumps to the chains, and blackhole routes of our protocol. The rules are
//! identical to those of flannel, so that tools built around them keep working. The main loop sets
//! the desired state ([`WantedTraffic`], pure data); one task ([`Traffic`]) reads the actual state,
//! computes the difference and applies it.
//!
//! Invariants: a table changes in one transaction, so a rule that existed before and is still
//! desired is never missing; correct rules are not touched; a rule inside our chains that is
//! neither ours nor for one of our networks stays (another flannel on this host has the same
//! chains).
//!
//! The task is separate from the main loop because the tools may wait for the xtables lock, and
//! packets between pods do not need these rules.

mod blackhole;
mod chain;
mod choice;
mod engines;
mod error;
mod iptables;
mod nftables;
pub mod removal;
mod rule;
mod sync;
mod wanted;

use flannel_netlink::{KernelEvent, Netlink};
use tokio::sync::watch;

use self::sync::{SyncReport, TrafficWorker};
pub use self::{
    engines::{InstalledTools, installed_tools},
    nftables::table as nft_table,
};
pub use self::{
    error::TrafficError,
    wanted::{Engine, FamilyScope, MasqueradeFamilies, TrafficOptions, WantedTraffic},
};
use flannel_status::TrafficStatus;

/// The main loop's side of the task that keeps the rules. Dropping it ends the task.
#[derive(Debug)]
pub struct Traffic {
    engine: Engine,
    wanted: watch::Sender<WantedTraffic>,
    invalidate: watch::Sender<()>,
    report: watch::Receiver<SyncReport>,
}

impl Traffic {
    /// Starts the task in the network namespace of the calling thread. `engine` is the one that is
    /// asked for, if any is; this node may need the other. Where masquerade is asked for, a missing
    /// tool is an error here and now; anything later is reported and tried again.
    pub async fn start(
        netlink: Netlink,
        engine: Option<Engine>,
        options: TrafficOptions,
        wanted: WantedTraffic,
    ) -> Result<Self, TrafficError> {
        let worker = TrafficWorker::new(netlink, engine, options, &wanted).await;
        worker.demand_tools(&wanted)?;
        let engine = worker.engine();
        let (invalidate, invalidations) = watch::channel(());
        let (publish, report) = watch::channel(SyncReport::default());
        let (wanted, receiver) = watch::channel(wanted);
        tokio::spawn(worker.run(receiver, invalidations, publish));
        Ok(Self {
            engine,
            wanted,
            invalidate,
            report,
        })
    }

    /// The engine that was chosen at the start.
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// Sets the desired state.
    pub fn want(&self, wanted: WantedTraffic) {
        self.wanted
            .send_if_modified(|now| std::mem::replace(now, wanted) != *now);
    }

    /// Takes in a kernel event: a route to our subnet may be the blackhole route, or one that hides
    /// it.
    pub fn observe(&self, event: &KernelEvent) {
        let is_stale = match event {
            KernelEvent::Route { key, .. } => self.wanted.borrow().concerns(key.dst),
            KernelEvent::Overflow => true,
            _ => false,
        };
        if is_stale {
            self.invalidate.send_replace(());
        }
    }

    /// Waits until there is a new report. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.report.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the rules were looked at once, successfully or not.
    pub fn first_look(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut report = self.report.clone();
        async move {
            // An error is the end of the task, which does not look any more.
            let _looked = report.wait_for(|report| report.of.is_some()).await;
        }
    }

    /// Returns true if the current wanted state was tried, successfully or not.
    pub fn is_settled(&self) -> bool {
        self.report.borrow().of.as_ref() == Some(&*self.wanted.borrow())
    }

    /// Returns the current status.
    pub fn status(&self) -> TrafficStatus {
        self.report.borrow().status.clone()
    }
}
