//! A node that is out for longer than its lease.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, StockNode, TunnelState, TwoNodes, cluster::VXLAN, eventually};
use nix::sys::signal::Signal;

use super::own::{key_in, own_key};

/// Enough for a lease of [`two_agents`] to end, and for the other node to follow.
const LIMIT: Duration = Duration::from_secs(20);
/// Three subnets can be leased.
const THREE_SUBNETS: &str = r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.3.0","Backend":{"Type":"vxlan"}}"#;

/// Agents whose leases last four seconds.
fn two_agents(pair: &TwoNodes) -> Result<[Agent; 2]> {
    let options = || {
        pair.options().map(|options| {
            options
                .flag("--subnet-lease-ttl=4")
                .flag("--subnet-lease-renew-margin=720")
        })
    };
    let agents = [pair.a.agent(options()?)?, pair.b.agent(options()?)?];
    for agent in &agents {
        agent.wait_ready()?;
    }
    for agent in &agents {
        agent.wait_peers(1)?;
    }
    Ok(agents)
}

fn until_gone(pair: &TwoNodes, key: &str) -> Result<()> {
    eventually("the end of the lease", LIMIT, || {
        ensure!(pair.etcd.get(key)?.is_none(), "{key} is there");
        Ok(())
    })
}

fn until_as(before: &TunnelState, pair: &TwoNodes) -> Result<()> {
    eventually("what the other node had before", LIMIT, || {
        let changes = before.changes(&TunnelState::of(&pair.b)?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })
}

#[test]
fn a_frozen_agent_whose_lease_ran_out_is_not_ready_and_acquires_it_again() -> Result<()> {
    let pair = TwoNodes::new("frozen", VXLAN)?;
    let [a, b] = two_agents(&pair)?;
    let (key, pid) = (own_key(&a)?, a.status()?["pid"].clone());
    let (own, others) = (TunnelState::of(&pair.a)?, TunnelState::of(&pair.b)?);
    a.child().signal(Signal::SIGSTOP)?;
    until_gone(&pair, &key)?;
    b.wait_peers(0)?;

    // Without an answer from the store, only the clock shows that the lease has expired.
    pair.etcd.pause()?;
    a.child().signal(Signal::SIGCONT)?;
    let status = a.wait_status("the lapsed lease", |status| {
        ensure!(status["lease"]["held"] == false && status["ready"] == false);
        Ok(())
    })?;
    assert_eq!(
        status["lease"]["subnet"]
            .as_str()
            .map(|subnet| key.ends_with(&subnet.replace('/', "-"))),
        Some(true)
    );
    a.wait_log(&["our lease ran out before it could be renewed"])?;
    assert_eq!(own.changes(&TunnelState::of(&pair.a)?), "", "peers stay");

    pair.etcd.resume()?;
    a.wait_ready_is(true)?;
    assert_eq!(
        (own_key(&a)?, a.status()?["pid"].clone()),
        (key, pid),
        "same subnet, same process"
    );
    b.wait_peers(1)?;
    until_as(&others, &pair)
}

/// The state of an agent while its lease expires.
#[derive(Clone, Copy, Debug)]
enum Out {
    Frozen,
    Dead,
}

fn somebody_else_takes_the_subnet_of_one_that_is(out: Out) -> Result<()> {
    let pair = TwoNodes::new("robbed", THREE_SUBNETS)?;
    let [a, b] = two_agents(&pair)?;
    let former = own_key(&a)?;
    match out {
        Out::Frozen => a.child().signal(Signal::SIGSTOP)?,
        Out::Dead => a.kill9()?,
    }
    until_gone(&pair, &former)?;
    let name = former.rsplit('/').next().context("a name")?;
    let heir = StockNode::named(name, "192.168.1.99", "02:00:00:00:00:99");
    heir.put(&pair.etcd)?;
    match out {
        Out::Frozen => a.child().signal(Signal::SIGCONT)?,
        Out::Dead => a.restart()?,
    }
    let status = a.wait_status("another subnet", |status| {
        ensure!(status["ready"] == true && key_in(status)? != former);
        Ok(())
    })?;
    let subnet = status["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .trim_end_matches("/24")
        .to_owned();
    a.wait_peers(2)?;
    expect_heir_and_own(&pair, &subnet)?;
    b.wait_status("both, with their addresses", |status| {
        let rows = status["peers"].as_array().context("peers")?;
        let has = |subnet: &str, ip: &str| {
            rows.iter().any(|row| {
                row["subnet"]
                    .as_str()
                    .is_some_and(|s| s.starts_with(subnet))
                    && row["public_ip"] == ip
            })
        };
        let name = heir.name();
        let heirs = name.trim_end_matches("-24");
        ensure!(rows.len() == 2 && has(heirs, "192.168.1.99") && has(&subnet, "192.168.1.11"));
        Ok(())
    })?;
    assert_eq!(
        pair.etcd.get(&former)?,
        Some(heir.value()),
        "nobody's lease was overwritten"
    );
    Ok(())
}

/// The subnet that was ours is now a peer's: in the kernel, next to our own new one, and for
/// readers of subnet.env.
fn expect_heir_and_own(pair: &TwoNodes, subnet: &str) -> Result<()> {
    eventually("the heir's route and our address", LIMIT, || {
        let state = TunnelState::of(&pair.a)?;
        ensure!(
            state
                .matching(&["fdb", "02:00:00:00:00:99", "192.168.1.99"])
                .len()
                == 1,
            "{state:?}"
        );
        let address = format!("\"{subnet}\"");
        ensure!(state.matching(&["address"]).len() == 1, "{state:?}");
        ensure!(
            state.matching(&["address", &address]).len() == 1,
            "{state:?}"
        );
        Ok(())
    })?;
    let env = std::fs::read_to_string(pair.a.outside_path("/run/flannel/subnet.env"))?;
    assert!(
        env.contains(&format!(
            "FLANNEL_SUBNET={}1/24",
            subnet.trim_end_matches('0')
        )),
        "{env}"
    );
    Ok(())
}

#[test]
fn a_frozen_agent_whose_subnet_was_taken_takes_another() -> Result<()> {
    somebody_else_takes_the_subnet_of_one_that_is(Out::Frozen)
}

#[test]
fn a_dead_agent_whose_subnet_was_taken_takes_another() -> Result<()> {
    somebody_else_takes_the_subnet_of_one_that_is(Out::Dead)
}
