//! The problems of the node by kind.

use std::collections::BTreeMap;

use flannel_status::{ProblemCode, Status};

use super::{
    catalogue as metric,
    page::{Page, length, number},
};

/// Writes the number of problems of each kind; those of peers are counted already.
pub(super) fn write(page: &mut Page, status: &Status, of_peers: [(ProblemCode, usize); 3]) {
    let mut counts = BTreeMap::from(of_peers.map(|(code, peers)| (code, length(peers))));
    for problem in &status.problems {
        *counts.entry(problem.code).or_default() += number(problem.count);
    }
    let sample = |code: ProblemCode| {
        (
            [code.name(), code.severity().name()],
            counts.get(&code).copied().unwrap_or_default(),
        )
    };
    page.list(metric::PROBLEMS, ProblemCode::ALL.map(sample));
}
