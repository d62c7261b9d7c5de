//! The guard, from the agent's side: the active modes, and the reports of refused packets.
//!
//! It owns the `GUARD` word while an agent runs, and the guard's part of log and status. The
//! programs decide on packets; the crate `flannel_reconcile` decides who the peers are. The
//! programs count packets and list their sources; no packet is reported on its own.

mod policy;
mod rate_limited_log;
mod report;

use std::time::Instant;

use flannel_common::abi::guard::{Checks, GuardMode};
use flannel_datapath::{DatapathError, Maps};
use flannel_status::GuardStatus;

use self::{policy::decide, rate_limited_log::RateLimitedLog, report::Count};
pub use self::{
    policy::{DEFAULT, Uncertainty},
    report::{Suspected, status_of_pins, suspects},
};

/// Keeps the guard as it is asked for.
pub struct Guard {
    flags: Checks<GuardMode>,
    logged: Option<Checks<GuardMode>>,
    log: RateLimitedLog,
    /// The counts at the last call.
    seen: Checks<Count>,
}

impl Guard {
    /// As the flags ask for it.
    pub fn new(flags: Checks<GuardMode>) -> Self {
        Self {
            flags,
            logged: None,
            log: RateLimitedLog::default(),
            seen: Checks::default(),
        }
    }

    /// Sets the requested modes. [`Self::follow`] applies them.
    pub const fn ask(&mut self, flags: Checks<GuardMode>) {
        self.flags = flags;
    }

    /// Applies the requested modes, lowered if `uncertainty` requires it; the operator may have
    /// requested others since the last call. Returns true if the modes changed. `uncertainty` is
    /// the reason why the known peers may be incomplete.
    pub fn follow(
        &mut self,
        maps: &mut Maps,
        uncertainty: Option<Uncertainty>,
    ) -> Result<bool, DatapathError> {
        let in_force = loop {
            let choice = maps.guard.get()?.choice();
            let [outer, inner] = self.decided(choice, uncertainty);
            let in_force = Checks {
                outer: outer.0,
                inner: inner.0,
            };
            // The operator's choice may be another by now.
            if maps.guard.follow(in_force, choice)? {
                break in_force;
            }
        };
        let changed = self.logged.replace(in_force) != Some(in_force);
        if changed {
            tracing::info!(
                outer = %in_force.outer,
                inner = %in_force.inner,
                reason = uncertainty.map(tracing::field::display),
                "guard"
            );
        }
        Ok(changed)
    }

    /// Logs what was refused since the last log line, if the next one is due. Returns true if the
    /// counts changed since the last call.
    pub fn log_counts(&mut self, maps: &Maps, now: Instant) -> Result<bool, DatapathError> {
        let counts = report::counts(&maps.stats)?;
        self.log.update(counts, now, || suspects(&maps.suspects))?;
        Ok(std::mem::replace(&mut self.seen, counts) != counts)
    }

    /// For the status document.
    pub fn status(
        &self,
        maps: &Maps,
        uncertainty: Option<Uncertainty>,
    ) -> Result<GuardStatus, DatapathError> {
        let word = maps.guard.get()?;
        let wanted = self.decided(word.choice(), uncertainty);
        let reasons = wanted.map(|(mode, requested)| uncertainty.filter(|_| mode != requested));
        let wanted = Checks {
            outer: wanted[0].1,
            inner: wanted[1].1,
        };
        Ok(report::status(
            word,
            wanted,
            reasons,
            report::counts(&maps.stats)?,
        ))
    }

    /// For the status document of a node without the programs, which refuses nothing.
    pub fn status_without_bpf(&self) -> GuardStatus {
        report::status_without_bpf(self.flags)
    }

    /// Returns for each check the permitted mode and the requested one.
    fn decided(
        &self,
        choice: Checks<Option<GuardMode>>,
        uncertainty: Option<Uncertainty>,
    ) -> [(GuardMode, GuardMode); 2] {
        [
            (choice.outer, self.flags.outer),
            (choice.inner, self.flags.inner),
        ]
        .map(|(choice, flag)| decide(choice, flag, uncertainty))
    }
}
