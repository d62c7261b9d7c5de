//! The way of a packet, asked on both nodes by one command.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::kubernetes::{Kubernetes, items};
use serde_json::Value;

use super::operator;
use crate::paths::LABEL;

/// Namespace and name, and the node, of each of two servers on different nodes.
pub(super) fn servers(cluster: &Kubernetes) -> Result<[(String, String); 2]> {
    let pods = cluster.kubectl().get(["pods", "--selector=app=web"])?;
    let found = items(&pods).take(2).map(|pod| {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a name");
        Ok((
            format!("default/{}", text(&pod["metadata"]["name"])?),
            text(&pod["spec"]["nodeName"])?,
        ))
    });
    let found: Vec<_> = found.collect::<Result<_>>()?;
    found.try_into().ok().context("two servers")
}

/// A rule as a policy engine writes it, for packets to an address and port.
fn rule(address: Ipv4Addr) -> String {
    format!(
        "table inet netpol {{ chain pods {{ type filter hook forward priority filter; ip daddr \
         {address} tcp dport \
         8080 drop; }}; }}"
    )
}

/// The trace finds the rule of the node that drops, by the names of the pods.
pub(crate) fn a_rule_that_drops_is_named_for_pods_by_name(cluster: &Kubernetes) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    let [from, to] = [&pods[0], &pods[1]];
    let node = cluster.node(to.node())?;
    node.nft(&rule(to.address()))?;
    let tries = format!(
        "while :; do curl --silent --max-time 1 http://{}:8080/; done",
        to.address()
    );
    let requests = from.spawn("requests", ["sh", "-c", &tries])?;
    let words = [
        "cluster",
        "explain",
        from.name(),
        to.name(),
        "--dport=8080",
        "--trace=5",
    ];
    let explained = operator(cluster, &words)?.expect_code(1).run();
    // Also after a failure: other tests need the port.
    node.nft("delete table inet netpol")?;
    drop(requests);
    let said = explained?.stdout;
    let dropped = format!(
        "dropped by: table inet netpol, chain pods, handle 2: ip daddr {}",
        to.address()
    );
    ensure!(
        said.lines()
            .any(|line| line.starts_with("lost: ") && line.contains(&dropped)),
        "{said}"
    );
    ensure!(
        said.matches("\ntrace: ").count() == 2,
        "a trace of each node: {said}"
    );
    println!("{said}");
    Ok(())
}

pub(crate) fn a_packet_is_explained_by_both_nodes(cluster: &Kubernetes) -> Result<()> {
    let [(source, from), (destination, to)] = servers(cluster)?;
    let words = ["cluster", "explain", &source, &destination, "--dport=80"];
    let said = operator(cluster, &words)?.expect_code(0).run()?.stdout;
    ensure!(
        said.contains(&format!("\n{from}, node of the source\n 1. ok")),
        "{said}"
    );
    ensure!(
        said.contains(&format!("\n{to}, node of the destination\n 1. ok")),
        "{said}"
    );
    ensure!(said.contains("\nreaches: "), "{said}");
    let nobody = ["cluster", "explain", &source, "default/nobody"];
    let said = operator(cluster, &nobody)?.expect_code(2).run()?.stderr;
    ensure!(
        said.contains("looking for the pod default/nobody"),
        "{said}"
    );
    // Pods without our program, as those of stock flannel are.
    let stock = [
        "cluster",
        "explain",
        &source,
        &destination,
        "--namespace=default",
        "--selector=app=web",
    ];
    let said = operator(cluster, &stock)?.expect_code(2).run()?.stdout;
    ensure!(
        said.contains("cannot be asked: it runs stock flannel"),
        "{said}"
    );
    Ok(())
}
