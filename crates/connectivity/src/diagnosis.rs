//! The causes of failing pairs, from the answers of `explain` and `check` on both nodes of each.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    failing_check::{explain_command, failure},
    plan::PairCheck,
};

/// Failing pairs that are explained.
pub(super) const EXPLAINED: usize = 10;
/// The topics of `check` that may keep packets from a peer; of the others only those that fail do.
const OF_PACKETS: [&str; 8] = [
    "firewall",
    "forwarding",
    "mtu",
    "offload",
    "interface",
    "addresses",
    "port",
    "vxlan",
];

/// The view of a node on a failing pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The node that was asked.
    pub node: String,
    /// The failure in words.
    pub failure: String,
    /// The output of `flannel-agent explain`, or the reason why there is none.
    pub text: String,
    /// True if the packet does not get through that node's part of its way, or if that is not
    /// known.
    pub found: bool,
}

/// A finding of `flannel-agent check -o json`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct CheckFinding {
    topic: String,
    level: String,
    text: String,
    remedy: Option<String>,
}

/// The output of `flannel-agent check -o json`, only the part that is needed.
#[derive(Deserialize)]
struct CheckOutput {
    findings: Vec<CheckFinding>,
}

/// A likely cause of failures: a finding of `check` on nodes at an end of failing pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cause {
    /// The nodes with the finding.
    pub nodes: Vec<String>,
    /// The topic of the finding, such as `firewall`.
    pub topic: String,
    /// The finding in words.
    pub text: String,
    /// Its remedy, if there is one.
    pub remedy: Option<String>,
    /// The failing pairs of these nodes, such as `n1 to n2`.
    pub pairs: Vec<String>,
    /// The number of failed checks of these pairs.
    pub checks: usize,
}

/// Reads the findings that may keep packets from a peer.
pub(super) fn read_findings(output: &[u8]) -> Vec<CheckFinding> {
    let output: Result<CheckOutput, _> = serde_json::from_slice(output);
    let findings = output.map(|output| output.findings).unwrap_or_default();
    let may_lose = |finding: &CheckFinding| match finding.level.as_str() {
        "fail" => true,
        "warn" => OF_PACKETS.contains(&finding.topic.as_str()),
        _ => false,
    };
    findings.into_iter().filter(may_lose).collect()
}

/// The failing pairs that can be explained, each with the command: of each pair of nodes one check.
pub(super) fn pairs_to_explain(checks: &[PairCheck]) -> Vec<(&PairCheck, Vec<String>)> {
    let mut seen = BTreeSet::new();
    let failed = checks
        .iter()
        .filter(|check| !check.ok)
        .filter_map(|check| Some((check, explain_command(check)?)));
    failed
        .filter(|(check, _)| seen.insert((&check.from, &check.to)))
        .take(EXPLAINED)
        .collect()
}

/// The nodes at the ends of failing pairs.
pub(super) fn ends(checks: &[PairCheck]) -> BTreeSet<&str> {
    let failed = checks.iter().filter(|check| !check.ok);
    failed
        .flat_map(|check| std::iter::once(check.from.as_str()).chain(check.to.as_deref()))
        .collect()
}

/// An explanation from the exit status and the output of the command.
pub(super) fn explanation(
    node: &str,
    check: &PairCheck,
    text: String,
    code: Option<i32>,
) -> Explanation {
    Explanation {
        node: node.to_owned(),
        failure: failure(check),
        text,
        found: code != Some(0),
    }
}

/// The likely causes: what fails first, then what concerns most checks.
pub(super) fn causes(
    checks: &[PairCheck],
    findings: &BTreeMap<String, Vec<CheckFinding>>,
) -> Vec<Cause> {
    let mut nodes_of: BTreeMap<&CheckFinding, BTreeSet<&str>> = BTreeMap::new();
    let ends = ends(checks);
    for (node, found) in findings
        .iter()
        .filter(|(node, _)| ends.contains(node.as_str()))
    {
        for finding in found {
            nodes_of.entry(finding).or_default().insert(node);
        }
    }
    let mut causes: Vec<(bool, Cause)> = nodes_of
        .into_iter()
        .map(|(finding, nodes)| {
            let is_there = |check: &&PairCheck| {
                !check.ok
                    && (nodes.contains(check.from.as_str())
                        || check.to.as_deref().is_some_and(|to| nodes.contains(to)))
            };
            let concerned: Vec<&PairCheck> = checks.iter().filter(is_there).collect();
            let name = |check: &&PairCheck| {
                format!(
                    "{} to {}",
                    check.from,
                    check.to.as_deref().unwrap_or("outside")
                )
            };
            let pairs: BTreeSet<String> = concerned.iter().map(name).collect();
            let cause = Cause {
                nodes: nodes.into_iter().map(str::to_owned).collect(),
                topic: finding.topic.clone(),
                text: finding.text.clone(),
                remedy: finding.remedy.clone(),
                pairs: pairs.into_iter().collect(),
                checks: concerned.len(),
            };
            (finding.level != "fail", cause)
        })
        .collect();
    causes.sort_by_key(|(is_warning, cause)| (*is_warning, std::cmp::Reverse(cause.checks)));
    causes.into_iter().map(|(_, cause)| cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Check;

    fn check(from: &str, to: &str, kind: Check, ok: bool) -> PairCheck {
        PairCheck {
            check: kind,
            family: Some("IPv4".to_owned()),
            from: from.to_owned(),
            to: Some(to.to_owned()),
            address: Some("10.244.2.2:7".to_owned()),
            ok,
            error: (!ok).then(|| "no answer".to_owned()),
            protocol: None,
            local: Some("10.244.1.2".to_owned()),
            size: None,
            device_mtu: None,
            pair: (0, Some(1)),
        }
    }

    fn checks() -> Vec<PairCheck> {
        vec![
            check("n1", "n2", Check::PodToPod, false),
            check("n1", "n2", Check::PodToNode, false),
            check("n2", "n1", Check::PodToPod, false),
            check("n1", "n3", Check::PodToPod, true),
            check("n3", "n2", Check::PodToPod, false),
        ]
    }

    const OUTPUT: &str = r#"{"findings":[
        {"topic":"firewall","level":"warn","text":"a rule drops","remedy":"remove it"},
        {"topic":"btf","level":"warn","text":"no BTF","remedy":null},
        {"topic":"kernel","level":"fail","text":"no vxlan","remedy":null},
        {"topic":"mtu","level":"ok","text":"fits","remedy":null}],"best":{"mode":"fast"}}"#;

    #[test]
    fn only_findings_that_may_lose_packets_are_causes() {
        let texts: Vec<_> = read_findings(OUTPUT.as_bytes())
            .into_iter()
            .map(|finding| finding.text)
            .collect();
        assert_eq!(texts, ["a rule drops", "no vxlan"]);
        assert_eq!(read_findings(b"error"), []);
    }

    #[test]
    fn each_failing_pair_is_explained_once() {
        let checks = checks();
        let pairs: Vec<_> = pairs_to_explain(&checks)
            .iter()
            .map(|(check, _)| (&*check.from, check.to.as_deref()))
            .collect();
        assert_eq!(
            pairs,
            [("n1", Some("n2")), ("n2", Some("n1")), ("n3", Some("n2"))]
        );
        assert_eq!(ends(&checks), ["n1", "n2", "n3"].into());
    }

    #[test]
    fn a_cause_names_its_nodes_and_the_pairs_it_concerns() {
        let findings = read_findings(OUTPUT.as_bytes());
        let [rule, kernel] = [0, 1].map(|at| findings[at].clone());
        let found = [
            ("n1", vec![kernel]),
            ("n2", vec![rule]),
            ("n9", findings.clone()),
        ];
        let found = found
            .map(|(node, findings)| (node.to_owned(), findings))
            .into();
        let causes = causes(&checks(), &found);
        let short: Vec<_> = causes
            .iter()
            .map(|cause| (cause.nodes.join(","), &*cause.text, cause.checks))
            .collect();
        assert_eq!(causes[0].topic, "kernel");
        let expected = [
            ("n1".to_owned(), "no vxlan", 3),
            ("n2".to_owned(), "a rule drops", 4),
        ];
        assert_eq!(
            short, expected,
            "what fails comes first; n9 has no failing pair"
        );
        assert_eq!(causes[1].pairs, ["n1 to n2", "n2 to n1", "n3 to n2"]);
    }
}
