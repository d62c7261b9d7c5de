//! The guard, end to end: an agent on `a`, and on `b` a host that speaks the tunnel as stock
//! flannel does - a stranger, until it has a lease.

mod early;
mod elsewhere;
mod outage;
mod peers;
mod strangers;

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use etherparse::{icmpv4, icmpv6, ip_number};
use flannel_tests::{
    Agent, Pod, StockEnd, StockNode, TwoNodes,
    cluster::{self, topology::Stack},
    eventually,
    packet::{
        frame,
        wire::{Capture, inject_frame},
    },
    stock,
};

/// The number of the other host's subnets.
const OTHER: u8 = 8;

/// The node of the agent.
fn ours() -> StockNode {
    node(85, 11)
}

/// The other host, as a node.
fn other() -> StockNode {
    node(OTHER, 12)
}

fn node(number: u8, host: u8) -> StockNode {
    StockNode {
        v4: Some(StockEnd::vxlan(
            number,
            &format!("192.168.1.{host}"),
            &format!("02:00:00:00:04:{number:02}"),
        )),
        v6: Some(StockEnd::vxlan(
            number,
            &format!("2001:db8:1::{host}"),
            &format!("02:00:00:00:06:{number:02}"),
        )),
    }
}

/// The agent, its pod, and what arrives there.
struct Guarded {
    agent: Agent,
    pod: Pod,
    arriving: Capture,
    // Last: the lab goes when its handles are of no use any more.
    pair: TwoNodes,
}

impl Guarded {
    /// Both families, the agent with these flags more.
    fn new(name: &str, flags: &[&str]) -> Result<Self> {
        let pair = TwoNodes::with(
            name,
            Stack::Dual,
            &cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#),
        )?;
        ours().put(&pair.etcd)?;
        let agent = pair.a.ready_agent(pair.options()?.flags(flags))?;
        speak_tunnel(&pair, &as_published(&agent)?)?;
        let pod = pair.a.add_pod("p1")?;
        // Addresses are resolved, so that no ping is lost to that.
        for (host, to) in [
            (&pair.a, pod.addresses()),
            (
                &pair.b,
                &["192.168.1.11".parse()?, "2001:db8:1::11".parse()?],
            ),
        ] {
            for to in to {
                eventually(&format!("an answer of {to}"), SOON, || {
                    host.run(["ping", "-n", "-c", "1", "-W", "1", &to.to_string()])
                })?;
            }
        }
        let arriving = Capture::start(&pod, "eth0", is_echo_request)?;
        Ok(Self {
            agent,
            pod,
            arriving,
            pair,
        })
    }

    /// Sets the guard's mode, and waits until it is active.
    fn set(&self, mode: &str) -> Result<()> {
        self.agent.cli(&["guard", "set", mode])?;
        self.wait_modes(mode, mode)
    }

    fn wait_modes(&self, outer: &str, inner: &str) -> Result<()> {
        self.agent
            .wait_status(&format!("guard {outer}, {inner}"), |status| {
                let [is_outer, is_inner] =
                    ["outer", "inner"].map(|check| &status["guard"][check]["effective"]);
                ensure!(
                    *is_outer == outer && *is_inner == inner,
                    "{}",
                    status["guard"]
                );
                Ok(())
            })?;
        Ok(())
    }

    /// Returns how many of three pings of the other host, from one of its addresses, reach the pod.
    fn arrive(&self, to: IpAddr, more: &str) -> Result<usize> {
        self.arriving.clear();
        let line = format!("ping -n -c 3 -i 0.01 -W 0.1 {more} {to}");
        self.pair
            .b
            .command(line.split_ascii_whitespace())
            .any_code()
            .run()?;
        Ok(self.arriving.len())
    }

    /// Returns how many of three such frames of the other host reach the pod. The node's answer to
    /// a ping sent after them shows that it has processed them.
    fn arrive_as(&self, frame: &[u8]) -> Result<usize> {
        self.arriving.clear();
        for _ in 0..3 {
            inject_frame(&self.pair.b, "eth0", frame)?;
        }
        self.pair.b.sh("ping -n -c 1 -W 5 192.168.1.11")?;
        Ok(self.arriving.len())
    }

    /// Every address of the pod is reached, or none is.
    fn expect(&self, reached: bool, when: &str) -> Result<()> {
        for address in self.pod.addresses() {
            let count = self.arrive(*address, "").context(when.to_owned())?;
            ensure!(
                count == if reached { 3 } else { 0 },
                "{when}: {count} of 3 pings arrived at {address}"
            );
        }
        Ok(())
    }

    fn refused(&self) -> Result<u64> {
        Ok(self.agent.counted("from_underlay", "refused_vtep")?
            + self.agent.counted("from_underlay", "refused_source")?)
    }
}

/// The agent's node with the devices it made.
fn as_published(agent: &Agent) -> Result<StockNode> {
    let status = agent.status()?;
    let with_mac = |end: Option<StockEnd>, device: usize| -> Result<Option<StockEnd>> {
        let mac = status["devices"][device]["mac"]
            .as_str()
            .with_context(|| format!("two devices in {status}"))?;
        Ok(end.map(|end| StockEnd {
            mac: Some(mac.to_owned()),
            ..end
        }))
    };
    let StockNode { v4, v6 } = ours();
    Ok(StockNode {
        v4: with_mac(v4, 0)?,
        v6: with_mac(v6, 1)?,
    })
}

/// Gives `b` stock's tunnel devices, and the ways to the pods of `ours`.
fn speak_tunnel(pair: &TwoNodes, ours: &StockNode) -> Result<()> {
    let other = other();
    for end in [other.v4, other.v6] {
        let StockEnd { public_ip, mac, .. } = end.context("an end")?;
        stock::device(&pair.b, OTHER, &public_ip, &mac.context("a VTEP")?)?;
    }
    stock::tunnel_peer(&pair.b, ours)
}

/// Of either family, from the Ethernet header on; of a fragmented one the first part.
fn is_echo_request(frame: &[u8]) -> bool {
    let Some(ip) = frame::ip(frame).filter(|ip| !frame::is_later_fragment(ip)) else {
        return false;
    };
    let payload = ip.payload();
    match payload.ip_number {
        ip_number::ICMP => payload.payload.first() == Some(&icmpv4::TYPE_ECHO_REQUEST),
        ip_number::IPV6_ICMP => payload.payload.first() == Some(&icmpv6::TYPE_ECHO_REQUEST),
        _ => false,
    }
}

const SOON: Duration = Duration::from_secs(10);
