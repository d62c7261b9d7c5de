//! charon agrees with the peer, outlives the agent, comes back, and ends with cleanup.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Pod, TwoNodes, eventually, not_run, packet::wire::Capture};

use super::{
    ADDRESSES, agents, final_state, has_esp, pid, policies, tunnel, two_nodes, wait_tunnel,
};

#[test]
fn nodes_know_each_other_whatever_becomes_of_agent_and_process() -> Result<()> {
    let nodes = two_nodes("ipsec-process")?;
    let [agent, other] = agents(&nodes)?;
    let state = final_state(&nodes.a)?;
    let first = wait_tunnel(&agent, ADDRESSES[1], state)?;
    wait_tunnel(&other, ADDRESSES[0], state)?;
    ensure!(first["since"].is_u64(), "{first}");
    if has_esp(&nodes.a)? {
        expect_encrypted(&nodes)?;
    } else {
        not_run(
            "packets through the backend ipsec",
            "this kernel has no ESP",
        );
        expect_nothing_in_the_clear(&nodes)?;
        expect_the_kernels_refusal(&agent)?;
    }

    let process = pid(&agent)?;
    let since = tunnel(&agent, ADDRESSES[1])?["since"]
        .as_u64()
        .context("a time")?;
    agent.sigterm_and_wait()?;
    nodes.a.sh(&format!("kill -0 {process}"))?;
    ensure!(policies(&nodes.a)?.len() == 3, "{:?}", policies(&nodes.a)?);
    agent.restart()?;
    agent.wait_ready()?;
    let after = wait_tunnel(&agent, ADDRESSES[1], state)?;
    expect_the_same_process(&agent, process)?;
    // Rounded to seconds on the way.
    ensure!(
        after["since"].as_u64().context("a time")?.abs_diff(since) <= 1,
        "another IKE_SA: {after}"
    );

    nodes.a.sh(&format!("kill -9 {process}"))?;
    eventually("another charon", Duration::from_secs(30), || {
        let successor = pid(&agent)?;
        ensure!(successor != process, "still {successor}");
        Ok(())
    })?;
    let again = wait_tunnel(&agent, ADDRESSES[1], state)?;
    ensure!(again["since"].as_u64() >= Some(since), "{again}");

    let successor = pid(&agent)?;
    agent.sigterm_and_wait()?;
    expect_cleanup(&nodes, &agent, successor)
}

/// The status says that the kernel makes no associations, and the packets it costs.
fn expect_the_kernels_refusal(agent: &Agent) -> Result<()> {
    eventually(
        "the kernel's refusal, in words",
        Duration::from_secs(30),
        || {
            let shown = agent.cli_any(&["status"])?.stdout;
            ensure!(
                shown.contains(
                    "the kernel makes no IPsec associations: cannot create an ESP association: "
                ) && shown.contains("has no IPsec associations, so packets to it are dropped: "),
                "{shown}"
            );
            Ok(())
        },
    )
}

/// A restarted agent took over the process, and started none.
fn expect_the_same_process(agent: &Agent, process: u64) -> Result<()> {
    let status = agent.status()?;
    assert_eq!(
        (pid(agent)?, status["ipsec"]["starts"].as_u64()),
        (process, Some(0)),
        "{}",
        status["ipsec"]
    );
    Ok(())
}

/// With cleanup the process ends, and its files, policies and associations go.
fn expect_cleanup(nodes: &TwoNodes, agent: &Agent, process: u64) -> Result<()> {
    let plan = agent.cli(&["cleanup"])?.stdout;
    ensure!(
        plan.contains("end charon of the backend ipsec and remove its files: done"),
        "{plan}"
    );
    ensure!(
        plan.matches("remove the xfrm policy").count() == 3,
        "{plan}"
    );
    let files = nodes.a.sh("ls /run/flannel")?.stdout;
    ensure!(
        nodes.a.sh(&format!("kill -0 {process}")).is_err(),
        "it runs"
    );
    ensure!(
        policies(&nodes.a)?.is_empty() && files.trim() == "subnet.env",
        "{:?} {files}",
        policies(&nodes.a)?
    );
    // A packet that waited for an association leaves a placeholder without a number for 30 s.
    let states = nodes.a.sh("ip xfrm state")?.stdout;
    let is_association = |line: &&str| line.contains(" spi ") && !line.contains(" spi 0x00000000 ");
    ensure!(
        !states.lines().any(|line| is_association(&line)),
        "associations are left: {states}"
    );
    Ok(())
}

/// A pod on each node, which reach each other. As hosts with a default route have it, packets for
/// pods of the other node leave by the external interface.
pub(crate) fn connected_pods(nodes: &TwoNodes) -> Result<[Pod; 2]> {
    let [near, far] = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
    for (node, peer) in [(&nodes.a, ADDRESSES[1]), (&nodes.b, ADDRESSES[0])] {
        node.sh(&format!("ip route add 10.244.0.0/16 via {peer}"))?;
    }
    near.wait_ping(far.ip())?;
    Ok([near, far])
}

/// Frames of ESP in IPv4.
pub(crate) fn is_esp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x00]) && frame.get(23) == Some(&50)
}

/// Frames of ICMP for pods.
pub(super) fn is_icmp_of_pods(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x00])
        && frame.get(23) == Some(&1)
        && frame.get(30..32) == Some(&[10, 244])
}

/// Pods reach each other, and the packets on the way are ESP.
fn expect_encrypted(nodes: &TwoNodes) -> Result<()> {
    let [near, far] = connected_pods(nodes)?;
    let encrypted = Capture::start(&nodes.b, "eth0", is_esp)?;
    near.ping(far.ip())?;
    eventually("packets of ESP", Duration::from_secs(5), || {
        ensure!(encrypted.len() >= 2, "{} frames of ESP", encrypted.len());
        Ok(())
    })?;
    println!("{} frames of ESP", encrypted.len());
    Ok(())
}

/// Without associations the policies drop packets to the peer; to a subnet without a lease they
/// leave.
fn expect_nothing_in_the_clear(nodes: &TwoNodes) -> Result<()> {
    let [near, far] = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
    nodes
        .a
        .sh(&format!("ip route add 10.244.0.0/16 via {}", ADDRESSES[1]))?;
    let capture = Capture::start(&nodes.b, "eth0", is_icmp_of_pods)?;
    ensure!(
        near.sh("ping -n -c 1 -W 1 10.244.9.9").is_err(),
        "an answer of no pod"
    );
    eventually(
        "the packet without a policy",
        Duration::from_secs(5),
        || {
            ensure!(capture.len() == 1, "{} frames", capture.len());
            Ok(())
        },
    )?;
    ensure!(
        near.sh(&format!("ping -n -c 3 -i 0.1 -W 1 {}", far.ip()))
            .is_err(),
        "an answer without associations"
    );
    ensure!(
        capture.len() == 1,
        "{} frames left in the clear",
        capture.len() - 1
    );
    nodes.a.sh("ip route del 10.244.0.0/16").map(drop)
}
