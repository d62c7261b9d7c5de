//! Flows are learned and replayed.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod, eventually,
    fast::{Family, FastLab, fast_pair},
    load::rr::{Protocol, rr},
};
use serde_json::Value;

const LENGTH: Duration = Duration::from_secs(3);

/// Packets replayed, and packets of known flows that waited for the agent's confirmation: a tenth
/// of a second for each flow, and more on a loaded machine.
fn counts(agent: &Agent) -> Result<[u64; 2]> {
    let unconfirmed = agent.counted("from_pod", "unconfirmed")?
        + agent.counted("from_underlay", "unconfirmed")?;
    Ok([agent.replayed()?, unconfirmed])
}

/// Requests and answers between pods: nearly all packets of confirmed flows are replayed on both
/// nodes, and most flows are confirmed.
fn replayed(
    agents: [&Agent; 2],
    [near, far]: [&Pod; 2],
    at: IpAddr,
    protocols: &[Protocol],
) -> Result<()> {
    for protocol in protocols.iter().copied() {
        let before = [counts(agents[0])?, counts(agents[1])?];
        let report = rr(near, far, at, protocol, LENGTH)?;
        ensure!(report.lost == 0, "{report:?}");
        for (agent, before) in agents.into_iter().zip(before) {
            let after = counts(agent)?;
            let [replayed, unconfirmed] = [after[0] - before[0], after[1] - before[1]];
            let packets = report.transactions * 2;
            let stats = || agent.cli(&["maps", "dump", "stats"]);
            let is_replayed = replayed * 100 >= packets.saturating_sub(unconfirmed) * 95
                && replayed * 2 >= packets;
            ensure!(
                is_replayed,
                "{protocol:?}: {replayed} of {packets}, {unconfirmed} unconfirmed:\n{}",
                stats()?.stdout
            );
        }
    }
    Ok(())
}

#[test]
fn after_the_first_packets_flows_are_replayed_both_ways() -> Result<()> {
    let pair = fast_pair("fa-flows", &[])?;
    replayed(
        [&pair.sender, &pair.receiver],
        [&pair.near, &pair.far],
        pair.far.ip(),
        &[Protocol::Tcp, Protocol::Udp],
    )
}

/// Flows to a pod, over both families.
fn both_families_are_replayed(agents: [&Agent; 2], near: &Pod, far: &Pod) -> Result<()> {
    Family::ALL.into_iter().try_for_each(|family| {
        replayed(
            agents,
            [near, far],
            family.of(far)?,
            &[Protocol::Tcp, Protocol::Udp],
        )
    })
}

/// Between nodes, and between pods of one node.
#[test]
fn flows_of_both_families_are_replayed() -> Result<()> {
    let lab = FastLab::new("fa-dual", &[])?;
    both_families_are_replayed(lab.agents.each_ref(), &lab.near, &lab.far)?;
    both_families_are_replayed([&lab.agents[0]; 2], &lab.near, &lab.beside)
}

/// Peers on our own link, which a plain route leads to.
#[test]
fn flows_to_direct_peers_are_replayed() -> Result<()> {
    let lab = FastLab::of("fa-direct", r#"{"Type":"vxlan","DirectRouting":true}"#, &[])?;
    both_families_are_replayed(lab.agents.each_ref(), &lab.near, &lab.far)?;
    for agent in &lab.agents {
        ensure!(
            agent.counted("from_underlay", "tunnel_good")? == 0,
            "not by a plain route"
        );
    }
    Ok(())
}

/// Learned flows and their pods are shown from the pinned maps.
#[test]
fn flows_and_pods_are_shown_with_and_without_an_agent() -> Result<()> {
    let pair = fast_pair("fa-shown", &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    let [client, server] = talk.ends()?.map(|end| end.to_string());
    // A flow learned without an agent is not used: both ways are known and confirmed before the
    // agent ends.
    eventually("both ways are usable", Duration::from_secs(10), || {
        talk.exchange(100)?;
        let dump = pair
            .sender
            .cli_json(&["maps", "dump", "flows", "--proto", "tcp", "-o", "json"])?;
        let rows = dump["flows"].as_array().context("no flows")?;
        let usable = rows
            .iter()
            .filter(|row| row["state"] == "usable" && row["packets"] != 0)
            .count();
        ensure!(usable == 2, "{dump}");
        Ok(())
    })?;
    pair.sender.kill9()?;
    talk.exchange(10)?;
    let dump = pair
        .sender
        .cli_json(&["maps", "dump", "flows", "-o", "json"])?;
    let rows = dump["flows"].as_array().context("no flows")?;
    for (from, to, way) in [(&client, &server, "tunnel"), (&server, &client, "pod")] {
        let row = rows
            .iter()
            .find(|row| row["source"] == *from && row["destination"] == *to);
        let row = row.with_context(|| format!("{from} to {to}: {dump}"))?;
        ensure!(row["way"] == way && row["protocol"] == "tcp", "{row}");
        is_usable_or_expired(row)?;
    }
    chosen_and_judged(&pair, &client, &server)?;
    let text = pair.sender.cli(&["maps", "dump", "pods"])?.stdout;
    ensure!(
        text.contains(pair.near.veth()) && text.contains("both"),
        "{text}"
    );
    Ok(())
}

/// Each way expires two seconds after the kernel saw a packet of it, so one that was usable may
/// have expired by the time the command reads it.
fn is_usable_or_expired(row: &Value) -> Result<()> {
    let expires = row["expires_in_ms"]
        .as_i64()
        .with_context(|| row.to_string())?;
    let back = row["mirror_expires_in_ms"]
        .as_i64()
        .with_context(|| row.to_string())?;
    let is_right = match row["why"].as_str() {
        None => row["state"] == "usable" && (1..4_000).contains(&expires) && back > 0,
        Some(why) if why.starts_with("what was seen of it expired ") => expires <= 0,
        Some(why) => back <= 0 && why.starts_with("what was seen of its way back expired "),
    };
    ensure!(is_right && row["age_ms"].is_i64(), "{row}");
    Ok(())
}

/// The flow from the client and the one to it, and what becomes of them when the node leaves mode
/// `fast`.
fn chosen_and_judged(pair: &flannel_tests::Pair, client: &str, server: &str) -> Result<()> {
    let near = pair.near.ip().to_string();
    let chosen = |end: &str, source: &str| -> Result<_> {
        let args = [
            "maps", "dump", "flows", end, &near, "--proto", "tcp", "-o", "json",
        ];
        let dump = pair.sender.cli_json(&args)?;
        let rows = dump["flows"].as_array().context("no flows")?.clone();
        ensure!(
            !rows.is_empty() && rows.iter().all(|row| row["protocol"] == "tcp"),
            "{dump}"
        );
        rows.into_iter()
            .find(|row| row["source"] == source)
            .with_context(|| dump.to_string())
    };
    is_usable_or_expired(&chosen("--src", client)?)?;
    pair.sender.cli(&["datapath", "set", "encap"])?;
    let row = chosen("--src", client)?;
    ensure!(
        row["state"] == "mode_kernel" && row["why"] == "mode encap is in force",
        "{row}"
    );
    pair.sender.cli(&["flows", "flush"])?;
    pair.sender.cli(&["datapath", "set", "fast"])?;
    // The server sent the last message. The client may acknowledge it only now, which refreshes the
    // client's flow, so the server's is checked.
    let row = chosen("--dst", server)?;
    let why = row["why"].as_str().unwrap_or_default();
    ensure!(
        row["state"] == "refreshing" && why.starts_with("learned under generation "),
        "{row}"
    );
    Ok(())
}
