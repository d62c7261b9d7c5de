//! The documents of `-o json`, as commands print them, validated with their schemas: with an agent,
//! without one, on a node without eBPF and with each backend. Documents of `connectivity` and of a
//! whole cluster are validated where these commands are tested.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Confinement, Lab, Pair, TwoNodes, agent_binary,
    cluster::{self, HOST_GW, LEASES, VXLAN, topology::Stack},
    fast::fast_pair_of,
};
use serde_json::{Value, json};

use super::schemas::validate;

/// The document that a command prints, with its status.
fn document(agent: &Agent, schema: &str, words: &[&str]) -> Result<(i32, Value)> {
    let output = agent.cli_any(&[words, &["-o", "json"]].concat())?;
    let document =
        serde_json::from_str(&output.stdout).with_context(|| format!("{words:?}: {output:?}"))?;
    validate(schema, &document).with_context(|| format!("{words:?}"))?;
    Ok((output.code, document))
}

/// The documents about this node, and the answer of the agent's socket if one runs. Commands that
/// look into maps have none without eBPF.
fn of_node(agent: &Agent, has_maps: bool) -> Result<()> {
    validate("status", &agent.status()?)?;
    let (_, status) = document(agent, "status", &["status"])?;
    document(agent, "check", &["check"])?;
    document(agent, "datapath-show", &["datapath", "show"])?;
    document(agent, "maps-dump-diff", &["maps", "dump", "--diff"])?;
    if status["guard"].is_object() {
        document(agent, "guard-show", &["guard", "show"])?;
    }
    if !has_maps {
        return Ok(());
    }
    for map in ["peers", "stats", "config", "pods", "flows", "all"] {
        let (_, dump) = document(agent, "maps-dump", &["maps", "dump", map])?;
        let keys: Vec<_> = dump
            .as_object()
            .into_iter()
            .flat_map(|members| members.keys().skip(1))
            .collect();
        let all = ["config", "peers", "stats", "pods"];
        ensure!(
            if map == "all" {
                keys == all
            } else {
                keys == [map]
            },
            "{map}: {keys:?}"
        );
    }
    Ok(())
}

/// The story of a packet to each of these addresses.
fn explained(agent: &Agent, from: &str, to: &[&str]) -> Result<()> {
    for to in to {
        for protocol in ["tcp", "udp", "icmp"] {
            document(
                agent,
                "explain",
                &["explain", from, to, "--proto", protocol],
            )?;
        }
    }
    Ok(())
}

/// Packets of a ping, as a monitor on the node of the sender shows them.
fn monitored(pair: &Pair) -> Result<()> {
    let monitor = pair.sender.monitor(&["-o", "json", "--count=8"])?;
    pair.near.ping(pair.far.ip())?;
    pair.near.ping(pair.far.ip6().context("IPv6")?)?;
    monitor.wait()?;
    let packets = monitor.packets()?;
    ensure!(packets.len() == 8, "{packets:#?}");
    packets
        .iter()
        .try_for_each(|packet| validate("monitor", packet))
}

/// A packet from a machine that is not a peer.
fn strange_packet(pair: &Pair) -> Result<()> {
    // VXLAN flags, VNI 1, and a frame that is too short: what counts is the sender.
    let bytes = r"\x08\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00";
    let to = pair.sender.status()?["lease"]["public_ip"]
        .as_str()
        .context("an address")?
        .to_owned();
    pair.net
        .b
        .run([
            "bash",
            "-c",
            &format!("printf '{bytes}' > /dev/udp/{to}/8472"),
        ])
        .map(drop)
}

#[test]
fn documents_are_as_their_schemas_say() -> Result<()> {
    let pair = fast_pair_of("json", Stack::Dual, &["--peer-echo-interval=10"])?;
    let agent = &pair.sender;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    strange_packet(&pair)?;
    of_node(agent, true)?;
    let [near, far] = [&pair.near, &pair.far].map(|pod| pod.ip().to_string());
    explained(
        agent,
        &near,
        &[&far, "10.244.200.9", "192.0.2.1", "127.0.0.1"],
    )?;
    explained(agent, &far, &[&near])?;
    monitored(&pair)?;
    let (_, top) = document(agent, "top", &["top", "--once", "--interval=1s"])?;
    ensure!(top["ready"] == true && top["codes"] == json!([]), "{top:#}");

    let subnet = agent.status()?["peers"][0]["subnet"]
        .as_str()
        .context("a peer")?
        .to_owned();
    agent.cli(&["datapath", "set", "encap"])?;
    agent.kill9()?;
    agent.node().sh(&format!("ip route del {subnet}"))?;
    of_node(agent, true)?;
    let (code, diff) = document(agent, "maps-dump-diff", &["maps", "dump", "--diff"])?;
    ensure!(
        code == 1 && diff["differences"][0]["place"] == "route",
        "{diff:#}"
    );
    let (_, top) = document(agent, "top", &["top", "--once", "--interval=1s"])?;
    ensure!(top["ready"].is_null(), "{top:#}");
    explained(agent, &near, &[&far])
}

#[test]
fn leases_are_as_their_schemas_say() -> Result<()> {
    let pair = Pair::new("json-leases")?;
    let endpoint = format!("--etcd-endpoints={}", pair.endpoint());
    let (code, list) = document(&pair.sender, "lease-list", &["lease", "list", &endpoint])?;
    ensure!(
        code == 0 && list["leases"].as_array().map(Vec::len) == Some(2),
        "{list:#}"
    );
    let name = list["leases"][0]["name"].as_str().context("a lease")?;
    document(
        &pair.sender,
        "lease-show",
        &["lease", "show", name, &endpoint],
    )?;
    // Another node with the address of the first, and an entry that is not a lease.
    pair.etcd.put(
        &format!("{LEASES}10.244.200.0-24"),
        list["leases"][0]["value"].as_str().context("a value")?,
        None,
    )?;
    pair.etcd.put(&format!("{LEASES}nonsense"), "{}", None)?;
    let (code, list) = document(&pair.sender, "lease-list", &["lease", "list", &endpoint])?;
    ensure!(
        code == 1 && list["problems"][0]["code"] == "same_address",
        "{list:#}"
    );
    document(
        &pair.sender,
        "lease-show",
        &["lease", "show", "nonsense", &endpoint],
    )?;
    of_node(&pair.receiver, true)
}

/// The parts of the status that only some backends have.
#[test]
fn documents_of_each_backend_are_as_their_schemas_say() -> Result<()> {
    for (name, backend, part) in [
        ("json-gw", HOST_GW, "mode"),
        ("json-wg", r#"{"Type":"wireguard"}"#, "device"),
        ("json-udp", r#"{"Type":"udp"}"#, "udp"),
        (
            "json-ext",
            r#"{"Type":"extension","SubnetAddCommand":["sh","-c","exit 3"]}"#,
            "extension",
        ),
    ] {
        let nodes = TwoNodes::new(name, &cluster::config(Stack::V4, backend))?;
        let [agent, _other] = nodes.agents()?;
        let status = agent.status()?;
        ensure!(status[part].is_object(), "{backend}: {status:#}");
        of_node(&agent, true).context(backend)?;
        let [own, peer] = [&status["lease"]["subnet"], &status["peers"][0]["subnet"]];
        let pod = |subnet: &Value| subnet.as_str().unwrap_or_default().replace(".0/24", ".2");
        explained(&agent, &pod(own), &[&pod(peer)]).context(backend)?;
    }
    Ok(())
}

#[test]
fn documents_without_ebpf_are_as_their_schemas_say() -> Result<()> {
    let nodes = TwoNodes::new("json-bare", VXLAN)?;
    let unable = Confinement::of_the_manifest()?
        .without("bpf")
        .without("perfmon");
    let agent = nodes.a.ready_agent(nodes.options()?.confined_by(unable))?;
    let _other = nodes.b.ready_agent(nodes.options()?)?;
    agent.wait_peers(1)?;
    of_node(&agent, false)?;
    explained(&agent, "10.244.1.2", &["10.244.2.2"])
}

#[test]
fn documents_of_a_node_that_never_had_an_agent_are_as_their_schemas_say() -> Result<()> {
    let lab = Lab::new("json-never")?;
    let (node, binary) = (lab.node("n")?, agent_binary()?.display().to_string());
    for (schema, words) in [
        ("status", &["status"][..]),
        ("check", &["check"]),
        ("explain", &["explain", "10.244.1.2", "10.244.2.2"]),
    ] {
        let argv = [&[binary.as_str()], words, &["-o", "json"]].concat();
        let output = node
            .command(argv)
            .any_code()
            .limit(Duration::from_mins(1))
            .run()?;
        let document = serde_json::from_str(&output.stdout)
            .with_context(|| format!("{words:?}: {output:?}"))?;
        validate(schema, &document).with_context(|| format!("{words:?}"))?;
    }
    Ok(())
}
