//! The problems of this node that the store publishes as Events, for those who watch the whole
//! cluster.

use std::{future::pending, time::Duration};

use flannel_host::clock;
use flannel_iface::AddressInPods;
use flannel_metrics::shared::SharedState;
use flannel_status::{Problem, ProblemCode, Status};
use flannel_store::{NodeReport, NodeReports};
use tokio::{sync::watch, time::sleep};

use super::{external, main_loop::Agent};

/// Between two looks at the problems.
const PERIOD: Duration = Duration::from_secs(2);
/// Problems of a kind that are reported one by one.
const NAMED: usize = 5;
/// A mode that is lowered for fewer seconds, such as during the agent's start, is not reported.
const LASTING: u64 = 60;

impl Agent {
    /// The addresses of the external interface that lie in a pod network.
    pub(super) fn addresses_in_pods(&self) -> Vec<AddressInPods> {
        external::addresses_in_pods(self.node.external.chosen(), &self.node.settings.config)
    }
}

/// Reports the problems of the status. Does not return.
pub(super) async fn report(
    status: watch::Receiver<Status>,
    shared: SharedState,
    reports: NodeReports,
) {
    if !reports.are_published() {
        return pending().await;
    }
    loop {
        let found = shared.complete(&status.borrow());
        reports.set(
            of_node(&found.problems, clock::unix_now())
                .into_iter()
                .chain(of_peers(&shared)),
        );
        sleep(PERIOD).await;
    }
}

/// The reports of the node's own problems. Problems of one kind follow each other.
fn of_node(problems: &[Problem], now: u64) -> Vec<NodeReport> {
    let lasts = |problem: &&Problem| {
        problem.code != ProblemCode::LoweredMode
            || problem.since.is_some_and(|since| now >= since + LASTING)
    };
    let lasting: Vec<_> = problems.iter().filter(lasts).collect();
    let kinds = lasting.chunk_by(|a, b| a.code == b.code);
    kinds
        .flat_map(|of_kind| {
            each_or_all(of_kind[0].code, of_kind, |problem| {
                (identity(problem), problem.line())
            })
        })
        .collect()
}

/// The part of a problem that differs from others of its kind, and stays the same as long as the
/// problem does.
fn identity(problem: &Problem) -> String {
    match problem.code {
        // Their texts count attempts.
        ProblemCode::RefusedEntry | ProblemCode::Command | ProblemCode::CloudRoute => {
            problem.subject.clone().unwrap_or_default()
        }
        _ => problem.text.clone(),
    }
}

/// The reports of what tasks know about peers.
fn of_peers(shared: &SharedState) -> Vec<NodeReport> {
    let silent: Vec<String> = shared.echoes.silent_names().into_iter().collect();
    let mut reports = each_or_all(ProblemCode::SilentPeer, &silent, |name| {
        let remedy = "run `flannel-agent explain` on both nodes";
        (
            name.clone(),
            format!("the peer {name} answered echo requests and does not any more: {remedy}"),
        )
    });
    // Peers that never answered make no Event: a firewall may drop ICMP for good.
    let others = shared
        .peer_problems()
        .into_iter()
        .filter(|(code, _)| *code != ProblemCode::SilentPeer);
    reports.extend(
        others
            .filter(|(_, peers)| *peers > 0)
            .filter_map(|(code, peers)| all(code, peers)),
    );
    reports
}

/// A report of each problem of a kind. Of many there is one, which does not change with their
/// number.
fn each_or_all<T>(
    code: ProblemCode,
    found: &[T],
    words: impl Fn(&T) -> (String, String),
) -> Vec<NodeReport> {
    let Some(reason) = code.event() else {
        return Vec::new();
    };
    if found.len() > NAMED {
        return all(code, found.len()).into_iter().collect();
    }
    let report = |one| {
        let (identity, message) = words(one);
        NodeReport {
            reason,
            identity,
            message,
        }
    };
    found.iter().map(report).collect()
}

/// One report of all problems of a kind.
fn all(code: ProblemCode, number: usize) -> Option<NodeReport> {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    let message = format!(
        "{}: see `flannel-agent status` of this node",
        code.counted(number)
    );
    Some(NodeReport {
        reason: code.event()?,
        identity: String::new(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flannel_status::{Certainty, Severity};

    use super::*;

    fn problem(code: ProblemCode, subject: &str, text: &str, since: u64) -> Problem {
        Problem {
            code,
            severity: Severity::Warning,
            certainty: Certainty::Sure,
            subject: Some(subject.to_owned()),
            text: text.to_owned(),
            remedy: None,
            since: Some(since),
            count: 1,
        }
    }

    fn identities(reports: &[NodeReport]) -> BTreeSet<(&str, &str)> {
        reports
            .iter()
            .map(|report| (report.reason, &*report.identity))
            .collect()
    }

    #[test]
    fn many_of_a_kind_are_one_report_whatever_their_number() {
        let entries = |number: usize, attempts: u32| {
            let entry = |index| {
                problem(
                    ProblemCode::RefusedEntry,
                    &format!("route {index}"),
                    &format!("{attempts} tries"),
                    0,
                )
            };
            of_node(&(0..number).map(entry).collect::<Vec<_>>(), 0)
        };
        assert_eq!(entries(0, 1), []);
        assert_eq!(entries(5, 1).len(), 5);
        assert_eq!(identities(&entries(5, 1)), identities(&entries(5, 9)));
        assert_eq!(
            entries(6, 1)[0].message,
            "6 entries refused by the kernel: see `flannel-agent status` of this node"
        );
        assert_eq!(identities(&entries(6, 1)), identities(&entries(60, 1)));
    }

    #[test]
    fn a_lowered_mode_is_reported_once_it_lasts() {
        let lowered = [problem(
            ProblemCode::LoweredMode,
            "",
            "mode kernel instead of fast: no BPF",
            100,
        )];
        assert_eq!(of_node(&lowered, 100 + LASTING - 1), []);
        assert_eq!(identities(&of_node(&lowered, 100 + LASTING)).len(), 1);
    }

    #[test]
    fn each_kind_has_its_own_reports_and_leases_of_others_have_none() {
        let found = [
            problem(ProblemCode::HostSysctl, "a", "a is 0", 0),
            problem(ProblemCode::HostSysctl, "b", "b is 0", 0),
            problem(ProblemCode::DuplicateMac, "n2", "its MAC is ours", 0),
            problem(ProblemCode::RefusedLease, "n3", "refused", 0),
        ];
        let expected = BTreeSet::from([
            ("SysctlKeepsPacketsFromPods", "a is 0"),
            ("SysctlKeepsPacketsFromPods", "b is 0"),
            ("DuplicateVtepMAC", "its MAC is ours"),
        ]);
        assert_eq!(identities(&of_node(&found, 0)), expected);
    }
}
