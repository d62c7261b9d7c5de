//! Three nodes with rules by one engine or the other, and who a packet seems to come from.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Etcd, Host, Lab, Pod, cluster,
    topology::{ROUTER, Three},
};

/// Network configurations, by the engine they choose.
pub(crate) const IPTABLES: &str = cluster::VXLAN;
pub(crate) const NFTABLES: &str = r#"{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;

/// The address of `a`.
pub(crate) const A: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 11);
/// The router, which stands for everything outside the cluster.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

/// Nodes `a` and `b` with an agent and a pod each; `c` is only a host.
pub(crate) struct Cluster {
    pub(crate) net: Three,
    pub(crate) a: Agent,
    pub(crate) near: Pod,
    pub(crate) far: Pod,
    pub(crate) etcd: Etcd,
    _b: Agent,
    _lab: Lab,
}

impl Cluster {
    /// With these flags for both agents.
    pub(crate) fn new(name: &str, config: &str, flags: &[&str]) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Three::new(&lab)?;
        let etcd = cluster::store(&lab, &net, config)?;
        let options = options(&etcd, flags)?;
        let (a, b) = (net.a.agent(options.clone())?, net.b.agent(options)?);
        for agent in [&a, &b] {
            agent.wait_ready()?;
            agent.wait_peers(1)?;
        }
        let (near, far) = (net.a.add_pod("p1")?, net.b.add_pod("p1")?);
        // The way back, for packets that keep their source.
        for (pod, node) in [(&near, "192.168.1.11"), (&far, "192.168.1.12")] {
            net.r.sh(&format!("ip route add {} via {node}", pod.ip()))?;
        }
        Ok(Self { net, a, near, far, etcd, _b: b, _lab: lab })
    }

    /// Ends the agent of `a` and starts one with other flags.
    pub(crate) fn replace(&mut self, flags: &[&str]) -> Result<()> {
        self.a.sigterm_and_wait()?;
        self.a = self.net.a.agent(options(&self.etcd, flags)?)?;
        self.a.wait_ready()
    }
}

fn options(etcd: &Etcd, flags: &[&str]) -> Result<AgentOptions> {
    Ok(flags.iter().fold(AgentOptions::etcd(&etcd.endpoint(ROUTER))?, |options, flag| options.flag(flag)))
}

/// Sends a datagram and waits for its answer, which has to come from where it was sent to; the sender as the other end saw it. With
/// `from` the datagram leaves with this source address.
pub(crate) fn seen(sender: &Host, from: Option<Ipv4Addr>, receiver: &Host, at: IpAddr) -> Result<IpAddr> {
    let bind = |host: &Host, address: SocketAddr| -> Result<UdpSocket> {
        let socket = host.enter(|| UdpSocket::bind(address))?.with_context(|| format!("{address}"))?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        Ok(socket)
    };
    let client = bind(sender, SocketAddr::new(from.unwrap_or(Ipv4Addr::UNSPECIFIED).into(), 0))?;
    let server = bind(receiver, SocketAddr::new(at, 0))?;
    let what = || format!("{} -> {} {at}", sender.name(), receiver.name());
    client.send_to(b"who am I", server.local_addr()?).with_context(what)?;
    let mut buffer = [0; 16];
    let (_, seen) = server.recv_from(&mut buffer).with_context(what)?;
    server.send_to(b"you", seen)?;
    let (_, by) = client.recv_from(&mut buffer).with_context(|| format!("the answer: {}", what()))?;
    ensure!(by == server.local_addr()?, "the answer comes from {by}");
    Ok(seen.ip())
}
