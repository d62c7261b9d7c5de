//! The problems of the node by kind.

use std::collections::BTreeMap;

use flannel_host::clock;
use flannel_status::{PeerState, ProblemCode, Status};

use super::{
    catalogue as metric,
    page::{Page, length, number},
};
use crate::echo::EchoCounts;

/// The number of problems of each kind that peers have. It comes from counts that tasks keep: an
/// answer does not list thousands of peers.
pub(super) fn of_peers(
    echoes: Option<&EchoCounts>,
    wireguard: &BTreeMap<PeerState, usize>,
    without_associations: usize,
) -> [(ProblemCode, usize); 3] {
    let states = echoes.into_iter().flat_map(|counts| &counts.states);
    let silent = states.filter(|(state, _)| state.is_problem()).map(|(_, peers)| peers).sum();
    [
        (ProblemCode::SilentPeer, silent),
        (ProblemCode::NoHandshake, wireguard.get(&PeerState::Unanswered).copied().unwrap_or_default()),
        (ProblemCode::NoAssociations, without_associations),
    ]
}

/// Writes the number of problems of each kind.
pub(super) fn write(page: &mut Page, mut status: Status, of_peers: [(ProblemCode, usize); 3]) {
    status.find_problems(clock::unix_now());
    let mut counts = BTreeMap::from(of_peers.map(|(code, peers)| (code, length(peers))));
    for problem in &status.problems {
        *counts.entry(problem.code).or_default() += number(problem.count);
    }
    let sample =
        |code: ProblemCode| ([code.name(), code.severity().name()], counts.get(&code).copied().unwrap_or_default());
    page.list(metric::PROBLEMS, ProblemCode::ALL.map(sample));
}
