//! Leftovers of a former configuration go once the store is in sync: those on our own tunnel
//! device, and those with our marks. Objects of another agent of the host stay.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_common::SCHEMA;
use flannel_tests::{
    Agent, AgentOptions, Node, TwoNodes,
    cluster::{LEASES, VXLAN, etcd::CONFIG_KEY, nodes::ready_agents},
    eventually, throughout,
};

const SOON: Duration = Duration::from_secs(15);
const FORMER: &str = "10.244.";
const OTHER_NETWORK: &str = r#"{"Network":"172.20.0.0/16","Backend":{"Type":"vxlan"}}"#;

/// Everything of a node that names a network that starts with this.
fn named(node: &Node, start: &str) -> Result<String> {
    let commands = [
        "ip route show table all",
        "ip -4 -o address show dev flannel.1",
        "ip neigh show dev flannel.1",
        "nft -s list ruleset",
        "ip nexthop",
    ];
    let mut found = String::new();
    for command in commands {
        for line in node
            .sh(command)?
            .stdout
            .lines()
            .filter(|line| line.contains(start))
        {
            found = found + line.trim() + "\n";
        }
    }
    Ok(found)
}

fn wait_gone(node: &Node, start: &str) -> Result<()> {
    eventually(&format!("nothing of {start}"), SOON, || {
        let left = named(node, start)?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

/// Both agents end, the network is another, and the agent of node `a` starts again.
fn renumber(nodes: &TwoNodes, agents: &[Agent; 2], forget: &str) -> Result<()> {
    for agent in agents {
        agent.sigterm_and_wait()?;
    }
    for (key, _) in nodes.etcd.list(LEASES)? {
        nodes.etcd.delete(&key)?;
    }
    nodes.etcd.put(CONFIG_KEY, OTHER_NETWORK, None)?;
    nodes.a.sh(forget)?;
    agents[0].restart()?;
    agents[0].wait_ready()
}

fn former_network_goes(name: &str, forget: &str) -> Result<()> {
    let nodes = TwoNodes::new(name, VXLAN)?;
    let agents = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flag("--ip-masq"))?;
    let before = named(&nodes.a, FORMER)?;
    for part in ["onlink", "unreachable", "PERMANENT", "inet", "masquerade"] {
        ensure!(before.contains(part), "{part} in {before}");
    }
    renumber(&nodes, &agents, forget)?;
    wait_gone(&nodes.a, FORMER)
}

#[test]
fn a_former_network_goes_from_device_routes_and_rules() -> Result<()> {
    former_network_goes("renumber", "true")
}

#[test]
fn a_former_network_goes_without_subnet_env() -> Result<()> {
    former_network_goes("noenv", "rm /run/flannel/subnet.env")
}

/// The unreachable route names the network whose rules are left.
#[test]
fn a_former_network_goes_without_any_file() -> Result<()> {
    former_network_goes(
        "nofiles",
        "rm /run/flannel/subnet.env /run/flannel/networks",
    )
}

/// Objects of an agent with another VNI stay, while it runs and after it ended.
#[test]
fn objects_of_another_agent_stay() -> Result<()> {
    let nodes = TwoNodes::new("twonets", VXLAN)?;
    nodes.etcd.put(
        "/blue/config",
        r#"{"Network":"10.55.0.0/16","Backend":{"Type":"vxlan","VNI":2}}"#,
        None,
    )?;
    let blue = |node: &Node| -> Result<Agent> {
        let options = nodes.options()?.flags(&[
            "--etcd-prefix=/blue",
            "--ip-masq",
            "--subnet-file=/run/blue/subnet.env",
        ]);
        let pin_root = "/sys/fs/bpf/blue".to_owned();
        node.ready_agent(AgentOptions {
            state_dir: "/run/blue".to_owned(),
            pin_root,
            ..options
        })
    };
    let [red, _] = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flag("--ip-masq"))?;
    let blues = [blue(&nodes.a)?, blue(&nodes.b)?];
    blues[0].wait_peers(1)?;
    let of_blue = || -> Result<String> {
        let of_blue = |line: &&str| line.contains("10.55.");
        let rules = nodes
            .a
            .sh("nft -s list ruleset")?
            .stdout
            .lines()
            .filter(of_blue)
            .count();
        let routes = nodes.a.sh("ip route show")?.stdout;
        let mut routes: Vec<&str> = routes.lines().filter(of_blue).collect();
        routes.sort_unstable();
        Ok(format!("{}\n{rules} rules", routes.join("\n")))
    };
    let before = of_blue()?;
    ensure!(
        before.contains("unreachable 10.55.0.0/16") && !before.ends_with(" 0 rules"),
        "{before}"
    );
    blues[0].kill9()?;
    // A whole look at the start, and one thirty seconds later.
    red.sigterm_and_wait()?;
    red.restart()?;
    red.wait_ready()?;
    throughout("what the other agent made", Duration::from_secs(35), || {
        let now = of_blue()?;
        ensure!(now == before, "{now}\nbefore:\n{before}");
        Ok(())
    })?;
    nodes
        .a
        .sh(&format!("test -d /sys/fs/bpf/blue/v{SCHEMA}"))
        .context("the pins of the other agent")?;
    Ok(())
}
