//! The events of all nodes as one stream, whose commands on the nodes end with it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    ChildGuard, eventually,
    kubernetes::{Kubernetes, Member, PodOnNode},
};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{binary, schemas};
use crate::paths::{self, LABEL};

/// Until an event comes, and until a command is started again.
const LIMIT: Duration = Duration::from_mins(1);
/// Until the commands on the nodes have ended: more than a heartbeat.
const END: Duration = Duration::from_secs(15);

fn start(cluster: &Kubernetes, flags: &[&str]) -> Result<ChildGuard> {
    let words = [
        &[
            "cluster",
            "flows",
            "--follow",
            cluster.kubectl().credentials(),
        ],
        flags,
    ]
    .concat();
    let line = [binary()?]
        .into_iter()
        .chain(words.into_iter().map(str::to_owned));
    cluster.outside.spawn("cluster-flows", line)
}

/// The numbers of the commands of the stream on a node.
fn commands(node: &Member) -> Result<Vec<String>> {
    let processes = node.run(["ps", "-e", "-o", "pid=,args="])?.stdout;
    let of_stream = processes
        .lines()
        .filter(|line| line.contains("flannel-agent flows list"));
    Ok(of_stream
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

/// Waits until each node has this number of commands.
fn wait_commands(cluster: &Kubernetes, number: usize, limit: Duration) -> Result<()> {
    eventually("commands on the nodes", limit, || {
        for node in &cluster.nodes {
            let found = commands(node)?;
            ensure!(found.len() == number, "{}: {found:?}", node.name());
        }
        Ok(())
    })
}

fn wait_said(stream: &ChildGuard, text: &str) -> Result<()> {
    eventually(text, LIMIT, || {
        ensure!(stream.log().contains(text), "{}", stream.log());
        Ok(())
    })
}

/// The nodes that report events from one pod to the other.
fn wait_events(stream: &ChildGuard, from: &PodOnNode, to: &PodOnNode) -> Result<()> {
    eventually("events of the nodes of both ends", LIMIT, || {
        paths::ask(from, &format!("http://{}:8080/hostname", to.address()))?;
        let log = stream.log();
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let documents = whole
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(serde_json::from_str);
        let documents: Vec<Value> = documents.collect::<Result<_, _>>()?;
        documents
            .iter()
            .try_for_each(|document| schemas::validate("cluster-flow-event", document))?;
        let of_pair = |document: &&Value| {
            let ends = [&document["from"]["address"], &document["to"]["address"]];
            ends == [from.address(), to.address()]
                .map(|address| Value::from(address.to_string()))
                .each_ref()
        };
        for node in [from.node(), to.node()] {
            let mut of_pair = documents.iter().filter(of_pair);
            ensure!(
                of_pair.any(|document| document["node"] == node),
                "no event of {node}: {log}"
            );
        }
        Ok(())
    })
}

/// The command of one node is killed: the node is named, and comes back.
fn a_node_comes_back(cluster: &Kubernetes, stream: &ChildGuard) -> Result<()> {
    let node = cluster.node("n2")?;
    let command = commands(node)?.pop().context("a command")?;
    node.run(["kill", "-KILL", &command])?;
    wait_said(
        stream,
        "\nn2: no answer, tried again: `flannel-agent flows` ended with 137\n",
    )?;
    wait_said(stream, "\nn2: its events come again\n")
}

/// The stream ends by a signal, and its commands with it.
fn ends_everywhere(cluster: &Kubernetes, stream: &ChildGuard) -> Result<()> {
    wait_commands(cluster, 1, LIMIT)?;
    stream.signal(Signal::SIGINT)?;
    stream.wait_success(END)?;
    let begun = Instant::now();
    wait_commands(cluster, 0, END)?;
    println!(
        "the commands on the nodes ended {:?} after the stream",
        begun.elapsed()
    );
    Ok(())
}

pub(crate) fn the_events_of_all_nodes_are_one_stream(cluster: &Kubernetes) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    let stream = start(cluster, &["--output=json"])?;
    wait_said(&stream, "following the flows of 3 nodes; Ctrl-C ends it\n")?;
    wait_commands(cluster, 1, LIMIT)?;
    wait_events(&stream, &pods[0], &pods[1])?;
    a_node_comes_back(cluster, &stream)?;
    wait_events(&stream, &pods[0], &pods[1])?;
    ends_everywhere(cluster, &stream)?;
    // No packet is to this port: no event is written, by which the commands could end as well.
    ends_everywhere(cluster, &start(cluster, &["--port=1"])?)?;
    let counted = start(cluster, &["--count=2", "--no-names", "--port=8080"])?;
    wait_said(&counted, "following the flows of 3 nodes")?;
    paths::ask(
        &pods[0],
        &format!("http://{}:8080/hostname", pods[1].address()),
    )?;
    counted.wait_success(LIMIT)?;
    let log = counted.log();
    ensure!(
        log.contains("\n2 events shown; 0 events came faster than they can be printed; 0 packets"),
        "{log}"
    );
    ensure!(
        log.lines()
            .filter(|line| line.starts_with('n') && line.contains("  tcp  "))
            .count()
            == 2,
        "{log}"
    );
    println!("{log}");
    wait_commands(cluster, 0, END)
}
