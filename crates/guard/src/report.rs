//! The guard's counts and sources, read from its maps by agent and CLI alike.

use std::net::IpAddr;

use flannel_common::abi::{
    guard::{Checks, GuardMode, GuardWord},
    program::Program,
    reason::Reason,
};
use flannel_datapath::{DatapathError, maps::StatsMap, maps::guard::ViolationMap};
use flannel_status::{CheckStatus, GuardStatus};

use super::policy::Uncertainty;

/// Packets that failed a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// And were dropped.
    pub refused: u64,
    /// And passed.
    pub passed: u64,
}

/// Packets that failed the checks since the programs were first loaded.
pub(super) fn counts(stats: &StatsMap) -> Result<Checks<Count>, DatapathError> {
    let packets = |reason| {
        stats
            .get(Program::FromUnderlay, reason)
            .map(|counter| counter.packets)
    };
    let count = |refused, passed| {
        Ok::<_, DatapathError>(Count {
            refused: packets(refused)?,
            passed: packets(passed)?,
        })
    };
    let outer = count(Reason::RefusedVtep, Reason::UnknownVtep)?;
    Ok(Checks {
        outer: Count {
            refused: outer.refused + packets(Reason::RefusedEarly)?,
            ..outer
        },
        inner: count(Reason::RefusedSource, Reason::InnerOtherSource)?,
    })
}

/// A source the guard found fault with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspected {
    /// The outer source address.
    pub source: IpAddr,
    /// Packets that failed a check.
    pub packets: u64,
    /// Those of them that were dropped.
    pub dropped: u64,
    /// The last of them, `CLOCK_MONOTONIC_COARSE`, nanoseconds.
    pub last_ns: u64,
    /// The reason it was counted under; none if this build does not know the number.
    pub reason: Option<Reason>,
}

/// The sources, the latest first.
pub fn suspects(map: &ViolationMap) -> Result<Vec<Suspected>, DatapathError> {
    let mut suspects = Vec::new();
    for entry in map.entries() {
        let (source, suspect) = entry?;
        suspects.push(Suspected {
            source: source.into(),
            packets: suspect.packets,
            dropped: suspect.dropped,
            last_ns: suspect.last_ns,
            reason: Reason::from_number(suspect.reason),
        });
    }
    suspects.sort_by_key(|suspect| std::cmp::Reverse(suspect.last_ns));
    Ok(suspects)
}

/// Returns the status: the active modes, the requested modes, and the reasons why they differ.
pub(super) fn status(
    word: GuardWord,
    wanted: Checks<GuardMode>,
    [outer_reason, inner_reason]: [Option<Uncertainty>; 2],
    counts: Checks<Count>,
) -> GuardStatus {
    let (in_force, choice) = (word.in_force(), word.choice());
    let check = |mode: GuardMode,
                 wanted: GuardMode,
                 choice: Option<GuardMode>,
                 reason: Option<Uncertainty>,
                 count: Count| {
        CheckStatus {
            effective: mode.to_string(),
            wanted: wanted.to_string(),
            chosen_at_run_time: choice.is_some(),
            reason: reason.map(|reason| reason.to_string()),
            refused: count.refused,
            passed: count.passed,
        }
    };
    GuardStatus {
        outer: check(
            in_force.outer,
            wanted.outer,
            choice.outer,
            outer_reason,
            counts.outer,
        ),
        inner: check(
            in_force.inner,
            wanted.inner,
            choice.inner,
            inner_reason,
            counts.inner,
        ),
        xdp: None,
    }
}

/// Returns the status without the programs: no packet is refused, regardless of the request.
pub(super) fn status_without_bpf(wanted: Checks<GuardMode>) -> GuardStatus {
    let check = |wanted: GuardMode| CheckStatus {
        effective: GuardMode::Off.to_string(),
        wanted: wanted.to_string(),
        chosen_at_run_time: false,
        reason: (wanted != GuardMode::Off).then(|| "no eBPF".to_owned()),
        refused: 0,
        passed: 0,
    };
    GuardStatus {
        outer: check(wanted.outer),
        inner: check(wanted.inner),
        xdp: None,
    }
}

/// Returns the status from only the maps.
pub fn status_of_pins(word: GuardWord, stats: &StatsMap) -> Result<GuardStatus, DatapathError> {
    let (in_force, choice) = (word.in_force(), word.choice());
    let wanted = Checks {
        outer: choice.outer.unwrap_or(in_force.outer),
        inner: choice.inner.unwrap_or(in_force.inner),
    };
    Ok(status(word, wanted, [None, None], counts(stats)?))
}
