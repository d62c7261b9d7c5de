//! The secret proves a node, and is seen nowhere.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{cluster::etcd::CONFIG_KEY, eventually};

use super::{ADDRESSES, PSK, config, options, two_nodes};

#[test]
fn a_node_with_another_secret_is_refused_and_no_secret_is_shown() -> Result<()> {
    let nodes = two_nodes("ipsec-secret")?;
    let agent = nodes.a.ready_agent(options(&nodes)?)?;
    nodes.etcd.put(
        CONFIG_KEY,
        &config(&PSK.replace("hunter2", "hunter3")),
        None,
    )?;
    let other = nodes.b.ready_agent(options(&nodes)?)?;
    eventually("a refusal", Duration::from_mins(1), || {
        let shown = agent.cli_any(&["status"])?.stdout;
        let peer = agent.peer_status(ADDRESSES[1])?["ipsec"].clone();
        ensure!(
            peer["state"] != "established" && peer["state"] != "installed",
            "{peer}"
        );
        ensure!(shown.contains("AUTHENTICATION_FAILED"), "{shown}");
        Ok(())
    })?;
    for agent in [agent, other] {
        let log = agent.child().log_tail(100_000);
        let status = agent.cli_any(&["status", "-o", "json"])?.stdout;
        ensure!(
            !log.contains("hunter") && !status.contains("hunter"),
            "the secret is shown"
        );
        let open = agent
            .node()
            .sh("find /run/flannel/charon ! -user root -o -perm /077 ! -type s")?
            .stdout;
        ensure!(open.is_empty(), "others may read {open}");
        ensure!(
            agent.node().sh("grep -rs hunter /run/flannel").is_err(),
            "the secret is in a file"
        );
    }
    Ok(())
}
