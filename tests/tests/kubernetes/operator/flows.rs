//! The flows of all nodes in one list.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    kubernetes::{Kubernetes, PodOnNode},
    load::{UdpLoad, UdpRun},
};
use serde_json::{Value, json};

use super::{operator, schemas};
use crate::paths::LABEL;

/// Until a flow is learned.
const LIMIT: Duration = Duration::from_mins(1);
const LOAD: UdpLoad = UdpLoad {
    pps: 200,
    duration: Duration::from_mins(8),
    payload: 64,
};

fn listed(cluster: &Kubernetes, flags: &[&str], code: i32) -> Result<Value> {
    let words = [&["cluster", "flows", "--output=json"], flags].concat();
    let document =
        serde_json::from_str(&operator(cluster, &words)?.expect_code(code).run()?.stdout)?;
    schemas::validate("cluster-flows", &document)?;
    Ok(document)
}

pub(crate) fn the_flows_of_all_nodes_are_one_list(cluster: &Kubernetes) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    let [first, second, ..] = &pods[..] else {
        anyhow::bail!("servers: {pods:?}")
    };
    let [near, far] = [first, second].map(PodOnNode::node);
    let (from, to) = (first.address().to_string(), second.address().to_string());
    let stream = UdpRun::start(first, second, IpAddr::V4(second.address()), LOAD)?;
    let flags = [
        &format!("--src={from}"),
        &format!("--dst={to}"),
        "--proto=udp",
    ];
    let found = eventually("the flow on the nodes of both ends", LIMIT, || {
        let document = listed(cluster, &flags, 0)?;
        let [flow] = document["flows"].as_array().context("flows")?.as_slice() else {
            anyhow::bail!("one flow of both nodes: {document:#}")
        };
        ensure!(flow["nodes"] == json!([near, far]), "{flow:#}");
        ensure!(
            flow["way"] == "tunnel" && flow["packets"].as_u64() > Some(10),
            "{flow:#}"
        );
        Ok(document)
    })?;
    ensure!(
        found["complete"] == true
            && found["nodes"]
                .as_array()
                .is_some_and(|nodes| nodes.len() == 3),
        "{found:#}"
    );
    let text = operator(cluster, &[&["cluster", "flows"], &flags[..]].concat())?
        .run()?
        .stdout;
    ensure!(text.starts_with("3 nodes: 3 answered\n"), "{text}");
    ensure!(
        text.lines()
            .any(|line| line.starts_with(&format!("{near},{far}  udp "))),
        "{text}"
    );
    let bounded = listed(cluster, &[&flags[..], &["--rows=0"]].concat(), 0)?;
    ensure!(
        bounded["flows"].as_array().is_some_and(Vec::is_empty),
        "{bounded:#}"
    );
    ensure!(bounded["left_out"] == 2, "once on each node: {bounded:#}");
    stream.stop()?;
    // No pod has this label.
    let none = listed(cluster, &["--selector=app=none"], 2)?;
    ensure!(
        none["complete"] == false && none["nodes"][0]["served_by"] == "unknown",
        "{none:#}"
    );
    Ok(())
}
