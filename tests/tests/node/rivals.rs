//! A VNI or a port that another device or program has: the agent waits, names the owner, and goes
//! on once it is gone.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Agent, TwoNodes, cluster::VXLAN, eventually};

fn waits_and_names(agent: &Agent, [owner, seen]: [&str; 2]) -> Result<()> {
    eventually(
        &format!("{owner} in status"),
        Duration::from_secs(20),
        || {
            ensure!(
                agent.child().is_running(),
                "it ended: {}",
                agent.child().log_tail(5)
            );
            let status = agent.status()?;
            let error = status["error"].as_str().unwrap_or_default();
            ensure!(
                error.contains(owner) && status["ready"] == false,
                "{status}"
            );
            Ok(())
        },
    )?;
    let check = agent.cli_any(&["check"])?.stdout;
    ensure!(check.contains(seen), "{check}");
    Ok(())
}

fn waits_for(name: &str, take: &[&str], owner: &str, leave: &str) -> Result<()> {
    let nodes = TwoNodes::new(name, VXLAN)?;
    for line in take {
        nodes.a.sh(line)?;
    }
    let agent = nodes.a.agent(nodes.options()?)?;
    waits_and_names(&agent, [owner; 2])?;
    nodes.a.sh(leave)?;
    agent.wait_ready()?;
    ensure!(agent.status()?["error"].is_null());
    Ok(())
}

#[test]
fn a_device_for_all_vnis_at_our_port_is_waited_for() -> Result<()> {
    let take = [
        "ip link add cilium_vxlan type vxlan external dstport 8472",
        "ip link set cilium_vxlan up",
    ];
    waits_for(
        "portdev",
        &take,
        "the vxlan device cilium_vxlan",
        "ip link del cilium_vxlan",
    )
}

#[test]
fn a_device_with_our_vni_is_waited_for() -> Result<()> {
    let take = [
        "ip link add oldflannel type vxlan id 1 dev eth0 dstport 8472",
        "ip link set oldflannel up",
    ];
    waits_for(
        "vnidev",
        &take,
        "the vxlan device oldflannel",
        "ip link del oldflannel",
    )
}

#[test]
fn a_process_with_our_port_is_waited_for() -> Result<()> {
    let nodes = TwoNodes::new("portproc", VXLAN)?;
    let program = "import socket, time\ns = socket.socket(socket.AF_INET, \
        socket.SOCK_DGRAM)\ns.bind(('', 8472))\nprint('bound', flush=True)\ntime.sleep(600)";
    let taker = nodes.a.spawn("taker", ["python3", "-c", program])?;
    eventually("the port", Duration::from_secs(10), || {
        ensure!(taker.log().contains("bound"), "not yet");
        Ok(())
    })?;
    // Unconfined, `check` may see the descriptors of other processes. The agent gives that right
    // up.
    let agent = nodes.a.agent(nodes.options()?.confined_by(None))?;
    let seen = format!("process {} (python3)", taker.pid());
    waits_and_names(
        &agent,
        ["UDP port 8472 is taken by a process of user 0", &seen],
    )?;
    taker.kill9()?;
    agent.wait_ready()
}
