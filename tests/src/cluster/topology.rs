//! The standard topologies.
//!
//! ```text
//!   a eth0 192.168.1.11 --+
//!                         +-- br1 192.168.1.1 --+
//!   b eth0 192.168.1.12 --+                     r (router, etcd)
//!   c eth0 192.168.2.13 ------- eth-c 192.168.2.1 -+
//! ```
//!
//! `a` and `b` are neighbours on one segment, `c` is behind the router: with `DirectRouting` both
//! kinds of peer show.
//!
//! With IPv6 the segments are 2001:db8:1::/64 and 2001:db8:2::/64, the nodes have the same last
//! digits there (2001:db8:1::11), and they know the router by its link-local address, as hosts know
//! theirs.

use anyhow::Result;

use crate::{Lab, Node};

/// The address families of an underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
    /// Both.
    Dual,
}

impl Stack {
    /// Every stack.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Dual];

    /// Returns true if the stack has IPv4.
    pub const fn has_v4(self) -> bool {
        matches!(self, Self::V4 | Self::Dual)
    }

    /// Returns true if the stack has IPv6.
    pub const fn has_v6(self) -> bool {
        matches!(self, Self::V6 | Self::Dual)
    }

    /// Gives `device` of a node those of its two addresses that this stack has, and a way to
    /// everywhere else.
    fn address(
        self,
        node: &Node,
        device: &str,
        v4: (&str, Option<&str>),
        v6: (&str, Option<&str>),
    ) -> Result<()> {
        for (has, (address, gateway)) in [(self.has_v4(), v4), (self.has_v6(), v6)] {
            if has {
                node.address(device, address, gateway)?;
            }
        }
        Ok(())
    }

    fn router(self, router: &Node, device: &str, v4: &str, v6: &str) -> Result<()> {
        self.address(router, device, (v4, None), (v6, None))?;
        if self.has_v6() {
            router.address(device, &format!("{LINK_LOCAL}/64"), None)?;
        }
        Ok(())
    }
}

/// Nodes and their cables, without a store and agents.
pub trait Topology: Sized {
    /// The addresses of the node with the store, of IPv4 and of IPv6 as they stand in a URL.
    const STORE: [&'static str; 2];

    /// The underlay with these families.
    fn with(lab: &Lab, stack: Stack) -> Result<Self>;

    /// The node with the store.
    fn store(&self) -> &Node;
}

/// The address by which hosts know their IPv6 router.
const LINK_LOCAL: &str = "fe80::1";

/// Settings of a node's end of its cable, as `ethtool -K` takes them: a veth's defaults, by which
/// large segments cross the cable whole, as through a NIC with tunnel offloads.
pub const OFFLOAD: &str = "tso on tx-udp_tnl-segmentation on gro off";
/// Without segmentation offloads and with GRO: packets cross the cable as they would a wire.
pub const WIRE: &str = "tso off tx-udp_tnl-segmentation off gro on";

/// Three nodes on two segments.
#[derive(Clone, Debug)]
pub struct Three {
    /// 192.168.1.11, on the segment of `b`.
    pub a: Node,
    /// 192.168.1.12, on the segment of `a`.
    pub b: Node,
    /// 192.168.2.13, behind the router.
    pub c: Node,
    /// The router between the segments; reachable from all as 192.168.1.1.
    pub r: Node,
}

/// The address of the router that every node of [`Three`] reaches.
pub const ROUTER: &str = "192.168.1.1";

impl Topology for Three {
    const STORE: [&'static str; 2] = [ROUTER, "[2001:db8:1::1]"];

    fn with(lab: &Lab, stack: Stack) -> Result<Self> {
        let (r, a, b, c) = (
            lab.node("r")?,
            lab.node("a")?,
            lab.node("b")?,
            lab.node("c")?,
        );
        r.sh("ip link add br1 type bridge")?;
        r.sh("ip link set br1 up")?;
        stack.router(&r, "br1", "192.168.1.1/24", "2001:db8:1::1/64")?;
        for (node, port, number) in [(&a, "eth-a", 11), (&b, "eth-b", 12)] {
            lab.link(node, "eth0", &r, port)?;
            r.sh(&format!("ip link set {port} master br1"))?;
            let (v4, v6) = (
                format!("192.168.1.{number}/24"),
                format!("2001:db8:1::{number}/64"),
            );
            stack.address(node, "eth0", (&v4, Some(ROUTER)), (&v6, Some(LINK_LOCAL)))?;
        }
        lab.link(&c, "eth0", &r, "eth-c")?;
        stack.router(&r, "eth-c", "192.168.2.1/24", "2001:db8:2::1/64")?;
        let v4 = ("192.168.2.13/24", Some("192.168.2.1"));
        stack.address(&c, "eth0", v4, ("2001:db8:2::13/64", Some(LINK_LOCAL)))?;
        Ok(Self { a, b, c, r })
    }

    fn store(&self) -> &Node {
        &self.r
    }
}

impl Three {
    /// The underlay for IPv4.
    pub fn new(lab: &Lab) -> Result<Self> {
        Self::with(lab, Stack::V4)
    }

    /// The three nodes, in order.
    pub fn nodes(&self) -> [&Node; 3] {
        [&self.a, &self.b, &self.c]
    }
}

/// `a` and `c` on two segments that two routers join:
///
/// ```text
///   a eth0 192.168.1.11 --- 192.168.1.1 r1 192.168.2.1 --- c eth0 192.168.2.13
///                       \\- 192.168.1.2 r2 192.168.2.2 -/
/// ```
///
/// Both nodes send to `r1`, which runs etcd and whose two bridges are the segments.
#[derive(Clone, Debug)]
pub struct TwoRouters {
    /// 192.168.1.11.
    pub a: Node,
    /// 192.168.2.13.
    pub c: Node,
    /// The router both nodes use at first; reachable as [`ROUTER`].
    pub r1: Node,
    /// The other one.
    pub r2: Node,
}

impl Topology for TwoRouters {
    const STORE: [&'static str; 2] = [ROUTER; 2];

    /// Supports only IPv4.
    fn with(lab: &Lab, _: Stack) -> Result<Self> {
        let (r1, r2, a, c) = (
            lab.node("r1")?,
            lab.node("r2")?,
            lab.node("a")?,
            lab.node("c")?,
        );
        for (bridge, address) in [("br1", "192.168.1.1/24"), ("br2", "192.168.2.1/24")] {
            r1.sh(&format!("ip link add {bridge} type bridge"))?;
            r1.sh(&format!("ip link set {bridge} up"))?;
            r1.address(bridge, address, None)?;
        }
        for (node, device, port, bridge) in [
            (&a, "eth0", "eth-a", "br1"),
            (&c, "eth0", "eth-c", "br2"),
            (&r2, "eth1", "eth-r2-1", "br1"),
            (&r2, "eth2", "eth-r2-2", "br2"),
        ] {
            lab.link(node, device, &r1, port)?;
            r1.sh(&format!("ip link set {port} master {bridge}"))?;
        }
        r2.address("eth1", "192.168.1.2/24", None)?;
        r2.address("eth2", "192.168.2.2/24", None)?;
        a.address("eth0", "192.168.1.11/24", Some(ROUTER))?;
        c.address("eth0", "192.168.2.13/24", Some("192.168.2.1"))?;
        Ok(Self { a, c, r1, r2 })
    }

    fn store(&self) -> &Node {
        &self.r1
    }
}

/// Two nodes on one cable: `eth0` to `eth0`, 192.168.1.11 and 192.168.1.12, 2001:db8:1::11 and
/// 2001:db8:1::12.
#[derive(Clone, Debug)]
pub struct Two {
    /// 192.168.1.11.
    pub a: Node,
    /// 192.168.1.12.
    pub b: Node,
}

/// The address of the second node of [`Two`].
pub const SECOND: &str = "192.168.1.12";

impl Topology for Two {
    const STORE: [&'static str; 2] = [SECOND, "[2001:db8:1::12]"];

    fn with(lab: &Lab, stack: Stack) -> Result<Self> {
        Self::named(lab, ["a", "b"], stack)
    }

    fn store(&self) -> &Node {
        &self.b
    }
}

impl Two {
    /// The underlay for IPv4.
    pub fn new(lab: &Lab) -> Result<Self> {
        Self::with(lab, Stack::V4)
    }

    /// The underlay with names that are not taken in this lab.
    pub fn named(lab: &Lab, [a, b]: [&str; 2], stack: Stack) -> Result<Self> {
        let (a, b) = (lab.node(a)?, lab.node(b)?);
        lab.link(&a, "eth0", &b, "eth0")?;
        for (node, number) in [(&a, 11), (&b, 12)] {
            let (v4, v6) = (
                format!("192.168.1.{number}/24"),
                format!("2001:db8:1::{number}/64"),
            );
            stack.address(node, "eth0", (&v4, None), (&v6, None))?;
        }
        Ok(Self { a, b })
    }
}

/// `a` and `c` with two cables each, to two routers, and their addresses on `lo`: leaf and spine,
/// with routes as BGP would set them.
///
/// ```text
///                     eth0 192.168.1.11 --- 192.168.1.1 r1 192.168.3.1 --- eth0 192.168.3.13
///   a lo 10.255.0.11                                                      c lo 10.255.0.13
///                     eth1 192.168.2.11 --- 192.168.2.1 r2 192.168.4.1 --- eth1 192.168.4.13
/// ```
///
/// With IPv6 the addresses on `lo` are 2001:db8:ff::11 and 2001:db8:ff::13, and the segments
/// 2001:db8:1::/64 and so on. `r1` runs etcd. The routers' ends of the cables are `eth-a` and
/// `eth-c`.
#[derive(Clone, Debug)]
pub struct LeafSpine {
    /// 10.255.0.11.
    pub a: Node,
    /// 10.255.0.13.
    pub c: Node,
    /// Behind `eth0` of both.
    pub r1: Node,
    /// Behind `eth1` of both.
    pub r2: Node,
    stack: Stack,
}

/// A node of [`LeafSpine`] with the number of its addresses, those of its segments, and the number
/// of the other node.
type Leaf<'a> = (&'a Node, u8, [u8; 2], u8);

impl Topology for LeafSpine {
    const STORE: [&'static str; 2] = ["10.255.0.1", "[2001:db8:ff::1]"];

    /// Flows are spread by addresses and ports.
    fn with(lab: &Lab, stack: Stack) -> Result<Self> {
        let (r1, r2, a, c) = (
            lab.node("r1")?,
            lab.node("r2")?,
            lab.node("a")?,
            lab.node("c")?,
        );
        let net = Self {
            a,
            c,
            r1,
            r2,
            stack,
        };
        stack.address(
            &net.r1,
            "lo",
            ("10.255.0.1/32", None),
            ("2001:db8:ff::1/128", None),
        )?;
        for (node, number, segments, _) in net.leaves() {
            for key in [
                "net.ipv4.fib_multipath_hash_policy",
                "net.ipv6.fib_multipath_hash_policy",
            ] {
                node.sh(&format!("sysctl -qw {key}=1"))?;
            }
            let (v4, v6) = (
                format!("10.255.0.{number}/32"),
                format!("2001:db8:ff::{number}/128"),
            );
            stack.address(node, "lo", (&v4, None), (&v6, None))?;
            let port = format!("eth-{}", node.name());
            net.connect(lab, (node, number), segments)?;
            let [first, second] = segments;
            net.each_family(|family, [lo, gateway]| {
                let hop = |segment: u8, host: u8| {
                    format!("{}{host}", gateway.replace('N', &segment.to_string()))
                };
                node.sh(&format!(
                    "ip {family} route add {lo}1 via {} dev eth0",
                    hop(first, 1)
                ))?;
                for (router, segment) in [(&net.r1, first), (&net.r2, second)] {
                    router.sh(&format!(
                        "ip {family} route add {lo}{number} via {} dev {port}",
                        hop(segment, number)
                    ))?;
                }
                Ok(())
            })?;
            net.lead(node, &[0, 1])?;
        }
        Ok(net)
    }

    fn store(&self) -> &Node {
        &self.r1
    }
}

impl LeafSpine {
    /// Connects a node to both routers by cables with these segments.
    fn connect(&self, lab: &Lab, (node, number): (&Node, u8), segments: [u8; 2]) -> Result<()> {
        let port = format!("eth-{}", node.name());
        for ((router, device), segment) in [(&self.r1, "eth0"), (&self.r2, "eth1")]
            .into_iter()
            .zip(segments)
        {
            lab.link(node, device, router, &port)?;
            let ends = |host| {
                (
                    format!("192.168.{segment}.{host}/24"),
                    format!("2001:db8:{segment}::{host}/64"),
                )
            };
            for (node, device, (v4, v6)) in [(node, device, ends(number)), (router, &port, ends(1))]
            {
                self.stack.address(node, device, (&v4, None), (&v6, None))?;
            }
        }
        Ok(())
    }

    /// Leads a node to the other one by these cables: 0, 1, or both.
    pub fn lead(&self, node: &Node, cables: &[usize]) -> Result<()> {
        let leaves = self.leaves();
        let Some((_, _, segments, other)) =
            leaves.into_iter().find(|leaf| leaf.0.name() == node.name())
        else {
            anyhow::bail!("{} is no leaf", node.name());
        };
        self.each_family(|family, [lo, gateway]| {
            let hop = |cable: &usize| {
                let gateway = gateway.replace('N', &segments[*cable].to_string());
                format!("nexthop via {gateway}1 dev eth{cable}")
            };
            let hops: Vec<_> = cables.iter().map(hop).collect();
            node.sh(&format!(
                "ip {family} route replace {lo}{other} {}",
                hops.join(" ")
            ))
            .map(drop)
        })
    }

    fn leaves(&self) -> [Leaf<'_>; 2] {
        [(&self.a, 11, [1, 2], 13), (&self.c, 13, [3, 4], 11)]
    }

    /// For each family its flag of `ip`, and the beginnings of addresses on `lo` and on segment
    /// `N`.
    fn each_family(&self, mut then: impl FnMut(&str, [&str; 2]) -> Result<()>) -> Result<()> {
        if self.stack.has_v4() {
            then("-4", ["10.255.0.", "192.168.N."])?;
        }
        if self.stack.has_v6() {
            then("-6", ["2001:db8:ff::", "2001:db8:N::"])?;
        }
        Ok(())
    }
}
