//! `flannel-agent cluster status`: counts, then problems, then one line for each node.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::bail;
use clap::Args;
use flannel_cluster::{
    client::ClusterClient,
    compare::ClusterProblem,
    members::AgentPods,
    progress::Progress,
    report::{ClusterReport, NodeProblemCode, NodeReport, ServedBy},
};
use flannel_command::{
    Answer, NoResult, PrintOptions, WaitOptions,
    problem_lines::{self, ProblemLine},
};
use flannel_host::{
    error_chain::chain,
    words::{count, first},
};
use flannel_status::ModeStatus;
use flannel_terminal::{color::Paint, table};
use tokio::time::{Instant, sleep, timeout_at};

use super::access::ClusterAccess;

/// The time between two rounds of questions while waiting.
const PERIOD: Duration = Duration::from_secs(1);
const NOT_READY: u8 = 1;
/// Nodes that a line names.
const NAMED: usize = 3;
/// After the deadline, for the answers that arrive with it.
const GRACE: Duration = Duration::from_secs(1);

/// The time to wait, the cluster, and the output format.
#[derive(Debug, Args)]
pub struct ClusterStatusOptions {
    #[command(flatten)]
    wait: WaitOptions,
    #[command(flatten)]
    access: ClusterAccess,
    #[command(flatten)]
    print: PrintOptions,
}

/// Runs the command; the text to print, and 0 if every node is ready.
pub(super) async fn run(options: &ClusterStatusOptions) -> anyhow::Result<Answer> {
    let client = options.access.client().await?;
    let report = wait(&client, &options.access.pods(), options.wait).await?;
    let code = match report.ready {
        Some(true) => 0,
        Some(false) => NOT_READY,
        None => NoResult::CODE,
    };
    Ok(Answer {
        text: options.print.print(&report, |paint| text(&report, paint)),
        code,
    })
}

/// Asks until all is well or the time is over.
async fn wait(
    client: &ClusterClient,
    pods: &AgentPods,
    wait: WaitOptions,
) -> anyhow::Result<ClusterReport> {
    let deadline = wait.asked().map(|limit| Instant::now() + limit);
    let mut progress = Progress::new();
    let mut last = None;
    loop {
        let asking = ClusterReport::ask(client, pods, &mut progress, deadline);
        let asked = match deadline {
            // Pods that hang end at the deadline; this is for an API server that does.
            Some(deadline) => timeout_at(deadline + GRACE, asking).await.ok(),
            None => Some(asking.await),
        };
        let left = deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
            .unwrap_or_default();
        match asked {
            Some(Ok(report)) if report.ready == Some(true) || left.is_zero() => return Ok(report),
            Some(Ok(report)) => {
                progress.show(&waiting(&report));
                last = Some(report);
            }
            // Rights do not come by waiting.
            Some(Err(error)) if left.is_zero() || matches!(error.code(), Some(401 | 403)) => {
                return Err(error.into());
            }
            Some(Err(error)) => progress.show(&chain(&error)),
            None if last.is_none() => {
                bail!("the API server did not answer within the time of --wait")
            }
            None => {}
        }
        // One more question would not be answered in time.
        if left < PERIOD
            && let Some(report) = last
        {
            sleep(left).await;
            return Ok(report);
        }
        sleep(PERIOD.min(left)).await;
    }
}

fn waiting(report: &ClusterReport) -> String {
    let is_waited_for = |node: &&NodeReport| node.ready != Some(true);
    let missing: Vec<_> = report
        .nodes
        .iter()
        .filter(is_waited_for)
        .map(|node| node.name.as_str())
        .collect();
    match report.problems.first() {
        Some(problem) if missing.is_empty() => problem.text.clone(),
        _ => format!("waiting for {}", first(&missing, NAMED)),
    }
}

/// The report, as the command prints it.
pub(super) fn text(report: &ClusterReport, paint: Paint) -> String {
    let ClusterReport {
        nodes, problems, ..
    } = report;
    let mut out = summary(nodes);
    let lines: Vec<String> = between_nodes(problems, paint)
        .into_iter()
        .chain(of_nodes(nodes, paint))
        .collect();
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    let header = [
        "NODE", "READY", "MODE", "VERSION", "SUBNET", "ADDRESS", "REFUSED", "DROPS",
    ]
    .map(|name| paint.head(name));
    out + &table::render_rows(
        &header,
        &nodes
            .iter()
            .map(|node| row(node, paint))
            .collect::<Vec<_>>(),
    )
}

/// The problems between nodes.
fn between_nodes(problems: &[ClusterProblem], paint: Paint) -> Vec<String> {
    let line = |problem: &ClusterProblem| {
        let ClusterProblem { code, severity, .. } = *problem;
        ProblemLine {
            code,
            severity,
            text: problem.text.clone(),
            count: 1,
        }
    };
    problem_lines::lines(&problems.iter().map(line).collect::<Vec<_>>(), paint)
}

/// The problems of nodes by kind. More than a few of a kind are one line, with the first as an
/// example.
fn of_nodes(nodes: &[NodeReport], paint: Paint) -> Vec<String> {
    let mut kinds: Vec<(NodeProblemCode, Vec<(&str, &str)>)> = Vec::new();
    for node in nodes {
        for (code, text) in node.codes.iter().zip(&node.problems) {
            let found = (node.name.as_str(), text.as_str());
            match kinds.iter_mut().find(|(known, _)| known == code) {
                Some((_, alike)) => alike.push(found),
                None => kinds.push((*code, vec![found])),
            }
        }
    }
    kinds
        .iter()
        .flat_map(|(_, alike)| of_kind(alike))
        .map(|line| paint.bad(&line))
        .collect()
}

/// The lines of one kind: node and text of each.
fn of_kind(alike: &[(&str, &str)]) -> Vec<String> {
    match alike {
        [(_, text), _, _, _, ..] => {
            let names: Vec<&str> = alike.iter().map(|(name, _)| *name).collect();
            let is_same = alike.iter().all(|(_, other)| other == text);
            let each = if is_same {
                ""
            } else {
                "alike, the first of them: "
            };
            vec![format!("{}: {each}{text}", first(&names, NAMED))]
        }
        few => few
            .iter()
            .map(|(name, text)| format!("{name}: {text}"))
            .collect(),
    }
}

fn summary(nodes: &[NodeReport]) -> String {
    let number = |ready| nodes.iter().filter(|node| node.ready == ready).count();
    let (ready, unknown) = (number(Some(true)), number(None));
    let mut modes = BTreeMap::<&str, usize>::new();
    for mode in nodes.iter().filter_map(|node| node.mode.as_ref()) {
        *modes.entry(&mode.effective).or_default() += 1;
    }
    let mut counts: Vec<String> = modes
        .into_iter()
        .map(|(mode, number)| format!("{number} in mode {mode}"))
        .collect();
    let stock = nodes
        .iter()
        .filter(|node| node.served_by == ServedBy::StockFlannel)
        .count();
    counts.extend((unknown > 0).then(|| format!("{unknown} unknown")));
    counts.extend((stock > 0).then(|| format!("{stock} with stock flannel")));
    let detail = if counts.is_empty() {
        String::new()
    } else {
        format!("; {}", counts.join(", "))
    };
    format!(
        "{}: {ready} ready{detail}\n",
        count(nodes.len().try_into().unwrap_or(u32::MAX), "node", "nodes")
    )
}

fn row(node: &NodeReport, paint: Paint) -> [String; 8] {
    let or_dash = |text: Option<String>| {
        text.filter(|text| !text.is_empty())
            .unwrap_or_else(|| "-".to_owned())
    };
    let mode = node.mode.as_ref().map(|mode| {
        let ModeStatus {
            effective, wanted, ..
        } = mode;
        if effective == wanted {
            effective.clone()
        } else {
            paint.warn(&format!("{effective}, not {wanted}"))
        }
    });
    let version = match node.served_by {
        ServedBy::StockFlannel => Some("stock flannel".to_owned()),
        ServedBy::FlannelAgent | ServedBy::Unknown | ServedBy::None => node.version.clone(),
    };
    [
        node.name.clone(),
        match node.ready {
            Some(true) => paint.good("yes"),
            Some(false) => paint.bad("no"),
            None => paint.warn("?"),
        },
        or_dash(mode),
        or_dash(version),
        or_dash(Some(node.subnets.join(","))),
        or_dash(Some(node.public_addresses.join(","))),
        or_dash(node.refused_leases.map(|number| number.to_string())),
        or_dash(node.drops.map(|number| number.to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use flannel_cluster::{
        compare::ClusterProblemCode,
        testing::{
            api_double::{ApiDouble, Objects, PodAnswer},
            nodes::{agent_pods, answer, node_json},
        },
    };
    use flannel_status::{Severity, Status};

    use super::*;

    fn node(name: &str, served_by: ServedBy) -> NodeReport {
        let mode = ModeStatus {
            effective: "fast".to_owned(),
            wanted: "fast".to_owned(),
            ..ModeStatus::default()
        };
        NodeReport {
            name: name.to_owned(),
            served_by,
            ready: Some(true),
            version: Some("0.1.0".to_owned()),
            mode: Some(mode),
            subnets: vec!["10.244.0.0/24".to_owned()],
            public_addresses: vec!["192.0.2.1".to_owned()],
            refused_leases: Some(0),
            drops: Some(7),
            problems: Vec::new(),
            codes: Vec::new(),
        }
    }

    #[test]
    fn problems_come_before_the_table() {
        let stock = NodeReport {
            version: None,
            mode: None,
            refused_leases: None,
            drops: None,
            ..node("b", ServedBy::StockFlannel)
        };
        let lost = NodeReport {
            ready: None,
            mode: None,
            version: None,
            problems: vec!["cannot be asked".to_owned()],
            codes: vec![NodeProblemCode::NoAnswer],
            ..node("c", ServedBy::Unknown)
        };
        let nodes = vec![node("a", ServedBy::FlannelAgent), stock, lost];
        let expected = "\
3 nodes: 2 ready; 1 in mode fast, 1 unknown, 1 with stock flannel

c: cannot be asked

NODE  READY  MODE  VERSION        SUBNET         ADDRESS    REFUSED  DROPS
a     yes    fast  0.1.0          10.244.0.0/24  192.0.2.1  0        7
b     yes    -     stock flannel  10.244.0.0/24  192.0.2.1  -        -
c     ?      -     -              10.244.0.0/24  192.0.2.1  0        7
";
        assert_eq!(
            text(&ClusterReport::new(nodes, Vec::new()), Paint(false)),
            expected
        );
    }

    fn waiting(seconds: u64) -> WaitOptions {
        WaitOptions {
            wait: Some(Duration::from_secs(seconds)),
        }
    }

    async fn cluster(number: usize, answer: impl Fn(usize) -> PodAnswer) -> ApiDouble {
        let nodes = (1..=number)
            .map(|index| (node_json(index), Some(answer(index))))
            .collect();
        ApiDouble::start(Objects {
            nodes,
            ..Objects::default()
        })
        .await
    }

    fn output(status: &Status) -> PodAnswer {
        PodAnswer::Output(serde_json::to_string(status).expect("JSON"))
    }

    #[tokio::test]
    async fn a_cluster_of_62_nodes_is_asked_and_compared() {
        let well = cluster(62, |index| output(&answer(index, 62))).await;
        let report = wait(&well.client, &agent_pods(), waiting(0))
            .await
            .expect("a report");
        assert_eq!((report.ready, &report.problems[..]), (Some(true), &[][..]));
        let names: Vec<_> = report.nodes.iter().map(|node| node.name.clone()).collect();
        assert_eq!(
            names,
            (1..=62)
                .map(|index| format!("n{index}"))
                .collect::<Vec<_>>()
        );
        let same = cluster(62, |_| output(&answer(7, 62))).await;
        let report = wait(&same.client, &agent_pods(), waiting(0))
            .await
            .expect("a report");
        assert_eq!(
            report.ready,
            Some(false),
            "each agent says that it is ready"
        );
        let codes: Vec<_> = report.problems.iter().map(|problem| problem.code).collect();
        assert_eq!(codes, [ClusterProblemCode::SameSubnet]);
        assert!(
            text(&report, Paint(false)).contains("in both directions"),
            "{report:?}"
        );
    }

    #[tokio::test]
    async fn a_node_that_may_not_be_asked_is_unknown() {
        let some = cluster(3, |index| {
            if index == 2 {
                PodAnswer::Forbidden
            } else {
                output(&answer(index, 3))
            }
        })
        .await;
        let report = wait(&some.client, &agent_pods(), waiting(0))
            .await
            .expect("a report");
        assert_eq!((report.ready, report.nodes[1].ready), (None, None));
        let said = text(&report, Paint(false));
        assert!(
            said.starts_with("3 nodes: 2 ready; 2 in mode fast, 1 unknown\n"),
            "{said}"
        );
        assert!(
            said.contains("n2: cannot be asked: ") && said.contains("\nn2    ?  "),
            "{said}"
        );
    }

    #[tokio::test]
    async fn the_deadline_holds_with_pods_that_hang() {
        let hung = cluster(40, |index| {
            if index > 2 {
                PodAnswer::Hangs
            } else {
                output(&answer(index, 40))
            }
        })
        .await;
        let start = Instant::now();
        let report = wait(&hung.client, &agent_pods(), waiting(3))
            .await
            .expect("a report");
        let elapsed = start.elapsed();
        assert_eq!(
            report
                .nodes
                .iter()
                .filter(|node| node.ready.is_none())
                .count(),
            38
        );
        // One command has 20 s, and 16 are asked at a time.
        assert!(
            elapsed >= Duration::from_secs(2) && elapsed < Duration::from_secs(15),
            "{elapsed:?}"
        );
    }

    #[test]
    fn alike_problems_of_many_nodes_are_one_line() {
        let waiting = |index: u32| NodeReport {
            problems: vec![format!("waits {index} s")],
            codes: vec![NodeProblemCode::NotReady],
            ..node(&format!("n{index}"), ServedBy::FlannelAgent)
        };
        let nodes: Vec<NodeReport> = (1..=60).map(waiting).collect();
        assert_eq!(
            of_nodes(&nodes, Paint(false)),
            ["n1, n2, n3 and 57 more: alike, the first of them: waits 1 s"]
        );
        assert_eq!(
            of_nodes(&nodes[..2], Paint(false)),
            ["n1: waits 1 s", "n2: waits 2 s"]
        );
    }

    #[test]
    fn a_kind_of_problems_between_nodes_is_cut() {
        let problem = |index: usize| ClusterProblem {
            code: ClusterProblemCode::NotAPeer,
            severity: Severity::Warning,
            nodes: Vec::new(),
            text: format!("pair {index}"),
        };
        let lines = between_nodes(&(0..42).map(problem).collect::<Vec<_>>(), Paint(false));
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[5], "and 37 more of this kind; -o json lists them");
    }
}
