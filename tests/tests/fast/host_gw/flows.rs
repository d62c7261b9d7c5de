//! Flows are learned and replayed, shown, cut, and end with their peer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod,
    cluster::{HOST_GW, LEASES},
    eventually,
    fast::{Conversation, Family, FastLab},
};
use serde_json::Value;

use super::{FOLLOWED, on_external};
use crate::fast::talks::talks;

/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(5);

/// One of either family, not translated.
fn two(mut talks: Vec<(Family, Conversation)>) -> Vec<(Family, Conversation)> {
    let mut left = Family::ALL.to_vec();
    talks.retain(|(family, _)| {
        let at = left.iter().position(|other| other == family);
        at.map(|at| left.remove(at)).is_some()
    });
    talks
}

#[test]
fn flows_are_replayed_both_ways_shown_and_cut_and_end_with_their_peer() -> Result<()> {
    let lab = FastLab::of("gw-flows", HOST_GW, &[])?;
    let talks = talks(&lab)?;
    shown(&lab)?;
    let mut talks = two(talks);
    cut_by_a_rule(&lab, &mut talks)?;
    end_with_their_peer(&lab, &mut talks)
}

/// Checks the output of subcommands on a node that has no tunnel.
fn shown(lab: &FastLab) -> Result<()> {
    let agent = &lab.agents[0];
    let status = agent.status()?;
    ensure!(
        status["mode"]["effective"] == "fast" && status["mode"]["reason"].is_null(),
        "{status}"
    );
    ensure!(
        status["devices"] == serde_json::json!([]) && status["guard"].is_null(),
        "{status}"
    );
    assert_eq!(on_external(agent)?, FOLLOWED);
    for address in ["192.168.1.12", "2001:db8:1::12"] {
        let (peer, entry) = (agent.peer_status(address)?, agent.peer_entry(address)?);
        ensure!(peer["way"] == "direct" && peer["vtep_mac"] == "-", "{peer}");
        ensure!(
            entry["flags"] == serde_json::json!(["direct"]) && entry["next_hop"] == address,
            "{entry}"
        );
        ensure!(entry["vtep_mac"] == "-", "{entry}");
    }
    let table = agent.cli(&["maps", "dump", "config"])?.stdout;
    ensure!(
        table.contains("tunnel              none") && !table.contains("vni"),
        "{table}"
    );
    let guard = agent.cli(&["guard", "show"])?.stdout;
    ensure!(guard.contains("the backend has no tunnel"), "{guard}");
    agree(agent, "leases, maps and kernel")?;
    checked(agent)?;
    explained(agent, &lab.near, &lab.far)
}

/// Checks that `check` reports no capability that only tunnel packets need.
fn checked(agent: &Agent) -> Result<()> {
    let report = agent.cli_any(&["check", "-o", "json"])?.stdout;
    let of_a_tunnel = ["UDP port", "tunnel packets", "tx-udp_tnl"]
        .iter()
        .find(|text| report.contains(**text));
    ensure!(
        report.contains("firewall") || report.contains("rules"),
        "the firewall was not looked at: {report}"
    );
    ensure!(of_a_tunnel.is_none(), "{of_a_tunnel:?}: {report}");
    Ok(())
}

fn agree(agent: &Agent, who: &str) -> Result<()> {
    let text = agent.cli(&["maps", "dump", "--diff"])?.stdout;
    ensure!(text == format!("{who} agree about 2 peers\n"), "{text}");
    Ok(())
}

/// The way there and back of a packet of no known flow.
fn explained(agent: &Agent, near: &Pod, far: &Pod) -> Result<()> {
    for family in Family::ALL {
        let ends = [family.of(near)?.to_string(), family.of(far)?.to_string()];
        for [source, destination] in [[&ends[0], &ends[1]], [&ends[1], &ends[0]]] {
            let args = [
                "explain",
                source,
                destination,
                "--proto=udp",
                "--sport=9",
                "--dport=9",
                "-o",
                "json",
            ];
            let story = agent.cli_json(&args)?;
            ensure!(
                story["verdict"]["reaches"] == true && story["verdict"]["way"] == "direct",
                "{story:#}"
            );
            let topics = story["steps"]
                .as_array()
                .context("no steps")?
                .iter()
                .map(|step| step["topic"].clone());
            let of_a_tunnel = |topic: &Value| {
                ["device", "neighbour", "fdb", "path", "guard"]
                    .iter()
                    .any(|of| topic == of)
            };
            ensure!(
                !topics.clone().any(|topic| of_a_tunnel(&topic)),
                "{story:#}"
            );
        }
    }
    Ok(())
}

/// Legacy iptables sends no event for its rules: flows meet them when they are refreshed.
fn cut_by_a_rule(lab: &FastLab, talks: &mut [(Family, Conversation)]) -> Result<()> {
    for (family, talk) in talks {
        let rule = |verb: &str| -> Result<String> {
            Ok(format!(
                "{} -{verb} FORWARD -d {} -j DROP",
                family.iptables(),
                family.of(&lab.far)?
            ))
        };
        lab.nodes.a.sh(&rule("I")?)?;
        eventually("a flow that is cut", INTERVAL, || {
            ensure!(talk.exchange(20).is_err(), "{talk:?} still comes through");
            Ok(())
        })?;
        lab.nodes.a.sh(&rule("D")?)?;
        eventually("a flow that goes on", Duration::from_secs(15), || {
            talk.exchange(1)
        })?;
        lab.until_replayed(|messages| talk.exchange(messages))?;
    }
    Ok(())
}

/// A node that leaves is forgotten: no entry, no route, and nothing more is replayed to it.
fn end_with_their_peer(lab: &FastLab, talks: &mut [(Family, Conversation)]) -> Result<()> {
    let [agent, other] = &lab.agents;
    other.kill9()?;
    agree(other, "maps and kernel (no agent answers for the leases)")?;
    let status = other.status()?;
    ensure!(
        status["guard"].is_null() && status["peers"][0]["vtep_mac"] == "-",
        "{status}"
    );
    let keys = lab.nodes.etcd.list(LEASES)?;
    let own = other.node().subnet_env()?.subnets[0]
        .trunc()
        .to_string()
        .replace('/', "-");
    let key = keys
        .iter()
        .map(|(key, _)| key)
        .find(|key| key.contains(&own))
        .context("the lease of the other node")?;
    lab.nodes.etcd.delete(key)?;
    agent.wait_peers(0)?;
    eventually("nothing of the peer", Duration::from_secs(5), || {
        let dump = agent.cli_json(&["maps", "dump", "peers", "-o", "json"])?;
        ensure!(dump["peers"] == serde_json::json!([]), "{dump}");
        let routes = ["ip route", "ip -6 route"]
            .map(|line| lab.nodes.a.sh(&format!("{line} show proto 191")));
        for output in routes {
            let text = output?.stdout;
            ensure!(!text.contains("via"), "{text}");
        }
        Ok(())
    })?;
    let before = agent.counted("from_pod", "replayed")?;
    for (_, talk) in talks {
        ensure!(talk.exchange(20).is_err(), "{talk:?} still comes through");
    }
    ensure!(
        agent.counted("from_pod", "replayed")? == before,
        "replayed to a node that left"
    );
    Ok(())
}
