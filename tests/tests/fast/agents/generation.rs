//! Learned flows end when the state they were learned under changes.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use flannel_tests::{Agent, Node, Pair, eventually, fast::fast_pair, no_agent::Talk};

/// Exchanges messages until none comes through any more.
fn wait_cut(talk: &mut Talk, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if talk.exchange(20).is_err() {
            return Ok(start.elapsed());
        }
    }
    bail!("messages still come through after {limit:?}")
}

fn cut_by(name: &str, rule: impl FnOnce(&Node, IpAddr) -> Result<()>) -> Result<()> {
    let pair = fast_pair(name, &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    rule(pair.sender.node(), pair.far.ip())?;
    // The refresh interval is two seconds and a quarter at most; the rest is for a busy machine and
    // the client's own timeout.
    let after = wait_cut(&mut talk, Duration::from_secs(8))?;
    println!("cut after {after:?}");
    Ok(())
}

#[test]
fn a_new_rule_of_nftables_cuts_an_established_flow() -> Result<()> {
    cut_by("fa-nft", |node, destination| {
        let rule = format!("ip daddr {destination} drop");
        let chain = "type filter hook forward priority 0;";
        let script = format!("table ip other {{\n chain f {{\n {chain}\n {rule}\n }}\n }}\n");
        node.nft(&script)
    })
}

#[test]
fn a_new_rule_of_legacy_iptables_cuts_an_established_flow_at_its_refresh() -> Result<()> {
    cut_by("fa-legacy", |node, destination| {
        node.sh(&format!(
            "iptables-legacy -I FORWARD -d {destination} -j DROP"
        ))
        .map(drop)
    })
}

/// Checks that an action begins a new generation within 8 s.
fn begins(agent: &Agent, what: &str, action: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = agent.generation()?;
    action()?;
    eventually(
        &format!("a new generation after {what}"),
        Duration::from_secs(8),
        || {
            let now = agent.generation()?;
            ensure!(now > before, "still {now}");
            Ok(())
        },
    )
}

/// Waits until no generation has begun for three seconds.
fn wait_quiet(pair: &Pair) -> Result<()> {
    pair.wait_dad()?;
    let mut last = (0, Instant::now());
    eventually("a quiet node", Duration::from_secs(15), || {
        let now = pair.sender.generation()?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        ensure!(
            last.1.elapsed() > Duration::from_secs(3),
            "generation {now}"
        );
        Ok(())
    })
}

#[test]
fn what_flows_depend_on_begins_a_new_generation() -> Result<()> {
    let pair = fast_pair("fa-gen", &[])?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    let second = node.add_pod("p2")?;
    agent.wait_pod(&second, true, true)?;
    for command in [
        "nft add table ip other",
        "ip link set vethp2 mtu 1300",
        "ip link set cni0 mtu 1400",
        "ip link set vethp2 down",
        "ip link set vethp2 up",
        "ip link set cni0 address 02:00:00:00:00:77",
        "tc qdisc add dev vethp2 root tbf rate 1gbit burst 1m latency 10ms",
    ] {
        wait_quiet(&pair)?;
        begins(agent, command, || node.sh(command).map(drop))?;
    }
    wait_quiet(&pair)?;
    begins(agent, "flows flush", || {
        agent.cli(&["flows", "flush"]).map(drop)
    })?;
    wait_quiet(&pair)?;
    begins(agent, "a pod that went", || second.remove())
}

/// Flushed: the next packets of the flow take the kernel's path, and then it is replayed again.
#[test]
fn a_flush_lets_the_kernel_see_every_flow_once_more() -> Result<()> {
    let pair = fast_pair("fa-flush", &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let refreshed = pair.sender.counted("from_pod", "refreshing")?;
    pair.sender.cli(&["flows", "flush"])?;
    talk.exchange(10)?;
    assert!(pair.sender.counted("from_pod", "refreshing")? > refreshed);
    pair.talk_until_replayed(&mut talk, 500)
}
