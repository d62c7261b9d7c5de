//! `flannel-agent lease`: the leases of all nodes, seen and released by hand.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Output, TwoNodes, agent_binary,
    cluster::{LEASES, VXLAN},
    eventually,
};
use serde_json::Value;

/// Two nodes with agents, and the command `lease` by the second one with the agents' variable: its
/// own agent is not asked.
struct Leases {
    agents: [Agent; 2],
    nodes: TwoNodes,
    variable: String,
    binary: String,
}

impl Leases {
    fn run(&self, words: &[&str], code: i32) -> Result<Output> {
        let command = ["env", &self.variable, &self.binary, "lease"];
        let command = [&command[..], words].concat();
        self.nodes.b.command(command).expect_code(code).run()
    }

    fn list(&self, code: i32) -> Result<Value> {
        let listed = self.run(&["list", "-o", "json"], code)?;
        Ok(serde_json::from_str(&listed.stdout)?)
    }
}

#[test]
fn leases_are_listed_shown_and_released() -> Result<()> {
    let nodes = TwoNodes::new("lease-commands", VXLAN)?;
    let agents = [
        nodes.a.ready_agent(nodes.options()?)?,
        nodes.b.ready_agent(nodes.options()?)?,
    ];
    agents[0].wait_peers(1)?;
    let (binary, endpoint) = (agent_binary()?.display().to_string(), nodes.endpoint());
    let variable = format!("FLANNELD_ETCD_ENDPOINTS={endpoint}");
    let leases = Leases {
        agents,
        nodes,
        variable,
        binary,
    };
    let subnet = expect_both(&leases)?;
    release_a_twin(&leases)?;
    release_what_is_gone(&leases, &subnet)
}

/// The leases of both nodes; returns the subnet of the second one.
fn expect_both(all: &Leases) -> Result<String> {
    let found = all.list(0)?;
    let leases = found["leases"].as_array().context("leases")?;
    ensure!(
        leases.len() == 2 && found["problems"] == Value::Array(Vec::new()),
        "{found:#}"
    );
    let of_b = leases
        .iter()
        .find(|lease| lease["public_addresses"][0] == "192.168.1.12")
        .context("the lease of b")?;
    ensure!(
        of_b["expires_in"]
            .as_u64()
            .is_some_and(|left| left > 80_000 && left <= 86_400),
        "{of_b}"
    );
    let subnet = of_b["subnets"][0].as_str().context("a subnet")?;
    let shown = all.run(&["show", "192.168.1.12"], 0)?.stdout;
    let (_, value) = all
        .nodes
        .etcd
        .list(LEASES)?
        .into_iter()
        .find(|(key, _)| shown.contains(key))
        .context(shown.clone())?;
    ensure!(shown.contains(&value), "{shown}");
    Ok(subnet.to_owned())
}

/// A copy of the first node, which left its lease behind.
fn release_a_twin(all: &Leases) -> Result<()> {
    let etcd = &all.nodes.etcd;
    let own = etcd
        .list(LEASES)?
        .into_iter()
        .find(|(_, value)| value.contains("192.168.1.11"));
    let (_, value) = own.context("the lease of a")?;
    etcd.put(&format!("{LEASES}10.244.200.0-24"), &value, None)?;
    let twins = all.run(&["list"], 1)?.stdout;
    ensure!(
        twins.contains("2 nodes have the public address 192.168.1.11"),
        "{twins}"
    );
    let refused = all.run(&["release", "192.168.1.11"], 2)?.stderr;
    ensure!(refused.contains("name one by its subnet"), "{refused}");
    ensure!(
        all.run(&["release", "10.244.200.0/24"], 0)?
            .stdout
            .contains("released 10.244.200.0/24"),
        "not released"
    );
    all.list(0)?;
    Ok(())
}

/// The lease of a node that is gone; then the store goes too.
fn release_what_is_gone(all: &Leases, subnet: &str) -> Result<()> {
    all.agents[1].sigterm_and_wait()?;
    all.run(&["release", subnet], 0)?;
    eventually("the peers of a", Duration::from_secs(30), || {
        let status = all.agents[0].status()?;
        ensure!(
            status["peers"].as_array().is_some_and(Vec::is_empty),
            "{}",
            status["peers"]
        );
        Ok(())
    })?;
    let absent = all.run(&["show", subnet], 2)?.stderr;
    ensure!(absent.contains("none of 1 lease is"), "{absent}");
    all.nodes.etcd.stop()?;
    let gone = all.run(&["list"], 2)?.stderr;
    ensure!(gone.contains("etcd is not reachable"), "{gone}");
    Ok(())
}
