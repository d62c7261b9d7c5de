//! Sender and receiver: two nodes with a router between them, an agent and a pod on each.

use std::{ops::Deref, time::Duration};

use anyhow::{Result, ensure};

use crate::{
    Agent, Node, Nodes, Pod,
    cluster::{
        self,
        nodes::ready_agents,
        topology::{LeafSpine, Stack, Three, Topology, TwoRouters},
    },
    eventually,
    load::{UdpLoad, UdpRun},
};

/// Nodes `a` and `c` of a topology, ready. In [`Three`], `b` carries nothing.
#[derive(Debug)]
pub struct Pair<N = Three> {
    /// The agent of `a`.
    pub sender: Agent,
    /// The agent of `c`.
    pub receiver: Agent,
    /// A pod on `a`.
    pub near: Pod,
    /// A pod on `c`.
    pub far: Pod,
    // Last: the lab goes when its handles are of no use any more.
    nodes: Nodes<N>,
}

impl<N> Deref for Pair<N> {
    type Target = Nodes<N>;

    fn deref(&self) -> &Nodes<N> {
        &self.nodes
    }
}

impl Pair {
    /// With vxlan, in mode `encap`: the suites of that mode begin here. Those of mode `fast` begin
    /// with `fast::fast_pair`.
    pub fn new(name: &str) -> Result<Self> {
        Self::with_flags(name, &[])
    }

    /// With more flags for both agents, which may name another mode.
    pub fn with_flags(name: &str, flags: &[&str]) -> Result<Self> {
        Self::with(name, Stack::V4, flags)
    }

    /// The same, with these families.
    pub fn with(name: &str, stack: Stack, flags: &[&str]) -> Result<Self> {
        Self::between(name, stack, r#"{"Type":"vxlan"}"#, flags, |net| {
            [&net.a, &net.c]
        })
    }

    /// Neighbours instead, nodes `a` and `b`, which reach each other without a tunnel.
    pub fn direct(name: &str, stack: Stack, flags: &[&str]) -> Result<Self> {
        Self::between(
            name,
            stack,
            r#"{"Type":"vxlan","DirectRouting":true}"#,
            flags,
            |net| [&net.a, &net.b],
        )
    }

    /// The same neighbours with the backend host-gw, which has no tunnels at all.
    pub fn host_gw(name: &str, stack: Stack, flags: &[&str]) -> Result<Self> {
        Self::of_backend(name, stack, cluster::HOST_GW, flags)
    }

    /// The same neighbours with this backend, as a JSON text.
    pub fn of_backend(name: &str, stack: Stack, backend: &str, flags: &[&str]) -> Result<Self> {
        Self::between(name, stack, backend, flags, |net| [&net.a, &net.b])
    }
}

impl Pair<TwoRouters> {
    /// With two routers between the nodes, of which both use the first.
    pub fn with_two_routers(name: &str, flags: &[&str]) -> Result<Self> {
        Self::between(name, Stack::V4, r#"{"Type":"vxlan"}"#, flags, |net| {
            [&net.a, &net.c]
        })
    }
}

impl Pair<LeafSpine> {
    /// With two ways from each node to the other, over two cables.
    pub fn with_two_cables(name: &str, stack: Stack) -> Result<Self> {
        // The MTU of `lo` says nothing about the cables.
        let backend = r#"{"Type":"vxlan","MTU":1500}"#;
        Self::between(name, stack, backend, &["--iface=lo"], |net| {
            [&net.a, &net.c]
        })
    }
}

impl<N: Topology> Pair<N> {
    fn between(
        name: &str,
        stack: Stack,
        backend: &str,
        flags: &[&str],
        ends: impl FnOnce(&N) -> [&Node; 2],
    ) -> Result<Self> {
        let nodes = Nodes::<N>::with(name, stack, &cluster::config(stack, backend))?;
        let mut options = nodes.options()?;
        if !flags.iter().any(|flag| flag.starts_with("--datapath=")) {
            options = options.flag("--datapath=encap");
        }
        let ends = ends(&nodes.net);
        let [sender, receiver] = ready_agents(ends, &options.with(flags))?;
        let (near, far) = (ends[0].add_pod("p1")?, ends[1].add_pod("p1")?);
        // Set-up: tests of what is ready at once ping for themselves.
        if far.ip().is_ipv4() {
            near.wait_ping(far.ip())?;
        }
        far.ip6().map(|v6| near.wait_ping(v6)).transpose()?;
        Ok(Self {
            sender,
            receiver,
            near,
            far,
            nodes,
        })
    }
}

impl<N> Pair<N> {
    /// Puts both agents in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.sender.set_mode(mode)?;
        self.receiver.set_mode(mode)
    }

    /// Sets both nodes' cables up: [`OFFLOAD`](crate::cluster::topology::OFFLOAD) or
    /// [`WIRE`](crate::cluster::topology::WIRE).
    pub fn set_offloads(&self, features: &str) -> Result<()> {
        for node in [self.sender.node(), self.receiver.node()] {
            node.sh(&format!("ethtool -K eth0 {features}"))?;
        }
        Ok(())
    }

    /// Returns true if packets between the nodes take a tunnel, not a plain route.
    pub fn has_tunnel(&self) -> Result<bool> {
        let address = self.far.ip();
        Ok(self
            .sender
            .node()
            .sh(&format!("ip route get {address}"))?
            .stdout
            .contains("dev flannel"))
    }

    /// Packets the programs of `a` encapsulated so far.
    pub fn encapsulated(&self) -> Result<u64> {
        self.sender.counted("to_tunnel", "encapsulated")
    }

    /// Returns the number of frames that came out of the tunnel on `c` so far, from any sender.
    pub fn received(&self) -> Result<u64> {
        let device = if self.far.ip().is_ipv4() {
            "flannel.1"
        } else {
            "flannel-v6.1"
        };
        self.receiver.node().device_counter(device, "rx_packets")
    }

    /// Waits until duplicate address detection has ended. Its events make an agent read the
    /// underlay again, which hides whether it saw another event.
    pub fn wait_dad(&self) -> Result<()> {
        wait_dad(self.sender.node())?;
        wait_dad(self.receiver.node())
    }

    /// A stream of small datagrams from pod to pod; it ends when stopped, or after `limit`.
    pub fn stream(&self, pps: u32, limit: Duration) -> Result<UdpRun> {
        UdpRun::start(
            &self.near,
            &self.far,
            self.far.ip(),
            UdpLoad {
                pps,
                duration: limit,
                payload: 64,
            },
        )
    }

    /// Waits until the programs of `a` encapsulated `packets` more packets.
    pub fn wait_encapsulated(&self, packets: u64) -> Result<()> {
        let start = self.encapsulated()?;
        eventually("encapsulated packets", Duration::from_secs(15), || {
            let now = self.encapsulated()? - start;
            ensure!(now >= packets, "{now} of {packets}");
            Ok(())
        })
    }

    /// Pings until the programs of `a` encapsulate the packet. If the path was idle, the first
    /// packet validates it.
    pub fn wait_encapsulated_while_pinging(&self) -> Result<()> {
        let start = self.encapsulated()?;
        eventually("encapsulated pings", Duration::from_secs(5), || {
            self.near.ping(self.far.ip())?;
            let now = self.encapsulated()? - start;
            ensure!(now > 0, "none");
            Ok(())
        })
    }

    /// Waits until `packets` more packets came out of the tunnel on `c`.
    pub fn wait_received(&self, packets: u64) -> Result<()> {
        let start = self.received()?;
        eventually("packets out of the tunnel", Duration::from_secs(15), || {
            let now = self.received()? - start;
            ensure!(now >= packets, "{now} of {packets}");
            Ok(())
        })
    }
}

/// As [`Pair::wait_dad`], for one node.
pub fn wait_dad(node: &Node) -> Result<()> {
    eventually("link-local addresses", Duration::from_secs(10), || {
        let of = |flags: &str| {
            node.sh(&format!("ip -6 address show dev eth0 {flags}"))
                .map(|output| output.stdout)
        };
        ensure!(
            of("tentative")?.is_empty() && of("scope link")?.contains("fe80::"),
            "{}",
            of("")?
        );
        Ok(())
    })
}
