//! The assignment of subnets to nodes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, ThreeNodes, TwoNodes,
    cluster::{self, VXLAN, nodes::ready_agents},
    eventually,
};

/// Two subnets can be leased.
const TWO_SUBNETS: &str = r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.2.0","Backend":{"Type":"vxlan"}}"#;

fn subnet(agent: &Agent) -> Result<String> {
    Ok(agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned())
}

#[test]
fn three_agents_get_disjoint_subnets_and_each_others_as_peers() -> Result<()> {
    let net = ThreeNodes::new("three", VXLAN)?;
    let agents = ready_agents(net.nodes(), &net.options()?)?;
    let subnets: BTreeSet<String> = agents.iter().map(subnet).collect::<Result<_>>()?;
    assert_eq!(subnets.len(), 3, "{subnets:?}");
    for agent in &agents {
        agent.wait_peers(2)?;
        let own = subnet(agent)?;
        let status = agent.status()?;
        let peers = status["peers"].as_array().context("peers")?;
        let known: BTreeSet<String> = peers
            .iter()
            .filter_map(|peer| peer["subnet"].as_str())
            .map(str::to_owned)
            .collect();
        assert_eq!(
            known,
            subnets
                .iter()
                .filter(|subnet| **subnet != own)
                .cloned()
                .collect(),
            "of {own}"
        );
    }
    Ok(())
}

#[test]
fn a_restart_keeps_subnet_and_mac() -> Result<()> {
    let pair = TwoNodes::new("again", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let identity = |agent: &Agent| -> Result<_> {
        let status = agent.status()?;
        Ok((status["lease"]["subnet"].clone(), status["device"].clone()))
    };
    let before = identity(&agent)?;
    for graceful in [true, false] {
        if graceful {
            agent.sigterm_and_wait()?;
        } else {
            agent.kill9()?;
        }
        agent.restart()?;
        agent.wait_ready()?;
        assert_eq!(identity(&agent)?, before, "graceful: {graceful}");
    }
    Ok(())
}

/// The lease may be gone by then; the file remembers.
#[test]
fn a_node_whose_lease_ran_out_gets_its_former_subnet_back() -> Result<()> {
    let pair = TwoNodes::new("former", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let before = subnet(&agent)?;
    agent.sigterm_and_wait()?;
    assert!(
        pair.etcd
            .delete(&format!("{}{}", cluster::LEASES, before.replace('/', "-")))?,
        "the lease of {before}"
    );
    agent.restart()?;
    agent.wait_ready()?;
    assert_eq!(subnet(&agent)?, before);
    Ok(())
}

/// The answer that all three wait for comes to all at once: each sees two free subnets.
#[test]
fn agents_that_race_for_the_last_subnets_each_get_one_and_the_last_waits_for_another() -> Result<()>
{
    let net = ThreeNodes::new("race", TWO_SUBNETS)?;
    net.etcd.pause()?;
    let agents: Vec<_> = net
        .nodes()
        .into_iter()
        .map(|node| node.agent(net.options()?))
        .collect::<Result<_>>()?;
    for node in net.nodes() {
        eventually("a connection to etcd", Duration::from_secs(4), || {
            let connections = node.sh("ss -Htn state established dport = :2379")?.stdout;
            ensure!(!connections.is_empty(), "none");
            Ok(())
        })?;
    }
    net.etcd.resume()?;
    let message = "out of subnets: every /24 from 10.244.1.0 to 10.244.2.0 of the network \
        10.244.0.0/16 is leased";
    let (mut leased, mut waiting) = (Vec::new(), Vec::new());
    eventually(
        "two agents with a subnet and one that waits",
        Duration::from_mins(1),
        || {
            (leased, waiting) = (Vec::new(), Vec::new());
            for agent in &agents {
                let status = agent.status()?;
                let waits = status["lease_problem"]
                    .as_str()
                    .is_some_and(|problem| problem.starts_with(message));
                ensure!(waits || status["ready"] == true, "{status}");
                if waits {
                    waiting.push(agent);
                } else {
                    leased.push(agent);
                }
            }
            ensure!((leased.len(), waiting.len()) == (2, 1));
            Ok(())
        },
    )?;
    let subnets: BTreeSet<String> = leased
        .iter()
        .map(|agent| subnet(agent))
        .collect::<Result<_>>()?;
    assert_eq!(
        subnets,
        ["10.244.1.0/24", "10.244.2.0/24"].map(str::to_owned).into()
    );
    assert_eq!(waiting[0].status()?["ready"], false);
    // It lists the leases at least every 15 s.
    leased[0].sigterm_and_wait()?;
    let free = subnet_of_lease(&net, leased[0])?;
    waiting[0].wait_ready()?;
    assert_eq!(
        (subnet(waiting[0])?, &waiting[0].status()?["lease_problem"]),
        (free, &serde_json::Value::Null)
    );
    assert_eq!(net.etcd.list(cluster::LEASES)?.len(), 2);
    Ok(())
}

/// Deletes the lease of an agent that ended, and returns its subnet.
fn subnet_of_lease(net: &ThreeNodes, ended: &Agent) -> Result<String> {
    let subnet = ended
        .node()
        .subnet_env()?
        .subnets
        .first()
        .context("a subnet")?
        .trunc()
        .to_string();
    net.etcd
        .delete(&format!("{}{}", cluster::LEASES, subnet.replace('/', "-")))?;
    Ok(subnet)
}

/// `subnet.env` is read by CNI plugins and scripts: every byte counts.
#[test]
fn subnet_env_has_stocks_text_and_mode() -> Result<()> {
    use std::{fs, os::unix::fs::PermissionsExt as _};
    let pair = TwoNodes::new("env", VXLAN)?;
    let reservation = flannel_tests::StockNode::vxlan(87, "192.168.1.11", "02:00:00:00:00:07");
    pair.etcd
        .put(&reservation.key(), &reservation.value(), None)?;
    let _agent = pair.a.ready_agent(pair.options()?)?;
    let path = pair.a.outside_path("/run/flannel/subnet.env");
    let text = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.87.1/24\n\
                FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";
    assert_eq!(fs::read_to_string(&path)?, text);
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o7777, 0o644);
    Ok(())
}
