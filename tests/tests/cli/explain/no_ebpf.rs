//! `explain` and `maps dump --diff` on nodes whose pins they do not find: the agent's status
//! serves, and without it the verdict is open.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Pod, TwoNodes, cluster::VXLAN, confined::Confinement, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Two nodes, the first without eBPF.
struct Nodes {
    near: Pod,
    far: Pod,
    agent: Agent,
    _other: Agent,
    pair: TwoNodes,
}

impl Nodes {
    fn new(name: &str) -> Result<Self> {
        let pair = TwoNodes::new(name, VXLAN)?;
        let unable = Confinement::of_the_manifest()?
            .without("bpf")
            .without("perfmon");
        let agent = pair.a.ready_agent(pair.options()?.confined_by(unable))?;
        let other = pair.b.ready_agent(pair.options()?)?;
        let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
        near.wait_ping(far.ip())?;
        Ok(Self {
            near,
            far,
            agent,
            _other: other,
            pair,
        })
    }

    fn explain(&self) -> Result<(i32, Value)> {
        explain(&self.agent, self.near.ip(), self.far.ip(), &[])
    }
}

fn explain(
    agent: &Agent,
    source: IpAddr,
    destination: IpAddr,
    more: &[&str],
) -> Result<(i32, Value)> {
    let (source, destination) = (source.to_string(), destination.to_string());
    let words = [&["explain", "-o", "json", &source, &destination], more].concat();
    let output = agent.cli_any(&words)?;
    let story = serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output.code, story))
}

/// The state of the first step with this topic.
fn state<'a>(story: &'a Value, topic: &str) -> &'a str {
    let steps = story["steps"].as_array().into_iter().flatten();
    steps
        .filter(|step| step["topic"] == topic)
        .find_map(|step| step["state"].as_str())
        .unwrap_or("absent")
}

/// The topics of a story without eBPF.
const TOPICS: [&str; 8] = [
    "destination",
    "mode",
    "route",
    "device",
    "neighbour",
    "fdb",
    "underlay",
    "size",
];

#[test]
fn a_node_without_ebpf_is_explained_by_its_status_and_its_kernel() -> Result<()> {
    let nodes = Nodes::new("no-ebpf")?;
    let (code, story) = nodes.explain()?;
    ensure!(
        code == 0 && story["verdict"]["reaches"] == true && story["verdict"]["way"] == "kernel",
        "{story:#}"
    );
    for topic in TOPICS {
        ensure!(state(&story, topic) == "ok", "{topic}: {story:#}");
    }
    let same = nodes
        .agent
        .cli_json(&["maps", "dump", "--diff", "-o", "json"])?;
    ensure!(
        same["maps"] == false && same["leases"] == true && same["peers"] == 1,
        "{same}"
    );
    let (code, story) = explain(&nodes.agent, nodes.near.ip(), "10.244.250.1".parse()?, &[])?;
    ensure!(
        code == 1 && state(&story, "destination") == "fail",
        "a subnet without a lease: {story:#}"
    );
    let (code, story) = explain(&nodes.agent, nodes.near.ip(), "192.168.1.12".parse()?, &[])?;
    ensure!(
        code == 0 && state(&story, "destination") == "ok",
        "the host network: {story:#}"
    );

    // A stopped agent repairs nothing, and does not answer.
    nodes.agent.child().signal(Signal::SIGSTOP)?;
    let (code, story) = nodes.explain()?;
    ensure!(
        code == 2 && story["verdict"]["reaches"].is_null(),
        "{story:#}"
    );
    ensure!(
        state(&story, "destination") == "unknown" && state(&story, "fdb") == "ok",
        "{story:#}"
    );
    let fdb = nodes.pair.a.sh("bridge fdb show dev flannel.1")?.stdout;
    let entry = fdb
        .lines()
        .find(|line| line.contains("dst 192.168.1.12"))
        .context(fdb.clone())?;
    let mac = entry.split(' ').next().context("a MAC")?;
    nodes.pair.a.sh(&format!(
        "bridge fdb del {mac} dev flannel.1 dst 192.168.1.12"
    ))?;
    let (code, story) = nodes.explain()?;
    ensure!(
        code == 1 && story["verdict"]["reaches"] == false && state(&story, "fdb") == "fail",
        "{story:#}"
    );
    nodes.agent.child().signal(Signal::SIGCONT)?;
    nodes.near.wait_ping(nodes.far.ip())
}

#[test]
fn a_forgotten_pin_root_is_taken_from_the_status() -> Result<()> {
    let pair = TwoNodes::new("pin-root", VXLAN)?;
    let agents = [
        pair.a.ready_agent(pair.options()?)?,
        pair.b.ready_agent(pair.options()?)?,
    ];
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    let (code, story) = explain(
        &agents[0],
        near.ip(),
        far.ip(),
        &["--bpf-pin-root=/sys/fs/bpf/nope"],
    )?;
    ensure!(
        code == 0
            && story["programs"]
                .as_array()
                .is_some_and(|tried| !tried.is_empty()),
        "{story:#}"
    );
    for words in [
        &["maps", "dump", "--diff"][..],
        &["maps", "dump", "peers"],
        &["datapath", "show"],
        &["datapath", "set", "kernel"],
        &["guard", "show"],
        &["flows", "flush"],
        &["top", "--once"],
    ] {
        agents[0].cli(&[words, &["--bpf-pin-root=/sys/fs/bpf/nope"]].concat())?;
    }
    ensure!(
        agents[0]
            .cli(&["datapath", "show"])?
            .stdout
            .starts_with("kernel"),
        "set where the agent has its pins"
    );
    agents[0].sigterm_and_wait()?;
    let (code, story) = explain(
        &agents[0],
        near.ip(),
        far.ip(),
        &["--bpf-pin-root=/sys/fs/bpf/nope"],
    )?;
    ensure!(
        code == 2 && story["verdict"]["reaches"].is_null(),
        "{story:#}"
    );
    Ok(())
}

#[test]
fn a_peer_that_falls_silent_is_not_reached() -> Result<()> {
    let pair = TwoNodes::new("silent", VXLAN)?;
    let options = || anyhow::Ok(pair.options()?.flag("--peer-echo-interval=1"));
    let agents = [
        pair.a.ready_agent(options()?)?,
        pair.b.ready_agent(options()?)?,
    ];
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    let verdict = |reaches: Value, echo: &str| {
        eventually(&format!("echo {echo}"), Duration::from_secs(30), || {
            let (code, story) = explain(&agents[0], near.ip(), far.ip(), &[])?;
            ensure!(
                state(&story, "echo") == echo && story["verdict"]["reaches"] == reaches,
                "{code}: {story:#}"
            );
            ensure!(code == i32::from(reaches != true), "{code}");
            Ok(())
        })
    };
    verdict(true.into(), "ok")?;
    pair.b.sh("ip link set flannel.1 down")?;
    agents[1].child().signal(Signal::SIGSTOP)?;
    pair.b.sh("ip link set flannel.1 down")?;
    verdict(false.into(), "fail")?;
    agents[1].child().signal(Signal::SIGCONT)?;
    verdict(true.into(), "ok")
}
