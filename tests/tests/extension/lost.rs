//! Packets that what the commands made does not carry, and the agent's answers.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Pair, cluster::topology::Stack};
use serde_json::{Value, json};

use super::{added, script, vxlan};

const ECHO: &str = "--peer-echo-interval=1";
/// Requests, one a second, during which the agent looks at the routes twice.
const LOOKS: u64 = 12;

/// The echo of the only peer.
fn echo(status: &Value) -> Result<(&str, &str)> {
    let echo = &status["peers"][0]["echo"];
    Ok((
        echo["address"].as_str().context("an address")?,
        echo["state"].as_str().context("a state")?,
    ))
}

fn codes(status: &Value) -> Result<Vec<&str>> {
    let problems = status["problems"].as_array().context("problems")?;
    Ok(problems
        .iter()
        .filter_map(|problem| problem["code"].as_str())
        .collect())
}

/// The status after some requests to the only peer.
fn after_looks(agent: &Agent) -> Result<Value> {
    agent.wait_status("requests", |status| {
        let sent = &status["peers"][0]["echo"]["of"];
        ensure!(sent.as_u64().is_some_and(|sent| sent >= LOOKS), "{sent}");
        Ok(())
    })
}

/// The gateway in the subnet of the peer.
fn gateway(agent: &Agent) -> Result<String> {
    let subnet = agent.status()?["peers"][0]["subnet"]
        .as_str()
        .context("a peer")?
        .to_owned();
    Ok(subnet.replace(".0/24", ".1"))
}

/// Commands that make routes in table 100, to which a rule sends packets of pods.
fn by_rule() -> Value {
    json!({
        "Type": "extension",
        "PostStartupCommand": script(
            "ip rule show | grep -q 'lookup 100' || ip rule add pref 90 from $NETWORK to $NETWORK \
             lookup 100"
        ),
        "SubnetAddCommand": script("ip route replace $SUBNET via $PUBLIC_IP table 100"),
        "SubnetRemoveCommand": script("ip route delete $SUBNET table 100"),
    })
}

#[test]
fn routes_of_another_table_are_followed_and_the_default_route_without_them_is_a_problem()
-> Result<()> {
    let flags = ["--datapath=kernel", ECHO];
    let pair = Pair::of_backend("ext-rule", Stack::V4, &by_rule().to_string(), &flags)?;
    let gateway = gateway(&pair.sender)?;
    let answers = |status: &Value| {
        ensure!(
            echo(status)? == (&gateway, "answering"),
            "{}",
            status["peers"]
        );
        ensure!(codes(status)?.is_empty(), "{}", status["problems"]);
        Ok(())
    };
    pair.sender
        .wait_status("an answer of the peer's pods", answers)?;
    answers(&after_looks(&pair.sender)?)?;
    pair.sender.node().sh("ip rule del pref 90")?;
    pair.sender
        .wait_status("a silent peer without a route", |status| {
            ensure!(
                codes(status)? == ["unrouted_peer", "silent_peer"],
                "{}",
                status["problems"]
            );
            ensure!(echo(status)? == (&gateway, "silent"), "{}", status["peers"]);
            let problem = &status["problems"][0];
            ensure!(problem["certainty"] == "likely", "{problem}");
            let text = problem["text"].as_str().unwrap_or_default();
            ensure!(
                text.contains("follow the default route by eth0 via 192.168.1.1, "),
                "{text}"
            );
            Ok(())
        })?;
    pair.sender
        .node()
        .sh("ip rule add pref 90 from 10.244.0.0/16 to 10.244.0.0/16 lookup 100")?;
    pair.sender.wait_status("an answer again", answers)?;
    Ok(())
}

/// As a stock node without pods, or one whose CNI plugin gives no gateway to the host.
#[test]
fn a_peer_whose_subnet_never_answered_leaves_the_verdict_open() -> Result<()> {
    let pair = Pair::of_backend(
        "ext-never",
        Stack::V4,
        &vxlan().to_string(),
        &["--datapath=kernel", ECHO],
    )?;
    let Pair {
        sender,
        receiver,
        near,
        far,
        ..
    } = &pair;
    let gateway = gateway(sender)?;
    receiver
        .node()
        .sh(&format!("ip addr del {gateway}/24 dev cni0"))?;
    sender.kill9()?;
    sender.restart()?;
    sender.wait_ready()?;
    added(sender, 1)?;
    let status = after_looks(sender)?;
    let node = status["peers"][0]["public_ip"]
        .as_str()
        .context("an address")?;
    ensure!(
        codes(&status)?.is_empty() && echo(&status)? == (node, "answering"),
        "{status}"
    );
    let ends = [near.ip().to_string(), far.ip().to_string()];
    let said = sender.cli_any(&["explain", "--proto=icmp", &ends[0], &ends[1]])?;
    ensure!(
        said.code == 2 && said.stdout.contains("no address in "),
        "{said:?}"
    );
    Ok(())
}
