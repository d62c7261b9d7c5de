//! Mode `kernel`: pods and nodes reach each other without the programs, on a kernel that refuses
//! them too.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Pair, eventually,
    load::rr::{Protocol, rr},
};

#[test]
fn pods_and_nodes_reach_each_other_without_the_programs() -> Result<()> {
    let pair = Pair::with_flags("kernelpath", &["--datapath=kernel"])?;
    let status = pair.sender.status()?;
    assert_eq!(status["mode"]["effective"], "kernel", "{status}");
    pair.near.ping(pair.far.ip())?;
    pair.far.ping(pair.near.ip())?;
    pair.net
        .a
        .sh(&format!("ping -n -c 3 -i 0.1 -W 2 {}", pair.far.ip()))?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let report = rr(
            &pair.near,
            &pair.far,
            pair.far.ip(),
            protocol,
            Duration::from_millis(200),
        )?;
        ensure!(
            report.transactions > 0 && report.lost == 0,
            "{protocol:?}: {report:?}"
        );
    }
    let device = &status["devices"][0];
    assert_eq!(
        (&device["name"], &device["mtu"]),
        (&"flannel.1".into(), &1450.into()),
        "{device}"
    );
    Ok(())
}

/// A first start, at which loading the programs waits for its look at the kernel's types.
#[test]
fn the_kernel_carries_packets_while_the_programs_are_loaded() -> Result<()> {
    let pair = Pair::new("loading")?;
    let (agent, node) = (&pair.sender, &pair.net.a);
    agent.sigterm_and_wait()?;
    node.sh("ip link del flannel.1")?;
    node.sh("rm -r /run/flannel/subnet.env /sys/fs/bpf/flannel")?;
    node.sh("mkfifo /run/types")?;
    node.sh("mount --bind /run/types /sys/kernel/btf/vmlinux")?;
    agent.restart()?;
    eventually("an answer of the agent", Duration::from_secs(10), || {
        agent.status()
    })?;
    pair.near.wait_ping(pair.far.ip())?;

    let status = agent.status()?;
    let reason = status["mode"]["reason"].as_str().unwrap_or_default();
    ensure!(
        status["ready"] == false && reason.contains("being loaded"),
        "{status}"
    );
    ensure!(status["mode"]["effective"] == "kernel", "{status}");
    ensure!(
        !node.outside_path("/run/flannel/subnet.env").exists(),
        "no pod is started before its programs"
    );

    // From now on the loader finds the types, and an agent that waits at the FIFO reads an empty
    // text.
    node.sh(&format!(
        "nsenter --target={} --mount umount --lazy /sys/kernel/btf/vmlinux",
        agent.child().pid()
    ))?;
    std::fs::write(node.outside_path("/run/types"), "")?;
    agent.wait_ready()?;
    pair.wait_encapsulated_while_pinging()
}
