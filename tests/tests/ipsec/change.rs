//! Another backend ends charon and removes the policies.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{self, etcd::CONFIG_KEY},
    eventually,
};

use super::{agents, pid, policies, two_nodes};

#[test]
fn another_backend_ends_charon_and_removes_the_policies() -> Result<()> {
    let nodes = two_nodes("ipsec-change")?;
    let agents = agents(&nodes)?;
    let process = eventually("charon", Duration::from_secs(20), || pid(&agents[0]))?;
    nodes.etcd.put(CONFIG_KEY, cluster::VXLAN, None)?;
    agents.iter().try_for_each(Agent::sigterm_and_wait)?;
    for agent in &agents {
        agent.restart()?;
    }
    agents.iter().try_for_each(Agent::wait_ready)?;
    eventually(
        "neither process nor policies",
        Duration::from_secs(20),
        || {
            ensure!(
                nodes.a.sh(&format!("kill -0 {process}")).is_err(),
                "the process runs"
            );
            ensure!(policies(&nodes.a)?.is_empty(), "{:?}", policies(&nodes.a)?);
            Ok(())
        },
    )?;
    let status = agents[0].status()?;
    ensure!(status["ipsec"].is_null(), "{}", status["ipsec"]);
    Ok(())
}
