//! Pods as the bridge CNI plugin makes them: a veth into `cni0`, an address of the node's subnet, a
//! default route.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Deref,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ipnet::IpNet;

use crate::{Host, Node, Output, agent::subnet_env::SubnetEnv, eventually};

const BRIDGE: &str = "cni0";
/// By then every node has every other as its peer.
const PINGS: Duration = Duration::from_secs(20);

/// A handle to a pod; clones are the same pod. Inside, its interface is `eth0`.
#[derive(Clone, Debug)]
pub struct Pod {
    host: Host,
    node: Node,
    veth: String,
    name: String,
    /// None where it is the plugins' to give it addresses.
    number: Option<u8>,
    addresses: Vec<IpAddr>,
}

impl Pod {
    pub(crate) fn add(node: &Node, name: &str, number: u8) -> Result<Self> {
        let env = node.subnet_env()?;
        let host = Host::new(node.lab(), &format!("{}-{name}", node.name()))?;
        // The kernel's limit for a device name is 15 bytes.
        let veth = format!("veth{name}");
        ensure_bridge(node, &env)?;
        attach(node, &host, &veth, env.mtu)?;
        let mut addresses = Vec::new();
        for gateway in &env.subnets {
            addresses.push(address(&host, *gateway, number)?);
        }
        // The bridge forwards to it from then on.
        node.wait_link(&veth)?;
        host.wait_link("eth0")?;
        Ok(Self {
            host,
            node: node.clone(),
            veth,
            name: name.to_owned(),
            number: Some(number),
            addresses,
        })
    }

    /// One that CNI plugins have made in the namespaces of `host`.
    pub(crate) fn made_by_plugins(
        node: &Node,
        host: Host,
        name: &str,
        veth: String,
        addresses: Vec<IpAddr>,
    ) -> Self {
        Self {
            host,
            node: node.clone(),
            veth,
            name: name.to_owned(),
            number: None,
            addresses,
        }
    }

    /// The first address: IPv4 unless the cluster is IPv6 only.
    pub fn ip(&self) -> IpAddr {
        self.addresses[0]
    }

    /// All its addresses, IPv4 first.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The IPv4 address.
    pub fn ip4(&self) -> Result<Ipv4Addr> {
        let v4 = self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        v4.with_context(|| format!("{} has no IPv4 address", self.name()))
    }

    /// The IPv6 address, in a cluster with IPv6.
    pub fn ip6(&self) -> Option<IpAddr> {
        self.addresses.iter().copied().find(IpAddr::is_ipv6)
    }

    /// The node it runs on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The name of the host side of its veth, on the node.
    pub fn veth(&self) -> &str {
        &self.veth
    }

    /// Three echo requests; all must be answered.
    pub fn ping(&self, to: IpAddr) -> Result<Output> {
        self.pings(3, "", to)
    }

    /// As [`Pod::ping`], until it succeeds: IPv6 uses a new interface only some time after it came
    /// up.
    pub fn wait_ping(&self, to: IpAddr) -> Result<()> {
        eventually(
            &format!("pings from {} to {to}", self.name()),
            PINGS,
            || self.ping(to),
        )
        .map(drop)
    }

    /// Gives its interface another MTU, both ends of it, and the bridge it is on.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        for device in [BRIDGE, &self.veth] {
            self.node.sh(&format!("ip link set {device} mtu {mtu}"))?;
        }
        self.sh(&format!("ip link set eth0 mtu {mtu}")).map(drop)
    }

    /// Takes the pod away and makes one with the same addresses and names in its place, as after a
    /// pod of a stateful set ended.
    pub fn again(self) -> Result<Self> {
        let (node, name) = (self.node.clone(), self.name.clone());
        let number = self
            .number
            .with_context(|| format!("{name} is the plugins' to make"))?;
        self.remove()?;
        Self::add(&node, &name, number)
    }

    /// Takes the pod away as a CNI DEL does: the veth first, then the namespace.
    pub fn remove(self) -> Result<()> {
        anyhow::ensure!(
            self.number.is_some(),
            "{} is the plugins' to take away",
            self.name
        );
        self.node.sh(&format!("ip link delete {}", self.veth))?;
        self.host.end()
    }
}

impl Deref for Pod {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

fn ensure_bridge(node: &Node, env: &SubnetEnv) -> Result<()> {
    if node.outside_path("/sys/class/net").join(BRIDGE).exists() {
        return Ok(());
    }
    let mut lines = format!("link add {BRIDGE} up mtu {} type bridge\n", env.mtu);
    for gateway in &env.subnets {
        writeln!(
            lines,
            "address add {gateway} dev {BRIDGE}{}",
            nodad(gateway)
        )?;
    }
    node.ip(&lines)
}

fn attach(node: &Node, host: &Host, veth: &str, mtu: u32) -> Result<()> {
    let pid = host.pid();
    let peer = format!("peer name eth0 mtu {mtu} netns {pid}");
    node.sh(&format!(
        "ip link add {veth} up mtu {mtu} master {BRIDGE} type veth {peer}"
    ))
    .map(drop)
}

/// Pod number n of a node has the address n after the gateway's.
fn address(host: &Host, gateway: IpNet, number: u8) -> Result<IpAddr> {
    let address = match gateway.addr() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() + u32::from(number))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() + u128::from(number))),
    };
    let with_length = IpNet::new(address, gateway.prefix_len()).context("address of a pod")?;
    let (nodad, via) = (nodad(&gateway), gateway.addr());
    let route = format!("route add default via {via} dev eth0");
    host.ip(&format!(
        "link set eth0 up\naddress add {with_length} dev eth0{nodad}\n{route}\n"
    ))?;
    Ok(address)
}

/// Addresses are unique here, and nothing should wait for duplicate detection.
fn nodad(network: &IpNet) -> &'static str {
    if matches!(network, IpNet::V6(_)) {
        " nodad"
    } else {
        ""
    }
}
