//! Suspension, and a wall clock that is set: what is left of a lease is counted by neither of the
//! usual clocks.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Clocks, StockNode, TwoNodes, cluster::VXLAN, eventually, throughout};

use super::own::{LOST, own_key};

const HOUR: Duration = Duration::from_hours(1);
const LIMIT: Duration = Duration::from_secs(20);

/// An agent with a lease of a day, which it renews an hour before the end.
fn agent(pair: &TwoNodes) -> Result<(Clocks, Agent, String)> {
    let (clocks, options) = Clocks::of(&pair.a, pair.options()?)?;
    let agent = pair.a.ready_agent(options)?;
    let key = own_key(&agent)?;
    eventually("the second write of a new lease", LIMIT, || {
        ensure!(pair.etcd.version(&key)? == 2);
        Ok(())
    })?;
    Ok((clocks, agent, key))
}

#[test]
fn a_machine_that_slept_until_shortly_before_the_end_renews_at_once_and_once() -> Result<()> {
    let pair = TwoNodes::new("slept", VXLAN)?;
    let (clocks, agent, key) = agent(&pair)?;
    let before = pair.etcd.version(&key)?;
    clocks.slept(23 * HOUR + HOUR / 2)?;
    eventually("the renewal", LIMIT, || {
        let version = pair.etcd.version(&key)?;
        ensure!(version > before, "version {version}");
        Ok(())
    })?;
    throughout("one renewal", Duration::from_secs(5), || {
        let version = pair.etcd.version(&key)?;
        ensure!(version == before + 1, "version {version} after {before}");
        Ok(())
    })?;
    agent.wait_ready_is(true)?;
    assert_eq!(agent.log_count(LOST), 0, "{}", agent.child().log());
    Ok(())
}

/// The store says nothing, so the clock has to.
#[test]
fn a_machine_that_slept_longer_than_its_lease_holds_none_until_the_store_answers() -> Result<()> {
    let pair = TwoNodes::new("overslept", VXLAN)?;
    let (clocks, agent, key) = agent(&pair)?;
    pair.etcd.pause()?;
    clocks.slept(30 * HOUR)?;
    agent.wait_status("the lapsed lease", |status| {
        ensure!(status["lease"]["held"] == false && status["ready"] == false);
        Ok(())
    })?;
    pair.etcd.resume()?;
    agent.wait_ready_is(true)?;
    // The key was there all along: it was written again, and not recreated.
    assert_eq!(
        (
            own_key(&agent)?,
            pair.etcd.version(&key)?,
            agent.log_count(LOST)
        ),
        (key, 3, 0)
    );
    Ok(())
}

#[test]
fn a_wall_clock_set_by_a_day_changes_nothing_but_reported_times() -> Result<()> {
    let pair = TwoNodes::new("set", VXLAN)?;
    let (clocks, agent, key) = agent(&pair)?;
    let expiry = |agent: &Agent| {
        agent.status()?["lease"]["expires_at"]
            .as_u64()
            .context("an expiry")
    };
    let (before, version) = (expiry(&agent)?, pair.etcd.version(&key)?);
    clocks.set_forward(24 * HOUR)?;
    // A change to report, so that the status is written again.
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    agent.wait_peers(1)?;
    let moved = expiry(&agent)?.abs_diff(before + 24 * HOUR.as_secs());
    assert!(moved < 60, "{moved} s off");
    throughout("no renewal", Duration::from_secs(5), || {
        ensure!(pair.etcd.version(&key)? == version && agent.status()?["ready"] == true);
        Ok(())
    })?;
    Ok(())
}
