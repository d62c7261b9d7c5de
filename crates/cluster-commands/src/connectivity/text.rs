//! The report of a connectivity test: a matrix for each check, failures, explanations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use flannel_connectivity::{
    Cause, Explanation,
    plan::{Check, PairCheck},
    run::{ModeRun, TestReport, failure},
};
use flannel_host::words::{count, first};
use flannel_terminal::{color::Paint, table};

/// Names of nodes and pairs that are listed.
const NAMED: usize = 6;

/// The report, as the command prints it.
pub(super) fn text(report: &TestReport, paint: Paint) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    if let Some(image) = &report.image {
        let _ = writeln!(out, "image: {image}");
    }
    for line in &report.left_out {
        let _ = writeln!(out, "left out: {line}");
    }
    for run in &report.runs {
        push_run(&mut out, run, &report.nodes, paint);
    }
    push_causes(&mut out, report, paint);
    for line in &report.left_behind {
        let _ = writeln!(out, "\n{}", paint.bad(&format!("left behind: {line}")));
    }
    let checks = || report.runs.iter().flat_map(|run| &run.checks);
    let (all, failed) = (checks().count(), checks().filter(|check| !check.ok).count());
    let sum = if failed == 0 {
        paint.good(&format!(
            "all of {} passed",
            count(number(all), "check", "checks")
        ))
    } else {
        paint.bad(&format!(
            "{failed} of {} failed",
            count(number(all), "check", "checks")
        ))
    };
    let _ = writeln!(out, "\n{sum}");
    out
}

/// The likely causes, and the explanations that find something. Of the others one line is enough.
fn push_causes(out: &mut String, report: &TestReport, paint: Paint) {
    if !report.causes.is_empty() {
        let _ = writeln!(
            out,
            "\nlikely causes, by `flannel-agent check` at both ends:"
        );
    }
    for Cause {
        nodes,
        text,
        remedy,
        pairs,
        checks,
        ..
    } in &report.causes
    {
        let _ = writeln!(
            out,
            "  {} {}",
            paint.bad(&format!("{}:", first(nodes, NAMED))),
            text
        );
        if let Some(remedy) = remedy {
            let _ = writeln!(out, "      {} {remedy}", paint.name("->"));
        }
        let checks = count(number(*checks), "failed check", "failed checks");
        let _ = writeln!(out, "      {checks}: {}", first(pairs, NAMED));
    }
    for Explanation {
        node,
        failure,
        text,
        ..
    } in report.explanations.iter().filter(|one| one.found)
    {
        let _ = write!(
            out,
            "\n{} {failure}\n  as {node} explains it:\n{}",
            paint.bad("FAIL"),
            indented(text)
        );
    }
    let without = report.explanations.iter().filter(|one| !one.found);
    let nodes: BTreeSet<&str> = without.map(|one| one.node.as_str()).collect();
    if !nodes.is_empty() {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let _ = writeln!(
            out,
            "\n`flannel-agent explain` finds no broken step on {}",
            first(&nodes, NAMED)
        );
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn push_run(out: &mut String, run: &ModeRun, nodes: &[String], paint: Paint) {
    let _ = writeln!(out, "\n{}", paint.head(&format!("mode {}", run.mode)));
    for note in &run.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let mut groups = BTreeMap::<(Check, Option<&str>), Vec<&PairCheck>>::new();
    for check in &run.checks {
        groups
            .entry((check.check, check.family.as_deref()))
            .or_default()
            .push(check);
    }
    for ((check, family), pairs) in groups {
        let family = family
            .map(|family| format!(", {family}"))
            .unwrap_or_default();
        let failed = pairs.iter().filter(|pair| !pair.ok).count();
        let sum = if failed == 0 {
            paint.good("ok")
        } else {
            paint.bad(&format!("{failed} of {} FAILED", pairs.len()))
        };
        let _ = write!(
            out,
            "\n{}{family}: {sum}\n{}",
            check.title(),
            matrix(&pairs, nodes, paint)
        );
    }
    let failures: Vec<String> = run
        .checks
        .iter()
        .filter(|check| !check.ok)
        .map(failure)
        .collect();
    if !failures.is_empty() {
        let _ = writeln!(out, "\nfailures in mode {}:", run.mode);
    }
    for line in failures {
        let _ = writeln!(out, "  {line}");
    }
}

/// A line for each node that sends, and a column for each that answers, by their numbers.
fn matrix(pairs: &[&PairCheck], nodes: &[String], paint: Paint) -> String {
    let is_outward = pairs.iter().all(|pair| pair.pair.1.is_none());
    let columns = if is_outward { 1 } else { nodes.len() };
    let mut header = vec![String::new()];
    header.extend((0..columns).map(|column| {
        if is_outward {
            "outside".to_owned()
        } else {
            (column + 1).to_string()
        }
    }));
    let mut rows: Vec<Vec<String>> = (1..)
        .zip(nodes)
        .map(|(number, name)| {
            let mut row = vec![format!("  {number} {name}")];
            row.resize(columns + 1, "-".to_owned());
            row
        })
        .collect();
    for pair in pairs {
        let (from, to) = (pair.pair.0, pair.pair.1.unwrap_or_default());
        if let Some(place) = rows.get_mut(from).and_then(|row| row.get_mut(to + 1)) {
            let cell = cell(pair);
            *place = if pair.ok {
                paint.good(&cell)
            } else {
                paint.bad(&cell)
            };
        }
    }
    table::render_rows(&header, &rows)
}

fn cell(pair: &PairCheck) -> String {
    let size = pair.size.map(|size| size.to_string());
    match (pair.ok, size, &pair.protocol) {
        (true, Some(size), _) => size,
        (true, None, _) => "ok".to_owned(),
        (false, Some(size), _) => format!("FAIL {size}"),
        (false, None, Some(protocol)) => format!("FAIL {protocol}"),
        (false, None, None) => "FAIL".to_owned(),
    }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| {
            if line.is_empty() {
                "\n".to_owned()
            } else {
                format!("    {line}\n")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(check: Check, from: usize, to: usize) -> PairCheck {
        PairCheck {
            check,
            family: Some("IPv4".to_owned()),
            from: format!("n{from}"),
            to: Some(format!("n{to}")),
            address: Some("10.244.1.2:7".to_owned()),
            ok: true,
            error: None,
            protocol: None,
            local: None,
            size: (check == Check::Mtu).then_some(1450),
            device_mtu: None,
            pair: (from, Some(to)),
        }
    }

    #[test]
    fn each_check_has_a_matrix_and_failures_follow() {
        let pairs =
            |check| [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(from, to)| pair(check, from, to));
        let mut checks = [pairs(Check::PodToPod), pairs(Check::Mtu)].concat();
        checks[1] = PairCheck {
            ok: false,
            error: Some("no answer within 2 s".to_owned()),
            protocol: Some("udp".to_owned()),
            ..checks[1].clone()
        };
        let run = ModeRun {
            mode: "fast".to_owned(),
            notes: vec!["n1 has no pod of flannel".to_owned()],
            checks,
        };
        let report = TestReport {
            image: Some("i:1".to_owned()),
            nodes: vec!["n0".to_owned(), "n1".to_owned()],
            runs: vec![run],
            left_out: vec!["IPv6: no test pod has an address of this family".to_owned()],
            ..TestReport::default()
        };
        let expected = "\
image: i:1
left out: IPv6: no test pod has an address of this family

mode fast
note: n1 has no pod of flannel

pod to pod, IPv4: 1 of 4 FAILED
        1   2
  1 n0  ok  FAIL udp
  2 n1  ok  ok

MTU, pod to pod, IPv4: ok
        1     2
  1 n0  1450  1450
  2 n1  1450  1450

failures in mode fast:
  pod to pod, IPv4: n0 to n1 (10.244.1.2:7): udp: no answer within 2 s

1 of 8 checks failed
";
        assert_eq!(text(&report, Paint(false)), expected);
    }

    #[test]
    fn causes_come_first_and_explanations_only_where_they_find_something() {
        let explanation = |node: &str, found| Explanation {
            node: node.to_owned(),
            failure: "pod to pod: n1 to n2: no answer".to_owned(),
            text: " 1. FAIL  fdb\n".to_owned(),
            found,
        };
        let cause = Cause {
            topic: "firewall".to_owned(),
            nodes: vec!["n2".to_owned()],
            text: "a rule drops packets of UDP port 8472 in ip t i".to_owned(),
            remedy: Some("remove it".to_owned()),
            pairs: (1..=8).map(|number| format!("n{number} to n2")).collect(),
            checks: 9,
        };
        let report = TestReport {
            causes: vec![cause],
            explanations: vec![
                explanation("n1", true),
                explanation("n2", false),
                explanation("n3", false),
            ],
            ..TestReport::default()
        };
        let expected = "
likely causes, by `flannel-agent check` at both ends:
  n2: a rule drops packets of UDP port 8472 in ip t i
      -> remove it
      9 failed checks: n1 to n2, n2 to n2, n3 to n2, n4 to n2, n5 to n2, n6 to n2 and 2 more

FAIL pod to pod: n1 to n2: no answer
  as n1 explains it:
     1. FAIL  fdb

`flannel-agent explain` finds no broken step on n2, n3

all of 0 checks passed
";
        let shown = text(&report, Paint(false));
        assert_eq!(shown, expected, "{shown}");
    }
}
