//! `flannel-agent cluster status`: counts, then problems, then one line for each node.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use clap::Args;
use flannel_host::{error_chain::chain, words::first};
use flannel_status::ModeStatus;
use tokio::time::{Instant, sleep};

use super::ClusterAccess;
use crate::{
    cli::{Answer, PrintOptions, WaitOptions, color::Paint, count, table},
    cluster::{
        progress::Progress,
        report::{ClusterReport, NodeReport, ServedBy},
    },
};

/// The time between two rounds of questions while waiting.
const PERIOD: Duration = Duration::from_secs(1);
const NOT_READY: u8 = 1;
/// Nodes that the line of progress names.
const NAMED: usize = 3;

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
    let deadline = Instant::now() + options.wait.limit();
    let mut progress = Progress::new();
    let report = loop {
        let asked = ClusterReport::ask(&client, &options.access.pods(), &mut progress).await;
        let now = Instant::now();
        match asked {
            Ok(report) if report.ready || now >= deadline => break report,
            Ok(report) => progress.show(&waiting(&report)),
            // Rights do not come by waiting.
            Err(error) if now >= deadline || matches!(error.code(), Some(401 | 403)) => return Err(error.into()),
            Err(error) => progress.show(&chain(&error)),
        }
        sleep(PERIOD.min(deadline - now)).await;
    };
    drop(progress);
    let code = if report.ready { 0 } else { NOT_READY };
    Ok(Answer { text: options.print.print(&report, |paint| text(&report, paint)), code })
}

fn waiting(report: &ClusterReport) -> String {
    let missing: Vec<_> = report.nodes.iter().filter(|node| !node.ready).map(|node| node.name.as_str()).collect();
    format!("waiting for {}", first(&missing, NAMED))
}

/// The report, as the command prints it.
pub(super) fn text(report: &ClusterReport, paint: Paint) -> String {
    let ClusterReport { nodes, .. } = report;
    let mut out = summary(nodes);
    let problems: Vec<_> =
        nodes.iter().flat_map(|node| node.problems.iter().map(move |problem| (&node.name, problem))).collect();
    if !problems.is_empty() {
        out.push('\n');
    }
    for (name, problem) in problems {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", paint.bad(&format!("{name}: {problem}")));
    }
    out.push('\n');
    let header =
        ["NODE", "READY", "MODE", "VERSION", "SUBNET", "ADDRESS", "REFUSED", "DROPS"].map(|name| paint.head(name));
    out + &table::render_rows(&header, &nodes.iter().map(|node| row(node, paint)).collect::<Vec<_>>())
}

fn summary(nodes: &[NodeReport]) -> String {
    let ready = nodes.iter().filter(|node| node.ready).count();
    let mut modes = BTreeMap::<&str, usize>::new();
    for mode in nodes.iter().filter_map(|node| node.mode.as_ref()) {
        *modes.entry(&mode.effective).or_default() += 1;
    }
    let mut counts: Vec<String> = modes.into_iter().map(|(mode, number)| format!("{number} in mode {mode}")).collect();
    let stock = nodes.iter().filter(|node| node.served_by == ServedBy::StockFlannel).count();
    counts.extend((stock > 0).then(|| format!("{stock} with stock flannel")));
    let detail = if counts.is_empty() { String::new() } else { format!("; {}", counts.join(", ")) };
    format!("{}: {ready} ready{detail}\n", count(nodes.len().try_into().unwrap_or(u32::MAX), "node", "nodes"))
}

fn row(node: &NodeReport, paint: Paint) -> [String; 8] {
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    let mode = node.mode.as_ref().map(|mode| {
        let ModeStatus { effective, wanted, .. } = mode;
        if effective == wanted { effective.clone() } else { paint.warn(&format!("{effective}, not {wanted}")) }
    });
    let version = match node.served_by {
        ServedBy::StockFlannel => Some("stock flannel".to_owned()),
        ServedBy::FlannelAgent | ServedBy::Unknown | ServedBy::None => node.version.clone(),
    };
    [
        node.name.clone(),
        if node.ready { paint.good("yes") } else { paint.bad("no") },
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
    use flannel_status::ModeSource;

    use super::*;

    fn node(name: &str, served_by: ServedBy) -> NodeReport {
        let mode = ModeStatus {
            effective: "fast".to_owned(),
            wanted: "fast".to_owned(),
            source: ModeSource::Default,
            reason: None,
            attach: None,
        };
        NodeReport {
            name: name.to_owned(),
            served_by,
            ready: true,
            version: Some("0.1.0".to_owned()),
            mode: Some(mode),
            subnets: vec!["10.244.0.0/24".to_owned()],
            public_addresses: vec!["192.0.2.1".to_owned()],
            refused_leases: Some(0),
            drops: Some(7),
            problems: Vec::new(),
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
        let mut lost = NodeReport { ready: false, mode: None, version: None, ..node("c", ServedBy::Unknown) };
        lost.problems = vec!["cannot be asked".to_owned()];
        let nodes = vec![node("a", ServedBy::FlannelAgent), stock, lost];
        let expected = "\
3 nodes: 2 ready; 1 in mode fast, 1 with stock flannel

c: cannot be asked

NODE  READY  MODE  VERSION        SUBNET         ADDRESS    REFUSED  DROPS
a     yes    fast  0.1.0          10.244.0.0/24  192.0.2.1  0        7
b     yes    -     stock flannel  10.244.0.0/24  192.0.2.1  -        -
c     no     -     -              10.244.0.0/24  192.0.2.1  0        7
";
        assert_eq!(text(&ClusterReport { ready: false, nodes }, Paint(false)), expected);
    }
}
