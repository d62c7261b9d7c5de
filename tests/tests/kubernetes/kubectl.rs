//! The connections of kubectl into pods, which go by way of kubelet.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{eventually, kubernetes::Kubernetes};

use super::paths::{self, LABEL};

const PORT: u16 = 18099;
const FORWARDED: Duration = Duration::from_secs(30);

pub(crate) fn logs_exec_and_port_forward_work_on_every_node(cluster: &Kubernetes) -> Result<()> {
    for pod in cluster.pods(LABEL)? {
        let logs = cluster.kubectl().run(["logs", pod.name()])?;
        ensure!(
            logs.contains("Started HTTP server on port 8080"),
            "{}: {logs}",
            pod.name()
        );
        // More than a packet, both ways.
        let mut text = String::new();
        (0..5000).try_for_each(|number| writeln!(text, "{number}"))?;
        let echo = cluster
            .kubectl()
            .command(["exec", "-i", pod.name(), "--", "cat"])
            .input(&text)
            .run()?;
        ensure!(
            echo.stdout == text,
            "{}: {} bytes came back",
            pod.name(),
            echo.stdout.len()
        );
        let node = cluster.nodes.first().context("a node")?;
        let forward =
            cluster
                .kubectl()
                .start(["port-forward", pod.name(), &format!("{PORT}:8080")])?;
        let answer = eventually("an answer by the forwarded port", FORWARDED, || {
            paths::ask(node, &format!("http://127.0.0.1:{PORT}/hostname"))
        })?;
        ensure!(answer == pod.name(), "{answer}");
        forward.kill9()?;
    }
    Ok(())
}
