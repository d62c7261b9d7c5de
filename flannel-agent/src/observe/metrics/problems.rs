//! The problems of the node by kind.

use std::collections::BTreeMap;

use flannel_host::clock;
use flannel_status::{PeerState, ProblemCode, Status};

use super::{
    catalogue as metric,
    page::{Page, number},
};
use crate::observe::shared::SharedState;

/// Writes the number of problems of each kind. Those of peers come from counts that tasks keep: an
/// answer does not list thousands of peers.
pub(super) fn write(page: &mut Page, status: &Status, shared: &SharedState) {
    let mut status = status.clone();
    shared.add_to(&mut status);
    status.find_problems(clock::unix_now());
    let mut counts = BTreeMap::<ProblemCode, u64>::new();
    for problem in &status.problems {
        *counts.entry(problem.code).or_default() += problem.count;
    }
    for (code, peers) in of_peers(shared) {
        *counts.entry(code).or_default() += u64::try_from(peers).unwrap_or(u64::MAX);
    }
    let sample = |code: ProblemCode| {
        ([code.name(), code.severity().name()], number(counts.get(&code).copied().unwrap_or_default()))
    };
    page.list(metric::PROBLEMS, ProblemCode::ALL.map(sample));
}

fn of_peers(shared: &SharedState) -> [(ProblemCode, usize); 3] {
    let echoes = shared.echoes.counts().map(|counts| counts.states).unwrap_or_default();
    let silent = echoes.iter().filter(|(state, _)| state.is_problem()).map(|(_, peers)| peers).sum();
    let unanswered = shared.wireguard.states().get(&PeerState::Unanswered).copied().unwrap_or_default();
    [
        (ProblemCode::SilentPeer, silent),
        (ProblemCode::NoHandshake, unanswered),
        (ProblemCode::NoAssociations, shared.ipsec.refused()),
    ]
}
