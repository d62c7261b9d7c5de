//! Packets that end on their way, and the errors that their senders get.

use anyhow::{Result, ensure};

use super::{base, cluster, counted};

#[test]
fn senders_get_errors_for_packets_without_a_route_or_time_to_live() -> Result<()> {
    let cluster = cluster("udp-errors")?;
    let [agent, other, _] = &cluster.agents;
    let [pod, target, _] = &cluster.pods;
    let ping = |more: &str| -> Result<String> {
        let line = format!("ping -c 1 -W 5 {more}");
        Ok(pod.command(["sh", "-c", &line]).any_code().run()?.stdout)
    };
    let pinged = ping("10.244.250.1")?;
    ensure!(
        pinged.contains("From 10.244.0.0") && pinged.contains("Destination Net Unreachable"),
        "{pinged}"
    );
    // The kernel of the host itself takes the error too.
    let host = cluster
        .a
        .command(["ping", "-c", "1", "-W", "5", "10.244.250.1"])
        .any_code()
        .run()?
        .stdout;
    ensure!(host.contains("Destination Net Unreachable"), "{host}");
    ensure!(counted(agent, "no_route")? >= 2, "not counted");

    // Hops: the node's kernel, its process, the other process, the other kernel.
    let [own, remote] = [&base(agent)?, &base(other)?];
    for (hops, from, counts) in [
        (2, "10.244.0.0", Some(agent)),
        (3, remote, Some(other)),
        (4, remote, None),
    ] {
        let before = counts
            .map(|agent| counted(agent, "ttl_exceeded"))
            .transpose()?;
        let pinged = ping(&format!("-t {hops} {}", target.ip()))?;
        ensure!(
            pinged.contains(&format!("From {from} ")) && pinged.contains("Time to live exceeded"),
            "{hops} hops, not from {from} (we are {own}): {pinged}"
        );
        if let (Some(agent), Some(before)) = (counts, before) {
            assert_eq!(counted(agent, "ttl_exceeded")?, before + 1, "{hops} hops");
        }
    }
    let pinged = ping(&format!("-t 5 {}", target.ip()))?;
    ensure!(pinged.contains("1 received"), "{pinged}");
    Ok(())
}
