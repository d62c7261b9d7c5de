//! The way of a packet, asked on both nodes by one command.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::kubernetes::{Kubernetes, items};
use serde_json::Value;

use super::operator;

/// Namespace and name, and the node, of each of two servers on different nodes.
pub(super) fn servers(cluster: &Kubernetes) -> Result<[(String, String); 2]> {
    let pods = cluster.kubectl().get(["pods", "--selector=app=web"])?;
    let found = items(&pods).take(2).map(|pod| {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a name");
        Ok((format!("default/{}", text(&pod["metadata"]["name"])?), text(&pod["spec"]["nodeName"])?))
    });
    let found: Vec<_> = found.collect::<Result<_>>()?;
    found.try_into().ok().context("two servers")
}

pub(crate) fn a_packet_is_explained_by_both_nodes(cluster: &Kubernetes) -> Result<()> {
    let [(source, from), (destination, to)] = servers(cluster)?;
    let words = ["cluster", "explain", &source, &destination, "--dport=80"];
    let said = operator(cluster, &words)?.expect_code(0).run()?.stdout;
    ensure!(said.contains(&format!("\n{from}, node of the source\n 1. ok")), "{said}");
    ensure!(said.contains(&format!("\n{to}, node of the destination\n 1. ok")), "{said}");
    ensure!(said.contains("\nreaches: "), "{said}");
    let nobody = ["cluster", "explain", &source, "default/nobody"];
    let said = operator(cluster, &nobody)?.expect_code(2).run()?.stderr;
    ensure!(said.contains("looking for the pod default/nobody"), "{said}");
    // Pods without our program, as those of stock flannel are.
    let stock = ["cluster", "explain", &source, &destination, "--namespace=default", "--selector=app=web"];
    let said = operator(cluster, &stock)?.expect_code(2).run()?.stdout;
    ensure!(said.contains("cannot be asked: it runs stock flannel"), "{said}");
    Ok(())
}
