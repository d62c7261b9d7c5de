//! The report of a connectivity test: a matrix for each check, failures, explanations.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    cli::{color::Paint, count, table},
    connectivity::{
        plan::{Check, PairCheck},
        run::{ModeRun, TestReport, failure},
    },
};

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
    for explanation in &report.explanations {
        let _ = write!(out, "\n{} {}\n{}", paint.bad("FAIL"), explanation.failure, indented(&explanation.text));
    }
    for line in &report.left_behind {
        let _ = writeln!(out, "\n{}", paint.bad(&format!("left behind: {line}")));
    }
    let checks = || report.runs.iter().flat_map(|run| &run.checks);
    let (all, failed) = (checks().count(), checks().filter(|check| !check.ok).count());
    let sum = if failed == 0 {
        paint.good(&format!("all of {} passed", count(number(all), "check", "checks")))
    } else {
        paint.bad(&format!("{failed} of {} failed", count(number(all), "check", "checks")))
    };
    let _ = writeln!(out, "\n{sum}");
    out
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
        groups.entry((check.check, check.family.as_deref())).or_default().push(check);
    }
    for ((check, family), pairs) in groups {
        let family = family.map(|family| format!(", {family}")).unwrap_or_default();
        let failed = pairs.iter().filter(|pair| !pair.ok).count();
        let sum =
            if failed == 0 { paint.good("ok") } else { paint.bad(&format!("{failed} of {} FAILED", pairs.len())) };
        let _ = write!(out, "\n{}{family}: {sum}\n{}", check.title(), matrix(&pairs, nodes, paint));
    }
    let failures: Vec<String> = run.checks.iter().filter(|check| !check.ok).map(failure).collect();
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
    header.extend((0..columns).map(|column| if is_outward { "outside".to_owned() } else { (column + 1).to_string() }));
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
            *place = if pair.ok { paint.good(&cell) } else { paint.bad(&cell) };
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
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
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
        let pairs = |check| [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(from, to)| pair(check, from, to));
        let mut checks = [pairs(Check::PodToPod), pairs(Check::Mtu)].concat();
        checks[1] = PairCheck {
            ok: false,
            error: Some("no answer within 2 s".to_owned()),
            protocol: Some("udp".to_owned()),
            ..checks[1].clone()
        };
        let run = ModeRun { mode: "fast".to_owned(), notes: vec!["n1 has no pod of flannel".to_owned()], checks };
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
}
