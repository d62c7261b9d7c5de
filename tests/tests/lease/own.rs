//! Our own lease while the agent runs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, StockNode, TunnelState, TwoNodes,
    cluster::{LEASES, VXLAN},
    eventually,
    load::{UdpLoad, UdpRun},
};
use serde_json::Value;

pub(super) const LOST: &str = " is lost: ";

pub(super) fn own_key(agent: &Agent) -> Result<String> {
    key_in(&agent.status()?)
}

/// The key of the lease that a status shows.
pub(super) fn key_in(status: &Value) -> Result<String> {
    Ok(format!(
        "{LEASES}{}",
        status["lease"]["subnet"]
            .as_str()
            .context("a subnet")?
            .replace('/', "-")
    ))
}

/// Checks that the lease is acquired again after `take`. Traffic to the peers continues without
/// loss: the node's routes to them do not depend on its lease.
fn is_acquired_again(take: impl FnOnce(&TwoNodes, &str) -> Result<()>) -> Result<()> {
    let pair = TwoNodes::new("lost", VXLAN)?;
    let [a, _b] = pair.agents()?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let (key, pid) = (own_key(&a)?, a.status()?["pid"].clone());
    let load = UdpLoad {
        pps: 2000,
        duration: Duration::from_mins(1),
        payload: 64,
    };
    let run = UdpRun::start(&near, &far, far.ip(), load)?;
    take(&pair, &key)?;
    a.wait_log(&[LOST])?;
    a.wait_ready_is(true)?;
    eventually("our lease in etcd", Duration::from_secs(10), || {
        pair.etcd.get(&key)?.context("no key")
    })?;
    let report = run.stop()?;
    assert_eq!(
        (report.lost_count(), report.duplicated),
        (0, 0),
        "{report:?}"
    );
    assert_eq!(
        (own_key(&a)?, a.status()?["pid"].clone()),
        (key, pid),
        "same subnet, same process"
    );
    // The lease is in etcd; the peer, which dropped its routes to this node in between, may not
    // have read it yet.
    near.wait_ping(far.ip())
}

#[test]
fn a_lease_deleted_under_traffic_is_acquired_again() -> Result<()> {
    is_acquired_again(|pair, key| pair.etcd.delete(key).map(drop))
}

#[test]
fn a_lease_revoked_under_traffic_is_acquired_again() -> Result<()> {
    is_acquired_again(|pair, key| pair.etcd.revoke(key))
}

/// No other subnet is free, so the agent has to wait for its own: alive, not ready, and saying so.
#[test]
fn an_agent_whose_subnet_is_taken_over_waits_for_it_and_is_not_ready() -> Result<()> {
    let one_each = r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.2.0","Backend":{"Type":"vxlan"}}"#;
    let pair = TwoNodes::new("taken", one_each)?;
    let [a, _b] = pair.agents()?;
    let (key, before) = (own_key(&a)?, TunnelState::of(&pair.a)?);
    let thief = StockNode::vxlan(1, "192.168.1.99", "02:00:00:00:00:99");
    pair.etcd.put(&key, &thief.value(), None)?;
    let status = a.wait_status("the lost lease", |status| {
        ensure!(status["lease"]["held"] == false);
        Ok(())
    })?;
    assert_eq!(status["ready"], false, "{status}");
    assert!(
        status["rejected"][0]["reason"]
            .as_str()
            .unwrap_or_default()
            .contains("overlaps ours"),
        "{status}"
    );
    a.wait_log(&[
        LOST,
        "is lost: taken over by 192.168.1.99",
        "cannot acquire a lease: out of subnets",
    ])?;
    assert_eq!(
        before.changes(&TunnelState::of(&pair.a)?),
        "",
        "the thief's claim does not reach the kernel"
    );

    pair.etcd.delete(&key)?;
    a.wait_ready_is(true)?;
    assert_eq!(own_key(&a)?, key);
    Ok(())
}

/// Without this a restart would be needed when the lease is shorter than the process's life.
#[test]
fn a_short_lease_is_renewed_in_time() -> Result<()> {
    let pair = TwoNodes::new("short", VXLAN)?;
    let agent = pair.a.ready_agent(
        pair.options()?
            .flag("--subnet-lease-ttl=4")
            .flag("--subnet-lease-renew-margin=720"),
    )?;
    let key = own_key(&agent)?;
    let first = pair.etcd.version(&key)?;
    eventually("three renewals", Duration::from_secs(20), || {
        ensure!(agent.status()?["ready"] == true, "not ready");
        let version = pair.etcd.version(&key)?;
        ensure!(version >= first + 3, "version {version}");
        Ok(())
    })?;
    assert_eq!(agent.log_count(LOST), 0, "{}", agent.child().log());
    Ok(())
}

/// The node has another address after a restart. Its peers follow it, under the lease of before.
#[test]
fn a_changed_public_address_reaches_the_peers_and_keeps_the_lease() -> Result<()> {
    let pair = TwoNodes::new("moved", VXLAN)?;
    let [a, b] = pair.agents()?;
    let (pod, former) = (pair.a.add_pod("p0")?, own_key(&a)?);
    a.sigterm_and_wait()?;
    pair.a.sh("ip address add 192.168.1.21/24 dev eth0")?;
    let moved = pair
        .a
        .ready_agent(pair.options()?.flag("--public-ip=192.168.1.21"))?;
    let status = moved.status()?;
    assert_eq!(status["lease"]["public_ip"], "192.168.1.21", "{status}");
    let subnet = status["lease"]["subnet"].clone();
    b.wait_status("the new address", |status| {
        let peers = status["peers"].as_array().context("peers")?;
        ensure!(
            peers
                .iter()
                .any(|peer| peer["public_ip"] == "192.168.1.21" && peer["subnet"] == subnet)
        );
        Ok(())
    })?;
    assert_eq!(
        (own_key(&moved)?, pair.etcd.list(LEASES)?.len()),
        (former, 2),
        "one lease for each node"
    );
    pair.a
        .sh(&format!("ping -n -c 3 -i 0.01 -W 2 {}", pod.ip()))?;
    Ok(())
}
