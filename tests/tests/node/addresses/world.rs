//! Two nodes on a segment with a store on its router; the addresses of the first one are what a
//! test makes of them.

use std::{fs, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Etcd, Lab, Node, Pod,
    cluster::{
        config,
        etcd::CONFIG_KEY,
        topology::{ROUTER, Stack, Three, Topology as _},
    },
    eventually,
    load::{UdpLoad, UdpRun},
};
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};

use crate::pod::api_server::Double;

const NET_CONFIG: &str = "/run/net-conf.json";
const PORT: u16 = 6443;
/// Longer than any change takes.
const LIMIT: Duration = Duration::from_secs(40);
/// Datagrams a second in each direction.
const PPS: u32 = 200;

/// The kind of store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Etcd,
    Kubernetes,
}

/// The store, held until the end.
enum Store {
    Etcd(Etcd),
    Kubernetes { _double: Double, _runtime: Runtime },
}

pub(super) struct World {
    pub(super) agents: [Agent; 2],
    pub(super) pods: [Pod; 2],
    pub(super) net: Three,
    store: Store,
    // Last: the lab goes when its handles are of no use any more.
    lab: Lab,
}

impl World {
    /// `setup` are commands on the first node before its agent starts, which chooses by itself.
    pub(super) fn new(
        name: &str,
        stack: Stack,
        kind: Kind,
        mode: &str,
        setup: &[&str],
    ) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Three::with(&lab, stack)?;
        let store = Store::start(kind, stack, &lab, &net)?;
        setup.iter().try_for_each(|line| net.a.sh(line).map(drop))?;
        let flag = format!("--datapath={mode}");
        let agents = [
            store.agent(&net.a, stack, "a", &[&flag])?,
            store.agent(&net.b, stack, "b", &[&flag])?,
        ];
        agents.iter().try_for_each(Agent::wait_ready)?;
        let pods = [net.a.add_pod("p1")?, net.b.add_pod("p1")?];
        let world = Self {
            agents,
            pods,
            net,
            store,
            lab,
        };
        for address in world.pods[1].addresses() {
            world.pods[0].wait_ping(*address)?;
        }
        Ok(world)
    }

    /// Another agent of the first node, without an interface but by these flags.
    pub(super) fn agent_of_a(&self, flags: &[&str]) -> Result<Agent> {
        self.store.agent(&self.net.a, Stack::V4, "a", flags)
    }

    /// Gives the first node a second cable, to another network.
    pub(super) fn second_uplink(&self) -> Result<()> {
        self.lab.link(&self.net.a, "eth1", &self.net.r, "eth-a1")?;
        self.net.r.address("eth-a1", "192.168.3.1/24", None)?;
        self.net.a.address("eth1", "192.168.3.11/24", None)
    }

    /// Runs commands on the first node.
    pub(super) fn on_a(&self, lines: &[&str]) -> Result<()> {
        lines
            .iter()
            .try_for_each(|line| self.net.a.sh(line).map(drop))
    }

    /// The address of the first node that the second one sends to.
    pub(super) fn published(&self, stack: Stack) -> Result<IpAddr> {
        let status = self.agents[1].status()?;
        let peers = status["peers"].as_array().context("peers")?;
        let is_wanted = |address: &IpAddr| address.is_ipv6() == stack.has_v6();
        let mut found = peers
            .iter()
            .filter_map(|peer| peer["public_ip"].as_str()?.parse().ok());
        found.find(is_wanted).with_context(|| format!("{status}"))
    }

    /// Waits until the first node is published with `address`, and is ready.
    pub(super) fn wait_published(&self, address: &str) -> Result<()> {
        let address: IpAddr = address.parse()?;
        let stack = if address.is_ipv6() {
            Stack::Dual
        } else {
            Stack::V4
        };
        eventually(&format!("the peer at {address}"), LIMIT, || {
            let published = self.published(stack)?;
            ensure!(published == address, "published with {published}");
            Ok(())
        })?;
        self.agents[0].wait_ready_is(true).map(drop)
    }

    /// Runs `change` under a stream of datagrams in each direction, from pod to pod, and returns
    /// the longest time without one.
    pub(super) fn under_traffic(
        &self,
        v6: bool,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<Duration> {
        let [near, far] = &self.pods;
        let load = UdpLoad {
            pps: PPS,
            duration: Duration::from_mins(2),
            payload: 64,
        };
        let at = |pod: &Pod| {
            if v6 {
                pod.ip6().context("an IPv6 address")
            } else {
                Ok(pod.ip())
            }
        };
        let runs = [
            UdpRun::start(near, far, at(far)?, load)?,
            UdpRun::start(far, near, at(near)?, load)?,
        ];
        change()?;
        // Packets flow again before the streams end.
        near.wait_ping(at(far)?)?;
        far.wait_ping(at(near)?)?;
        let reports = runs
            .into_iter()
            .map(UdpRun::stop)
            .collect::<Result<Vec<_>>>()?;
        Ok(reports
            .iter()
            .map(|report| report.longest_gap)
            .max()
            .unwrap_or_default())
    }

    /// The agents find no fault with their own leases, however their addresses change.
    pub(super) fn expect_no_refusals(&self) {
        for agent in &self.agents {
            assert_eq!(
                agent.log_count("overlaps ours"),
                0,
                "{}",
                agent.child().log()
            );
        }
    }
}

impl Store {
    fn start(kind: Kind, stack: Stack, lab: &Lab, net: &Three) -> Result<Self> {
        match kind {
            Kind::Etcd => {
                let etcd = lab.etcd(&net.r)?;
                etcd.put(CONFIG_KEY, &config(stack, r#"{"Type":"vxlan"}"#), None)?;
                Ok(Self::Etcd(etcd))
            }
            // The thread of the server stays in the namespaces of the one that makes it.
            Kind::Kubernetes => net.r.enter(|| -> Result<Self> {
                let runtime = runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()?;
                let double = runtime.block_on(Double::start_at(&format!("{ROUTER}:{PORT}"), None));
                double.change(|state| {
                    (1..)
                        .zip(["a", "b"])
                        .for_each(|(number, name)| state.put(node(name, number)));
                });
                Ok(Self::Kubernetes {
                    _double: double,
                    _runtime: runtime,
                })
            })?,
        }
    }

    fn agent(&self, node: &Node, stack: Stack, name: &str, flags: &[&str]) -> Result<Agent> {
        let mut options = self.options(node, stack, name)?;
        options.flags.retain(|flag| !flag.starts_with("--iface"));
        node.agent(options.flags(flags))
    }

    fn options(&self, node: &Node, stack: Stack, name: &str) -> Result<AgentOptions> {
        match self {
            Self::Etcd(etcd) => AgentOptions::etcd(&etcd.endpoint(ROUTER)),
            Self::Kubernetes { .. } => {
                fs::write(
                    node.outside_path(NET_CONFIG),
                    config(stack, r#"{"Type":"vxlan"}"#),
                )?;
                AgentOptions::kubernetes(&format!("http://{ROUTER}:{PORT}"), name, NET_CONFIG)
            }
        }
    }
}

/// A Node with subnets of both families.
fn node(name: &str, number: u8) -> Value {
    let cidrs = [
        format!("10.244.{number}.0/24"),
        format!("fd00:10:244:{number}::/64"),
    ];
    let meta = json!({
        "name": name,
        "uid": name,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {},
    });
    let spec = json!({ "podCIDR": cidrs[0], "podCIDRs": cidrs });
    json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": spec })
}
