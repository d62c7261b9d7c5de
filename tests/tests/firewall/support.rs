//! Three nodes with both families and rules by one engine or the other, and who a packet seems to
//! come from.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_host::family::Family;
use flannel_tests::{
    Agent, Host, Node, Pod, ThreeNodes,
    cluster::{self, nodes::ready_agents, topology::Stack},
};
use flannel_traffic::Engine;

/// The network configuration that chooses an engine.
pub(crate) fn config(engine: Engine, stack: Stack) -> String {
    let config = cluster::config(stack, r#"{"Type":"vxlan"}"#);
    match engine {
        Engine::Iptables => config,
        Engine::Nftables => config.replacen('{', r#"{"EnableNFTables":true,"#, 1),
    }
}

fn by_family(family: Family, v4: &str, v6: &str) -> IpAddr {
    let text = if family == Family::V4 { v4 } else { v6 };
    text.parse().expect("an address")
}

/// The address of `a`.
pub(crate) fn of_a(family: Family) -> IpAddr {
    by_family(family, "192.168.1.11", "2001:db8:1::11")
}

/// The address of `b`.
pub(crate) fn of_b(family: Family) -> IpAddr {
    by_family(family, "192.168.1.12", "2001:db8:1::12")
}

/// The address of `c`.
pub(crate) fn of_c(family: Family) -> IpAddr {
    by_family(family, "192.168.2.13", "2001:db8:2::13")
}

/// The router, which stands for everything outside the cluster.
pub(crate) fn outside(family: Family) -> IpAddr {
    by_family(family, "192.168.1.1", "2001:db8:1::1")
}

/// The address of a pod.
pub(crate) fn of(pod: &Pod, family: Family) -> Result<IpAddr> {
    let address = pod
        .addresses()
        .iter()
        .find(|address| Family::of(**address) == family);
    address
        .copied()
        .with_context(|| format!("{} has no {family} address", pod.name()))
}

/// The first address of a node's subnet, which its tunnel device has, and the second, which its pod
/// bridge has.
pub(crate) fn of_node(node: &Node, family: Family) -> Result<(IpAddr, IpAddr)> {
    let subnets = node.subnet_env()?.subnets;
    let gateway = subnets
        .into_iter()
        .find(|subnet| Family::of(subnet.addr()) == family);
    let gateway = gateway.with_context(|| format!("{} has no {family} subnet", node.name()))?;
    Ok((gateway.network(), gateway.addr()))
}

/// Nodes `a` and `b` with an agent and a pod each; `c` is only a host.
pub(crate) struct Cluster {
    pub(crate) a: Agent,
    pub(crate) near: Pod,
    pub(crate) far: Pod,
    _b: Agent,
    // Last: the lab goes when its handles are of no use any more.
    pub(crate) net: ThreeNodes,
}

impl Cluster {
    /// With these flags for both agents.
    pub(crate) fn new(name: &str, engine: Engine, flags: &[&str]) -> Result<Self> {
        let net = ThreeNodes::with(name, Stack::Dual, &config(engine, Stack::Dual))?;
        let agents = ready_agents([&net.a, &net.b], &net.options()?.flags(flags))?;
        agents.iter().try_for_each(|agent| agent.wait_peers(2))?;
        let [a, b] = agents;
        let (near, far) = (net.a.add_pod("p1")?, net.b.add_pod("p1")?);
        for family in Family::BOTH {
            near.wait_ping(of(&far, family)?)?;
            // The way back, for packets that keep their source.
            net.r.sh(&format!(
                "ip route add {} via {}",
                of(&near, family)?,
                of_a(family)
            ))?;
        }
        Ok(Self {
            a,
            near,
            far,
            _b: b,
            net,
        })
    }

    /// Ends the agent of `a` and starts one with other flags.
    pub(crate) fn replace(&mut self, flags: &[&str]) -> Result<()> {
        self.a.sigterm_and_wait()?;
        self.a = self.net.a.ready_agent(self.net.options()?.flags(flags))?;
        Ok(())
    }

    /// Requires that packets of the pod on `a` to the outside are masqueraded.
    pub(crate) fn masquerades(&self) -> Result<()> {
        for family in Family::BOTH {
            let from = seen(&self.near, None, &self.net.r, outside(family))?;
            ensure!(from == of_a(family), "seen as {from}");
        }
        Ok(())
    }
}

/// Sends a datagram and waits for its answer, which has to come from where it was sent to; the
/// sender as the other end saw it. With `from` the datagram leaves with this source address.
pub(crate) fn seen(
    sender: &Host,
    from: Option<IpAddr>,
    receiver: &Host,
    at: IpAddr,
) -> Result<IpAddr> {
    Talk::open(sender, from, receiver, at)?.exchange()
}

/// One flow of datagrams and their answers.
pub(crate) struct Talk {
    client: UdpSocket,
    server: UdpSocket,
    name: String,
}

impl Talk {
    /// From a host, with `from` by this address, to another at an address of it.
    pub(crate) fn open(
        sender: &Host,
        from: Option<IpAddr>,
        receiver: &Host,
        at: IpAddr,
    ) -> Result<Self> {
        let bind = |host: &Host, address: IpAddr| -> Result<UdpSocket> {
            let socket = host.enter(|| UdpSocket::bind(SocketAddr::new(address, 0)))?;
            let socket = socket.with_context(|| format!("{}: {address}", host.name()))?;
            socket.set_read_timeout(Some(Duration::from_secs(3)))?;
            Ok(socket)
        };
        let client = bind(
            sender,
            from.unwrap_or(by_family(Family::of(at), "0.0.0.0", "::")),
        )?;
        let server = bind(receiver, at)?;
        Ok(Self {
            client,
            server,
            name: format!("{} -> {} {at}", sender.name(), receiver.name()),
        })
    }

    /// Sends a datagram and its answer; the address of the sender as the other end saw it.
    pub(crate) fn exchange(&self) -> Result<IpAddr> {
        let Self {
            client,
            server,
            name,
        } = self;
        client
            .send_to(b"who am I", server.local_addr()?)
            .with_context(|| name.clone())?;
        let mut buffer = [0; 16];
        let (_, seen) = server
            .recv_from(&mut buffer)
            .with_context(|| name.clone())?;
        server.send_to(b"you", seen)?;
        let (_, by) = client
            .recv_from(&mut buffer)
            .with_context(|| format!("the answer: {name}"))?;
        ensure!(by == server.local_addr()?, "the answer comes from {by}");
        Ok(seen.ip())
    }
}
