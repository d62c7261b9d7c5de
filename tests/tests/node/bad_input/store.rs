//! An etcd that is out of reach.

use anyhow::{Result, ensure};
use flannel_tests::{Agent, TunnelState, TwoNodes, cluster::VXLAN};

/// Peers stay in the kernel and packets flow, while the agent says that it does not see the store.
fn rides_out(
    agent: &Agent,
    pair: &TwoNodes,
    away: impl FnOnce() -> Result<()>,
    back: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let before = TunnelState::of(&pair.a)?;
    away()?;
    let status = agent.wait_ready_is(false)?;
    assert_eq!(status["store"]["in_sync"], false, "{status}");
    let reason = status["store"]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("etcd is not reachable (http://192.168.1.12:2379)"),
        "{reason}"
    );
    assert_eq!(
        status["peers"].as_array().map(Vec::len),
        Some(1),
        "{status}"
    );
    near.ping(far.ip())?;
    assert_eq!(before.changes(&TunnelState::of(&pair.a)?), "");
    back()?;
    let status = agent.wait_ready_is(true)?;
    assert_eq!(
        (&status["store"]["in_sync"], &status["store"]["reason"]),
        (&true.into(), &().into()),
        "{status}"
    );
    Ok(())
}

#[test]
fn an_agent_rides_out_a_store_that_dies() -> Result<()> {
    let pair = TwoNodes::new("dies", VXLAN)?;
    let [a, _b] = pair.agents()?;
    rides_out(&a, &pair, || pair.etcd.stop(), || pair.etcd.start())
}

/// A frozen server keeps its connections, so only unanswered keepalive pings reveal it.
#[test]
fn an_agent_rides_out_a_store_that_freezes() -> Result<()> {
    let pair = TwoNodes::new("freezes", VXLAN)?;
    let [a, _b] = pair.agents()?;
    rides_out(&a, &pair, || pair.etcd.pause(), || pair.etcd.resume())
}

#[test]
fn an_agent_waits_for_a_store_that_is_not_there_yet() -> Result<()> {
    let pair = TwoNodes::new("later", VXLAN)?;
    pair.etcd.stop()?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_log(&[
        "waiting for the network configuration: etcd is not reachable (http://192.168.1.12:2379)",
        "check --etcd-endpoints",
    ])?;
    let status = agent.wait_status("the endpoints", |status| {
        ensure!(status["store"]["endpoints"][0] == "http://192.168.1.12:2379");
        Ok(())
    })?;
    assert_eq!(status["ready"], false, "{status}");
    pair.etcd.start()?;
    agent.wait_ready()
}
