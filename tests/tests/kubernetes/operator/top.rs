//! The rates of all nodes, streamed by one command on each.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::kubernetes::Kubernetes;
use serde_json::Value;

use super::operator;

pub(crate) fn the_rates_of_all_nodes_are_streamed(cluster: &Kubernetes) -> Result<()> {
    let words = [
        "cluster",
        "top",
        "--interval=1s",
        "--count=2",
        "--output=json",
    ];
    let said = operator(cluster, &words)?.run()?.stdout;
    let documents: Vec<Value> = said
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    ensure!(documents.len() == 2, "{said}");
    let nodes = documents[1]["nodes"].as_array().context("nodes")?;
    ensure!(nodes.len() == cluster.nodes.len(), "{said}");
    for node in nodes {
        ensure!(node["state"] == "live" && node["mode"] == "fast", "{node}");
        ensure!(
            node["packets_per_second"].is_number() && node["problems"].is_number(),
            "{node}"
        );
    }
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name()).collect();
    for pair in documents[1]["pairs"].as_array().context("pairs")? {
        ensure!(
            names.iter().any(|name| pair["peer"] == *name),
            "a peer without a name: {pair}"
        );
    }
    let text = operator(cluster, &["cluster", "top", "--interval=1s", "--count=1"])?
        .run()?
        .stdout;
    ensure!(
        text.starts_with("3 nodes   3 live") && text.contains("n1 "),
        "{text}"
    );
    Ok(())
}
