//! Kubernetes' own network tests, in each mode: their results are the same, or it is our fault.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{Kubernetes, Parts, Progress};
use crate::ChildGuard;

/// The modes that are compared.
const MODES: [&str; 2] = ["kernel", "fast"];
const DNS: &str = include_str!("dns.yml");
/// The tests of the network.
const FOCUS: &str = r"\[sig-network\]";
/// Without: features that this cluster lacks, tests that break its nodes, clouds, and what needs
/// hours. #74839 wants an image that its own source does not make any more, `resolv.conf` one with
/// CoreDNS, which Debian has not.
const SKIP: &str = r"\[Disruptive\]|\[Serial\]|\[Slow\]|\[Feature:|\[Alpha\]|SCTP|LoadBalancer|load balancer|IPv6|Ingress|\[Beta\]|ESIPP|issue #74839|pod resolv.conf";
/// Test programs at a time; what they do is wait.
const PARALLEL: u32 = 5;
/// The tests ask google.com before anything else: here that is a server outside the cluster.
const ELSEWHERE: &str = "google.com";
const LIMIT: Duration = Duration::from_hours(1);

/// The end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
}

/// Runs all, and prints a table. An error if a test failed, or if the modes differ.
pub(super) fn compare(cluster: &Kubernetes, parts: &Parts, progress: &Progress) -> Result<()> {
    let _servers = prepare(cluster, parts)?;
    progress.say("DNS is ready");
    let mut results = BTreeMap::<String, [Option<Outcome>; 2]>::new();
    for (column, mode) in MODES.iter().enumerate() {
        cluster.set_mode(mode)?;
        progress.say(&format!(
            "the network tests of Kubernetes run in mode {mode}; some ten minutes"
        ));
        for (name, outcome) in run(cluster, parts, mode)? {
            results.entry(name).or_default()[column] = Some(outcome);
        }
        progress.say(&format!("they are through in mode {mode}"));
    }
    for line in table(&results) {
        println!("{line}");
    }
    let differ = results
        .values()
        .filter(|[kernel, fast]| kernel != fast)
        .count();
    let failed = results
        .values()
        .flatten()
        .filter(|outcome| **outcome != Some(Outcome::Passed))
        .count();
    ensure!(!results.is_empty(), "no test was run");
    ensure!(
        differ == 0 && failed == 0,
        "{differ} tests differ between the modes, {failed} failed"
    );
    Ok(())
}

/// DNS, and servers outside that answer as the internet does.
fn prepare(cluster: &Kubernetes, parts: &Parts) -> Result<Vec<ChildGuard>> {
    let servers = [80, 8090].map(|port| {
        let ports = [format!("--http-port={port}"), format!("--udp-port={port}")];
        let line = [parts.program("agnhost"), "netexec".to_owned()]
            .into_iter()
            .chain(ports);
        cluster.outside.spawn("outside", line)
    });
    for node in &cluster.nodes {
        node.run([
            "sh",
            "-c",
            &format!("echo '{} {ELSEWHERE}' >> /etc/hosts", super::OUTSIDE),
        ])?;
    }
    cluster.kubectl().apply(DNS)?;
    cluster.wait_ready("kube-system", "k8s-app=kube-dns")?;
    servers.into_iter().collect()
}

/// Runs the tests once; the results of those that were not skipped.
fn run(cluster: &Kubernetes, parts: &Parts, mode: &str) -> Result<Vec<(String, Outcome)>> {
    let node = &cluster.nodes[0];
    let reports = cluster.lab.large_files("e2e")?.join(mode);
    fs::create_dir_all(&reports)?;
    let reports_dir = reports.display().to_string();
    let line = vec![
        parts.program("ginkgo"),
        format!("-nodes={PARALLEL}"),
        "-noColor".to_owned(),
        "-stream=false".to_owned(),
        format!("-focus={FOCUS}"),
        format!("-skip={SKIP}"),
        parts.program("e2e.test"),
        "--".to_owned(),
        "--provider=skeleton".to_owned(),
        format!("--kubeconfig={}", cluster.kubectl().kubeconfig()),
        format!("--num-nodes={}", cluster.nodes.len()),
        format!("--report-dir={reports_dir}"),
        "--disable-log-dump".to_owned(),
        "--minStartupPods=0".to_owned(),
        "--allowed-not-ready-nodes=0".to_owned(),
        format!("--repo-root={reports_dir}"),
    ];
    let path = format!(
        "PATH={}:/usr/sbin:/usr/bin:/sbin:/bin",
        parts.bin().display()
    );
    let in_reports = format!("--chdir={reports_dir}");
    let program = node.spawn(
        "e2e",
        ["env".to_owned(), in_reports, path].into_iter().chain(line),
    )?;
    // Its status says whether a test failed, which the reports do too.
    program.wait(LIMIT)?;
    let mut results = Vec::new();
    for entry in fs::read_dir(&reports)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "xml") {
            results.extend(report(&file)?);
        }
    }
    ensure!(
        !results.is_empty(),
        "no results; end of the log:\n{}",
        program.log_tail(30)
    );
    Ok(results)
}

/// The results in a file of JUnit's form.
fn report(file: &Path) -> Result<Vec<(String, Outcome)>> {
    let text = fs::read_to_string(file)?;
    let document = roxmltree::Document::parse(&text).with_context(|| file.display().to_string())?;
    let tests = document
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    let has = |test: &roxmltree::Node<'_, '_>, name: &str| {
        test.children().any(|child| child.has_tag_name(name))
    };
    let run = tests.filter(|test| !has(test, "skipped"));
    Ok(run
        .map(|test| {
            let outcome = if has(&test, "failure") {
                Outcome::Failed
            } else {
                Outcome::Passed
            };
            (
                test.attribute("name").unwrap_or_default().to_owned(),
                outcome,
            )
        })
        .collect())
}

fn table(results: &BTreeMap<String, [Option<Outcome>; 2]>) -> Vec<String> {
    let word = |outcome: &Option<Outcome>| match outcome {
        Some(Outcome::Passed) => "passed",
        Some(Outcome::Failed) => "FAILED",
        None => "not run",
    };
    let row = |name: &str, cells: [&str; 2]| format!("{:<8} {:<8} {name}", cells[0], cells[1]);
    let mut lines = vec![row("test", MODES)];
    lines.extend(
        results
            .iter()
            .map(|(name, cells)| row(name, [word(&cells[0]), word(&cells[1])])),
    );
    let passed = |column: usize| {
        results
            .values()
            .filter(|cells| cells[column] == Some(Outcome::Passed))
            .count()
    };
    lines.push(format!(
        "{:<8} {:<8} passed, of {}",
        passed(0),
        passed(1),
        results.len()
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_without_what_was_skipped() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = r#"<testsuite><testcase name="a &amp; b" time="1"></testcase>
            <testcase name="c"><failure type="x">no</failure></testcase>
            <testcase name="d"><skipped></skipped></testcase></testsuite>"#;
        fs::write(&file, text).expect("written");
        let found = report(file.path()).expect("a report");
        assert_eq!(
            found,
            [
                ("a & b".to_owned(), Outcome::Passed),
                ("c".to_owned(), Outcome::Failed)
            ]
        );
    }
}
