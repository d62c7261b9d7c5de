//! A hundred pods at once, fifty on each of two nodes.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent,
    agent::snapshot::Snapshot,
    cni::{Sandbox, addresses, at_once},
    eventually,
};
use serde_json::{Value, json};

use super::world::World;

/// On each node.
const PODS: u16 = 50;

/// A pod to be.
struct Pod {
    node: usize,
    sandbox: Sandbox,
    mappings: Value,
}

/// Every tenth has a port of its node.
fn pod(world: &World, node: usize, number: u16) -> Result<Pod> {
    let mappings = json!([{ "hostPort": 9000 + number, "containerPort": 80, "protocol": "tcp" }]);
    let mappings = if number.is_multiple_of(10) {
        mappings
    } else {
        json!([])
    };
    Ok(Pod {
        node,
        sandbox: world.lists[node]
            .runtime()
            .sandbox(&format!("pod{number}"))?,
        mappings,
    })
}

fn add(world: &World, pod: &Pod) -> Result<Vec<IpAddr>> {
    addresses(&world.lists[pod.node].add(&pod.sandbox, &pod.mappings)?)
}

fn delete(world: &World, pod: &Pod) -> Result<()> {
    world.lists[pod.node].del(&pod.sandbox, &pod.mappings, &Value::Null)
}

/// Waits until mode `fast` has found `pods` pods, all of them send and receive, and the map has
/// them.
fn wait_gates(agent: &Agent, pods: usize) -> Result<()> {
    eventually(
        &format!("{pods} pods on {}", agent.node().name()),
        Duration::from_secs(20),
        || {
            let status = agent.status()?;
            let found = status["fast"]["pods"].as_array().context("pods")?;
            let open = found
                .iter()
                .filter(|pod| pod["sends"] == true && pod["receives"] == true)
                .count();
            let dump = agent.cli_json(&["maps", "dump", "pods", "-o", "json"])?;
            let known = dump["pods"].as_array().context("a map")?.len();
            ensure!(
                (found.len(), open, known) == (pods, pods, pods),
                "{open} of {}, {known} in the map",
                found.len()
            );
            Ok(())
        },
    )
}

/// The first pod of a node comes and goes, and leaves a bridge at rest.
fn come_and_go(world: &World, first: &Pod, agent: &Agent) -> Result<()> {
    add(world, first)?;
    eventually(
        "the end of duplicate address detection on the bridge",
        Duration::from_secs(10),
        || {
            let tentative = agent
                .node()
                .sh("ip -6 address show dev cni0 tentative")?
                .stdout;
            ensure!(tentative.is_empty(), "{tentative}");
            Ok(())
        },
    )?;
    delete(world, first)?;
    // A bridge loses its carrier a moment after its last port.
    eventually("a bridge without ports", Duration::from_secs(10), || {
        let link = agent.node().sh("ip link show dev cni0")?.stdout;
        ensure!(link.contains("NO-CARRIER"), "{link}");
        Ok(())
    })
}

#[test]
fn a_hundred_pods_come_are_found_reach_each_other_and_leave_nothing() -> Result<()> {
    let world = World::new("clumany")?;
    // The first pod makes what stays: the bridge, and portmap's own chains.
    let firsts = [pod(&world, 0, 0)?, pod(&world, 1, 0)?];
    for (first, agent) in firsts.iter().zip(&world.agents) {
        come_and_go(&world, first, agent)?;
    }
    world
        .agents
        .iter()
        .try_for_each(|agent| wait_gates(agent, 0))?;
    let before = [Snapshot::of(&world.net.a)?, Snapshot::of(&world.net.b)?];

    let mut pods = Vec::from(firsts);
    for number in 1..PODS {
        pods.extend([pod(&world, 0, number)?, pod(&world, 1, number)?]);
    }
    let given = at_once(&pods, |pod| add(&world, pod))?;
    world
        .agents
        .iter()
        .try_for_each(|agent| wait_gates(agent, PODS.into()))?;
    // Each asks its neighbour in the list, which is on the other node.
    let pairs: Vec<_> = (0..pods.len())
        .map(|number| (&pods[number], &given[number ^ 1]))
        .collect();
    at_once(&pairs, |(pod, addresses)| {
        ensure!(addresses.len() == 2, "{addresses:?}");
        let runtime = world.lists[pod.node].runtime();
        addresses.iter().try_for_each(|address| {
            runtime
                .inside(&pod.sandbox, &format!("ping -n -c 2 -i 0.1 -W 3 {address}"))
                .map(drop)
        })
    })?;

    at_once(&pods, |pod| delete(&world, pod))?;
    world
        .lists
        .iter()
        .try_for_each(|list| list.runtime().expect_clean())?;
    world
        .agents
        .iter()
        .try_for_each(|agent| wait_gates(agent, 0))?;
    for (before, agent) in before.iter().zip(&world.agents) {
        eventually("a node as before", Duration::from_secs(10), || {
            let changes = before.changes(&Snapshot::of(agent.node())?);
            ensure!(changes.is_empty(), "{changes}");
            Ok(())
        })?;
    }
    Ok(())
}
