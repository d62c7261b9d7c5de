//! `connectivity test` on a cluster that works, on one that does not, and interrupted.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    eventually,
    kubernetes::{Kubernetes, OUTSIDE, all_items},
};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{LIMIT, binary, operator, schemas};

/// Namespaces of the test.
const LABEL: &str = "app.kubernetes.io/managed-by=flannel-connectivity-test";
/// A whole run with three modes, on a machine under load.
const RUN: Duration = Duration::from_mins(6);
/// The port of the test's servers.
const PORT: u16 = 9473;

/// The document of a test with these flags, which ends with this code.
pub(crate) fn test(cluster: &Kubernetes, flags: &[&str], code: i32) -> Result<Value> {
    let words: Vec<&str> = ["connectivity", "test", "--output=json"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    let output = operator(cluster, &words)?
        .limit(RUN)
        .expect_code(code)
        .run()?;
    let report = serde_json::from_str(&output.stdout)?;
    schemas::validate("connectivity", &report)?;
    Ok(report)
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn leaves_nothing(cluster: &Kubernetes) -> Result<()> {
    let left = cluster.kubectl().get(["namespaces", "--selector", LABEL])?;
    ensure!(all_items(&left).is_empty(), "{left}");
    for node in &cluster.nodes {
        let mode = cluster.agent(node.name(), &["datapath", "show"])?;
        ensure!(
            mode == "fast (not chosen at run time)\n",
            "{}: {mode}",
            node.name()
        );
    }
    Ok(())
}

pub(crate) fn a_whole_cluster_passes_in_every_mode(cluster: &Kubernetes) -> Result<()> {
    let server = [
        binary()?,
        "connectivity".to_owned(),
        "serve".to_owned(),
        "--name=outside".to_owned(),
    ];
    let server = cluster.outside.spawn(
        "outside",
        server.into_iter().chain([format!("--port={PORT}")]),
    )?;
    let outside = format!("--outside={OUTSIDE}:{PORT}");
    let report = test(cluster, &["--modes=kernel,encap,fast", &outside], 0)?;
    ensure!(
        report["ok"] == true && array(&report["left_behind"]).is_empty(),
        "{report}"
    );
    ensure!(array(&report["nodes"]) == ["n1", "n2", "n3"], "{report}");
    ensure!(
        report["left_out"][0] == "IPv6: no test pod has an address of this family",
        "{report}"
    );
    let modes: Vec<_> = array(&report["runs"])
        .iter()
        .map(|run| run["mode"].clone())
        .collect();
    ensure!(modes == ["kernel", "encap", "fast"], "{modes:?}");
    for run in array(&report["runs"]) {
        // Five checks of nine pairs, and the outside of three nodes.
        ensure!(
            array(&run["checks"]).len() == 48 && array(&run["notes"]).is_empty(),
            "{run}"
        );
        for check in array(&run["checks"]) {
            ensure!(check["ok"] == true, "{check}");
            if check["check"] == "mtu" {
                ensure!(
                    check["size"] == check["device_mtu"] && check["size"] == 1450,
                    "{check}"
                );
            }
        }
    }
    server.signal(Signal::SIGTERM)?;
    leaves_nothing(cluster)
}

pub(crate) fn a_broken_pair_is_found_and_explained(cluster: &Kubernetes) -> Result<()> {
    let (n2, n3) = (cluster.node("n2")?, cluster.node("n3")?);
    let subnet = |node: &str| {
        cluster
            .kubectl()
            .run(["get", "node", node, "--output=jsonpath={.spec.podCIDR}"])
    };
    let udp = format!("FORWARD -s {} -p udp --dport {PORT} -j DROP", subnet("n1")?);
    let large = format!(
        "FORWARD -d {} -p udp --dport {PORT} -m length --length 1401:65535 -j DROP",
        subnet("n3")?
    );
    n2.sh(&format!("iptables -I {udp}"))?;
    n3.sh(&format!("iptables -I {large}"))?;
    // Mode fast does not ask the rules about every packet.
    let report = test(cluster, &["--modes=kernel"], 1);
    n2.sh(&format!("iptables -D {udp}"))?;
    n3.sh(&format!("iptables -D {large}"))?;
    let report = report?;
    let checks = array(&report["runs"][0]["checks"]);
    let failed: Vec<_> = checks.iter().filter(|check| check["ok"] == false).collect();
    let pair = |check: &Value| {
        format!("{} {} {}", check["check"], check["from"], check["to"]).replace('"', "")
    };
    let mut pairs: Vec<_> = failed.iter().map(|check| pair(check)).collect();
    pairs.sort();
    // Services and nodes send to the same pods. Packets between pods of n3 pass its chain as well.
    let expected = [
        "mtu n1 n2",
        "mtu n1 n3",
        "mtu n2 n3",
        "mtu n3 n3",
        "node-to-pod n1 n2",
        "pod-to-pod n1 n2",
        "pod-to-service n1 n2",
    ];
    ensure!(pairs == expected, "{pairs:?}");
    let of = |name: &str| failed.iter().find(|check| pair(check) == name);
    ensure!(
        of("pod-to-pod n1 n2").is_some_and(|check| check["protocol"] == "udp"),
        "{failed:?}"
    );
    ensure!(
        of("mtu n2 n3").is_some_and(|check| check["size"] == 1400 && check["device_mtu"] == 1450),
        "{failed:?}"
    );
    let explained = array(&report["explanations"]).iter().find(|explained| {
        explained["failure"]
            .as_str()
            .is_some_and(|failure| failure.starts_with("pod to pod, IPv4: n1 to n2 ("))
    });
    let text = explained
        .and_then(|explained| explained["text"].as_str())
        .unwrap_or_default();
    ensure!(
        text.contains("\nreaches: ") || text.contains("\nlost: "),
        "{report}"
    );
    leaves_nothing(cluster)
}

pub(crate) fn a_signal_leaves_nothing_behind(cluster: &Kubernetes) -> Result<()> {
    // It waits for an address that does not answer.
    let words = [
        "connectivity",
        "test",
        "--modes=kernel",
        "--outside=192.0.2.1:9",
        cluster.kubectl().credentials(),
    ];
    let line = [binary()?].into_iter().chain(words.map(str::to_owned));
    let run = cluster.outside.spawn("connectivity test", line)?;
    eventually("mode kernel on every node", LIMIT, || {
        cluster.nodes.iter().try_for_each(|node| {
            let mode = cluster.agent(node.name(), &["datapath", "show"])?;
            ensure!(
                mode == "kernel (chosen at run time)\n",
                "{}: {mode}",
                node.name()
            );
            Ok(())
        })
    })?;
    run.signal(Signal::SIGINT)?;
    let end = run.wait(LIMIT)?;
    ensure!(
        end.code() == Some(2) && run.log().contains("could not run: interrupted"),
        "{end:?}: {}",
        run.log()
    );
    leaves_nothing(cluster)
}

pub(crate) fn pods_that_cannot_start_are_no_result(cluster: &Kubernetes) -> Result<()> {
    let words = [
        "connectivity",
        "test",
        "--image=localhost/none:1",
        "--start-limit=5s",
    ];
    let output = operator(cluster, &words)?.limit(RUN).expect_code(2).run()?;
    ensure!(output.stderr.contains("no test pod runs: "), "{output:?}");
    leaves_nothing(cluster)
}
