//! A mixed cluster: an agent on one node, and on the other what stock flannel would have made for
//! the two of them.

use anyhow::{Context as _, Result, ensure};

use crate::{
    Agent, AgentOptions, Pod, StockNode, TwoNodes,
    cluster::{
        self,
        topology::{SECOND, Stack},
    },
    stock,
};

/// The VTEP's MAC address of the stock node.
const MAC: &str = "02:00:00:00:00:08";
/// Its IPv6 address; its IPv4 address is that of etcd.
pub const STOCK_IPV6: &str = "2001:db8:1::12";
/// The last part of its subnets.
const NUMBER: u8 = 8;

/// The cluster, with a pod on each node.
#[derive(Debug)]
pub struct Mixed {
    /// The node with the agent, 192.168.1.11 or 2001:db8:1::11.
    pub agent: Agent,
    /// Its pod.
    pub ours: Pod,
    /// The stock node's pod.
    pub stocks: Pod,
    // Last: the lab goes when its handles are of no use any more.
    /// The nodes; the stock one is `b`.
    pub nodes: TwoNodes,
}

impl Mixed {
    /// Of one family, IPv4 or IPv6, with more flags for the agent.
    pub fn new(name: &str, stack: Stack, flags: &[&str]) -> Result<Self> {
        let nodes = TwoNodes::with(name, stack, &cluster::config(stack, r#"{"Type":"vxlan"}"#))?;
        let options = nodes.options()?.flags(flags);
        let agent = if stack.has_v4() {
            with_ipv4(&nodes, options)?
        } else {
            with_ipv6(&nodes, options)?
        };
        let (ours, stocks) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
        ours.wait_ping(stocks.ip())?;
        stocks.wait_ping(ours.ip())?;
        Ok(Self {
            agent,
            ours,
            stocks,
            nodes,
        })
    }
}

/// Starts the agent once the stock node has its lease.
fn started(nodes: &TwoNodes, options: AgentOptions) -> Result<Agent> {
    let agent = nodes.a.ready_agent(options)?;
    agent.wait_peers(1)?;
    Ok(agent)
}

/// Subnet and VTEP's MAC address of our node.
fn lease(agent: &Agent) -> Result<[String; 2]> {
    let status = agent.status()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Ok([
        text(&status["lease"]["subnet"]).context("a subnet")?,
        text(&status["device"]["mac"]).context("a MAC")?,
    ])
}

fn with_ipv4(nodes: &TwoNodes, options: AgentOptions) -> Result<Agent> {
    StockNode::vxlan(NUMBER, SECOND, MAC).put(&nodes.etcd)?;
    let agent = started(nodes, options)?;
    let [subnet, mac] = lease(&agent)?;
    let ours = StockNode::named(&subnet.replace('/', "-"), "192.168.1.11", &mac);
    let value = nodes.etcd.get(&ours.key())?;
    assert_eq!(
        value.as_deref(),
        Some(ours.value().as_str()),
        "what we publish is what stock reads"
    );
    stock::device(&nodes.b, NUMBER, SECOND, MAC)?;
    stock::tunnel_peer(&nodes.b, &ours)?;
    Ok(agent)
}

fn with_ipv6(nodes: &TwoNodes, options: AgentOptions) -> Result<Agent> {
    StockNode::vxlan(NUMBER, STOCK_IPV6, MAC).put(&nodes.etcd)?;
    let agent = started(nodes, options)?;
    let [subnet, mac] = lease(&agent)?;
    let hex = subnet
        .strip_prefix("fd00:10:244:")
        .and_then(|rest| rest.strip_suffix("::/64"));
    let number = u8::from_str_radix(hex.context("a subnet of the network")?, 16)
        .context("a small subnet")?;
    let ours = StockNode::vxlan(number, "2001:db8:1::11", &mac);
    let value = nodes.etcd.get(&ours.key())?.context("our lease")?;
    assert_eq!(
        value.replace(r#","ZeroChecksumV6":true"#, ""),
        ours.value(),
        "what stock reads of ours"
    );
    ensure!(
        value.contains("ZeroChecksumV6"),
        "our own device takes packets without a checksum: {value}"
    );
    stock::device(&nodes.b, NUMBER, STOCK_IPV6, MAC)?;
    stock::tunnel_peer(&nodes.b, &ours)?;
    Ok(agent)
}
