//! Checksums inside tunnel packets are computed by the network card, unless it breaks them or the
//! operator decides otherwise.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Node, Pod, ThreeNodes,
    cluster::{config, etcd::CONFIG_KEY, topology::Stack},
    eventually,
    fast::{Family, PORT},
    faults::card::FaultyCard,
    load::datagrams::Datagrams,
};
use serde_json::{Value, json};

/// Six answers, one a second, and time to be at work.
const FOUND: Duration = Duration::from_mins(1);
const VXLAN: &str = r#"{"Type":"vxlan"}"#;

/// Returns the state of a tunnel device in the status.
fn offload(agent: &Agent, device: &str) -> Result<Value> {
    let all = agent.status()?["checksum_offload"].clone();
    let of_device = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|offload| offload["device"] == device);
    of_device
        .cloned()
        .with_context(|| format!("no {device} in {all}"))
}

/// Waits until checksum offload of a device is on or off, for this reason.
fn wait_offload(agent: &Agent, device: &str, on: bool, reason: Option<&str>) -> Result<()> {
    eventually(
        &format!("checksum offload of {device} {on} because of {reason:?}"),
        FOUND,
        || {
            let offload = offload(agent, device)?;
            let found = offload["reason"].as_str();
            let is_right = reason.map_or(found.is_none(), |reason| {
                found.is_some_and(|found| found.contains(reason))
            });
            ensure!(offload["on"] == on && is_right, "{offload}");
            let state = agent.node().sh(&format!("ethtool -k {device}"))?.stdout;
            let line = format!("tx-checksum-ip-generic: {}", if on { "on" } else { "off" });
            ensure!(state.contains(&line), "{state}");
            Ok(())
        },
    )
}

fn alias(node: &Node) -> Result<Value> {
    let links: Value = node.json(&["ip", "-j", "link", "show", "flannel.1"])?;
    Ok(links[0]["ifalias"].clone())
}

/// Asks from one pod to another.
fn exchange(near: &Pod, far: &Pod, family: Family) -> Result<()> {
    Datagrams::open(near, far, (family.of(far)?, PORT).into(), None)?.exchange(50)
}

/// Asks in both families.
fn talks(near: &Pod, far: &Pod) -> Result<()> {
    [Family::V4, Family::V6]
        .into_iter()
        .try_for_each(|family| exchange(near, far, family))
}

/// The agents of `a`, whose card is faulty, and `b`, each with a pod.
struct Site {
    agents: [Agent; 2],
    pods: [Pod; 2],
}

impl Site {
    fn start(nodes: &ThreeNodes, options: [&AgentOptions; 2]) -> Result<Self> {
        let agents = [
            nodes.a.agent(options[0].clone())?,
            nodes.b.agent(options[1].clone())?,
        ];
        for agent in &agents {
            agent.wait_ready()?;
            agent.wait_peers(2)?;
        }
        let pods = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
        // The kernel computes the checksum of ICMP: the path itself is there.
        for family in [Family::V4, Family::V6] {
            pods[0].wait_ping(family.of(&pods[1])?)?;
        }
        Ok(Self { agents, pods })
    }
}

#[test]
fn a_card_that_breaks_inner_checksums_is_found_and_not_used() -> Result<()> {
    for mode in ["kernel", "fast"] {
        let nodes = ThreeNodes::with(
            &format!("sums-{mode}"),
            Stack::Dual,
            &config(Stack::Dual, VXLAN),
        )?;
        let card = FaultyCard::plug_in(&nodes.a, &nodes.r, "eth-a", "br1")?;
        let options = nodes
            .options()?
            .flag("--peer-echo-interval=1")
            .flag(&format!("--datapath={mode}"));
        let Site {
            agents: [a, b],
            pods: [near, far],
        } = Site::start(&nodes, [&options, &options])?;
        for device in ["flannel.1", "flannel-v6.1"] {
            wait_offload(
                &a,
                device,
                false,
                Some("offloaded inner checksums are lost on the way to"),
            )?;
            wait_offload(&b, device, true, None)?;
        }
        ensure!(card.broken() > 0, "the card broke nothing");
        let before = card.broken();
        talks(&near, &far).with_context(|| format!("mode {mode}"))?;
        ensure!(
            card.broken() == before,
            "{mode}: checksums were left to the card"
        );
        let text = a.cli_any(&["status"])?.stdout;
        ensure!(
            text.contains("checksum offload of flannel.1 is off: packets with"),
            "{text}"
        );
        a.wait_log(&["inner checksums are computed in front of the tunnel device"])?;
        // An agent that starts again knows it, without any trial.
        a.sigterm_and_wait()?;
        a.restart()?;
        a.wait_ready()?;
        wait_offload(
            &a,
            "flannel.1",
            false,
            Some("are lost on the way to 192.168.1.12"),
        )?;
        ensure!(
            card.broken() == before,
            "{mode}: checksums were left to the card at a restart"
        );
        for agent in [&a, &b] {
            agent.sigterm_and_wait()?;
        }
    }
    Ok(())
}

/// Without trials the packets are lost: what the test before finds is there.
#[test]
fn the_operator_may_leave_checksums_to_any_card() -> Result<()> {
    let nodes = ThreeNodes::with("sums-on", Stack::Dual, &config(Stack::Dual, VXLAN))?;
    let card = FaultyCard::plug_in(&nodes.a, &nodes.r, "eth-a", "br1")?;
    let options = nodes.options()?.flag("--peer-echo-interval=1");
    let on = options.clone().flag("--tx-checksum-offload=on");
    let Site {
        agents: [a, _b],
        pods: [near, far],
    } = Site::start(&nodes, [&on, &options])?;
    wait_offload(&a, "flannel.1", true, None)?;
    for family in [Family::V4, Family::V6] {
        ensure!(
            exchange(&near, &far, family).is_err(),
            "{family:?}: the card does not break checksums"
        );
    }
    ensure!(card.broken() > 0, "the card broke nothing");
    card.repair();
    talks(&near, &far)
}

#[test]
fn a_setting_switches_offload_off_and_without_it_offload_is_back() -> Result<()> {
    let off = r#"{"Type":"vxlan","TxChecksumOffload":"off"}"#;
    let nodes = ThreeNodes::with("sums-set", Stack::V4, &config(Stack::V4, off))?;
    let options = nodes.options()?.flag("--peer-echo-interval=1");
    let start = |options: &AgentOptions| nodes.a.ready_agent(options.clone());
    let agent = start(&options)?;
    wait_offload(&agent, "flannel.1", false, Some("TxChecksumOffload is off"))?;
    ensure!(
        alias(&nodes.a)? == json!("flannel-agent: checksum offload is off, by its setting"),
        "{}",
        alias(&nodes.a)?
    );
    agent.sigterm_and_wait()?;

    // The flag takes precedence over the network configuration.
    let agent = start(&options.clone().flag("--tx-checksum-offload=on"))?;
    wait_offload(&agent, "flannel.1", true, None)?;
    ensure!(alias(&nodes.a)?.is_null(), "{}", alias(&nodes.a)?);
    agent.sigterm_and_wait()?;

    let agent = start(&options)?;
    wait_offload(&agent, "flannel.1", false, Some("TxChecksumOffload is off"))?;
    agent.sigterm_and_wait()?;
    nodes
        .etcd
        .put(CONFIG_KEY, &config(Stack::V4, VXLAN), None)?;
    let agent = start(&options)?;
    wait_offload(&agent, "flannel.1", true, None)?;

    // A feature that another program switches off stays off.
    nodes
        .a
        .sh("ethtool -K flannel.1 tx-checksum-ip-generic off")?;
    wait_offload(
        &agent,
        "flannel.1",
        false,
        Some("switched off by another program"),
    )?;
    agent.sigterm_and_wait()?;
    agent.restart()?;
    agent.wait_ready()?;
    wait_offload(
        &agent,
        "flannel.1",
        false,
        Some("switched off by another program"),
    )
}
