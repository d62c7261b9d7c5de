//! Three nodes of stock flannel with a pod each. `a` is the one that changes hands, `b` the one
//! that moves, `c` stays as it is.

use std::{ops::Deref, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node, Pod, StockNode, ThreeNodes, TunnelState,
    cluster::{LEASES, VXLAN},
    eventually,
    fast::Family,
    service_rules::{Backend, ServiceRules},
    stock::Flanneld,
};

/// The cluster.
pub(crate) struct World {
    pub(crate) stock: Flanneld,
    pub(crate) mover: Flanneld,
    far: Flanneld,
    /// On `a`, `b` and `c`.
    pub(crate) pods: [Pod; 3],
    // Last: the lab goes when its handles are of no use any more.
    nodes: ThreeNodes,
}

impl Deref for World {
    type Target = ThreeNodes;

    fn deref(&self) -> &ThreeNodes {
        &self.nodes
    }
}

impl World {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let net = ThreeNodes::new(name, VXLAN)?;
        let flanneld = |node: &Node, number: u8, public_ip: &str| -> Result<Flanneld> {
            let stock = Flanneld {
                node: node.clone(),
                number,
                public_ip: public_ip.to_owned(),
            };
            stock.start(&net.etcd).map(|_| stock)
        };
        // As on a node of Kubernetes. Where no other rule needs conntrack, it ends with the last of
        // flannel's, and with it what it translates; and stock empties its chains when it starts.
        ServiceRules::install(&net.a, Backend::Nftables, Family::V4.pods())?;
        let far = flanneld(&net.c, 103, "192.168.2.13")?;
        let mover = flanneld(&net.b, 102, "192.168.1.12")?;
        let stock = flanneld(&net.a, 101, "192.168.1.11")?;
        let pods = [
            net.a.add_pod("p1")?,
            net.b.add_pod("p1")?,
            net.c.add_pod("p1")?,
        ];
        let world = Self {
            stock,
            mover,
            far,
            pods,
            nodes: net,
        };
        // The agent that started first does not know the later ones.
        world.apply_leases(&[&world.mover, &world.far])?;
        for to in &world.pods[1..] {
            world.pods[0].wait_ping(to.ip())?;
        }
        Ok(world)
    }

    /// Applies all leases in etcd to nodes of stock flannel, except each node's own.
    pub(crate) fn apply_leases(&self, nodes: &[&Flanneld]) -> Result<()> {
        for (key, value) in self.etcd.list(LEASES)? {
            let lease = StockNode::read(&key, &value)?;
            for node in nodes
                .iter()
                .filter(|node| lease.name() != format!("10.244.{}.0-24", node.number))
            {
                node.learn(&lease)?;
            }
        }
        Ok(())
    }

    /// Applies all leases in etcd to `b` and `c`.
    pub(crate) fn apply_leases_to_others(&self) -> Result<()> {
        self.apply_leases(&[&self.mover, &self.far])
    }

    /// Moves `b` to another address, with another device: stock flannel recreates it.
    pub(crate) fn move_peer(&mut self, to: &str) -> Result<()> {
        let node = self.mover.node.clone();
        node.sh("sysctl -qw net.ipv4.conf.eth0.promote_secondaries=1")?;
        node.address("eth0", &format!("{to}/24"), None)?;
        let from = std::mem::replace(&mut self.mover.public_ip, to.to_owned());
        self.mover.start(&self.etcd)?;
        self.apply_leases_to_others()?;
        node.sh(&format!("ip address del {from}/24 dev eth0"))
            .map(drop)
    }

    /// Starts the agent with the flags of the flanneld that was there, and waits until it carries
    /// the pods' packets.
    pub(crate) fn upgrade(&self) -> Result<Agent> {
        let agent = self.a.ready_agent(self.options()?.flag("--ip-masq"))?;
        agent.wait_peers(2)?;
        let carried = || -> Result<u64> {
            Ok(agent.counted("to_tunnel", "encapsulated")?
                + agent.counted("from_pod", "replayed")?)
        };
        let start = carried()?;
        eventually(
            "packets carried by the programs",
            Duration::from_secs(20),
            || {
                let packets = carried()? - start;
                ensure!(packets > 500, "{packets}");
                Ok(())
            },
        )?;
        Ok(agent)
    }

    /// Returns the state on `a` that both stock flannel and the agent must leave unchanged: the
    /// device with its MAC address, everything on it, the routes, the rules with their handles, the
    /// lease and subnet.env.
    pub(crate) fn kept(&self) -> Result<Kept> {
        let a = &self.net.a;
        let own = StockNode::vxlan(self.stock.number, "", "").key();
        Ok(Kept {
            device: a.sh("ip -o -d link show flannel.1")?.stdout,
            tunnel: TunnelState::of(a)?,
            rules: a.sh("nft -s -a list ruleset")?.stdout,
            lease: self.etcd.get(&own)?.context("a lease")?,
            subnet_env: a.sh("cat /run/flannel/subnet.env")?.stdout,
        })
    }
}

/// See [`World::kept`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) device: String,
    pub(crate) tunnel: TunnelState,
    pub(crate) rules: String,
    pub(crate) lease: String,
    pub(crate) subnet_env: String,
}
