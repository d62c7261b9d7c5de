//! Obstacles to charon are named, and waited for where time can remove them.

use std::{fs, net::UdpSocket, path::Path, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{TwoNodes, cluster::topology::Stack, eventually};

use super::{PROGRAMS, PSK, agents, config, options, pid, two_nodes};

#[test]
fn without_charon_the_agent_ends_and_says_what_to_install() -> Result<()> {
    let nodes = TwoNodes::with("ipsec-none", Stack::V4, &config(PSK))?;
    if Path::new(PROGRAMS).exists() {
        nodes.a.sh(&format!("mount -t tmpfs none {PROGRAMS}"))?;
    }
    let agent = nodes.a.agent(options(&nodes)?)?;
    eventually("the end of the agent", Duration::from_secs(30), || {
        ensure!(!agent.child().is_running(), "it runs");
        Ok(())
    })?;
    let log = agent.child().log_tail(20);
    ensure!(
        log.contains("strongswan-charon") && log.contains("/usr/libexec/strongswan"),
        "{log}"
    );
    Ok(())
}

#[test]
fn a_port_that_another_process_has_is_named_and_waited_for() -> Result<()> {
    let nodes = two_nodes("ipsec-port")?;
    let taken = nodes.a.enter(|| UdpSocket::bind("0.0.0.0:4500"))??;
    let [agent, _] = agents(&nodes)?;
    eventually("the port, by its number", Duration::from_secs(20), || {
        let shown = agent.cli_any(&["status"])?.stdout;
        ensure!(
            shown.contains("no keys are agreed on") && shown.contains("UDP port 4500"),
            "{shown}"
        );
        Ok(())
    })?;
    drop(taken);
    eventually("charon", Duration::from_mins(1), || pid(&agent).map(drop))?;
    let status = agent.status()?;
    ensure!(status["ipsec"]["error"].is_null(), "{}", status["ipsec"]);
    // A charon of the host keeps its socket and its configuration.
    ensure!(
        !nodes.a.outside_path("/run/charon.vici").exists(),
        "the socket of the host"
    );
    let text = fs::read_to_string(nodes.a.outside_path("/run/flannel/charon/strongswan.conf"))?;
    ensure!(text.contains("unix:///run/flannel/charon/"), "{text}");
    Ok(())
}
