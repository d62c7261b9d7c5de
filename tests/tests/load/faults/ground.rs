//! Two nodes, of which one has its store behind a faulty proxy and its state on a small disk.

use std::{
    cell::Cell,
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Pod, StockNode, TwoNodes,
    cluster::topology::SECOND,
    eventually,
    fast::FLAGS,
    faults::proxy::FaultyProxy,
    load::{UdpLoad, UdpReport, UdpRun},
    throughout,
};

use super::list::Fault;

/// Longer than the five seconds for which flows are replayed without an agent.
const LENGTH: Duration = Duration::from_secs(7);
/// Back-off included.
const RECOVERY: Duration = Duration::from_secs(40);
const LOAD: UdpLoad = UdpLoad {
    pps: 1_000,
    duration: Duration::from_secs(100),
    payload: 64,
};
/// Subnets below are those of the nodes that join.
const CONFIG: &str =
    r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.200.0","Backend":{"Type":"vxlan"}}"#;
const PROXY_PORT: u16 = 2378;

/// The lab in which faults happen to the first node's agent.
pub(super) struct Ground {
    /// The agent faults happen to.
    pub(super) agent: Agent,
    /// Between it and etcd.
    pub(super) proxy: FaultyProxy,
    near: Pod,
    far: Pod,
    joined: Cell<u8>,
    _other: Agent,
    /// Both nodes and etcd.
    pub(super) nodes: TwoNodes,
}

/// The result of a fault: the packets sent and lost, and the time from its end to the recovery.
pub(super) struct Outcome {
    name: &'static str,
    report: UdpReport,
    recovered: Duration,
}

impl Ground {
    pub(super) fn new() -> Result<Self> {
        let nodes = TwoNodes::new("faults", CONFIG)?;
        nodes.a.sh("mkdir -p /run/flannel")?;
        nodes
            .a
            .sh("mount -t tmpfs -o size=64k,mode=755 tmpfs /run/flannel")?;
        let proxy = FaultyProxy::start(
            &nodes.b,
            format!("{SECOND}:{PROXY_PORT}").parse()?,
            "127.0.0.1:2379".parse()?,
        )?;
        let with_flags =
            |options: AgentOptions| FLAGS.into_iter().fold(options, AgentOptions::flag);
        let agent = nodes.a.agent(with_flags(AgentOptions::etcd(&format!(
            "http://{SECOND}:{PROXY_PORT}"
        ))?))?;
        let other = nodes.b.agent(with_flags(nodes.options()?))?;
        for agent in [&agent, &other] {
            agent.wait_ready()?;
            agent.wait_peers(1)?;
        }
        let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
        agent.wait_pod(&near, true, true)?;
        other.wait_pod(&far, true, true)?;
        Ok(Self {
            agent,
            proxy,
            near,
            far,
            joined: Cell::new(100),
            _other: other,
            nodes,
        })
    }

    /// Lets a fault happen while known peers talk and a node joins.
    pub(super) fn endure(&self, fault: &Fault) -> Result<Outcome> {
        let run = UdpRun::start(&self.near, &self.far, self.far.ip(), LOAD)?;
        let replayed = self.agent.replayed()?;
        eventually("a replayed flow", Duration::from_secs(15), || {
            ensure!(self.agent.replayed()? > replayed + 500);
            Ok(())
        })?;
        fault.begin(self)?;
        let subnet = self.join()?;
        // What the fault is, not a wait for anything: the store answers late, the disk is full, for
        // so long.
        throughout(fault.name, LENGTH, || {
            (fault.kills() || self.agent.child().is_running()).then_some(())
        })?;
        fault.end(self)?;
        let end = Instant::now();
        eventually(&format!("recovery after: {}", fault.name), RECOVERY, || {
            self.is_recovered(&subnet)
        })?;
        let recovered = end.elapsed();
        let report = run.stop()?;
        Ok(Outcome {
            name: fault.name,
            report,
            recovered,
        })
    }

    /// A node joins the cluster; its subnet.
    fn join(&self) -> Result<String> {
        let number = self.joined.replace(self.joined.get() + 1);
        let address = format!("192.168.1.{number}");
        StockNode::vxlan(number, &address, &format!("02:00:00:00:00:{number:02x}"))
            .put(&self.nodes.etcd)?;
        Ok(format!("10.244.{number}.0/24"))
    }

    /// The agent is ready, `subnet.env` is there, and the node that joined is reached.
    fn is_recovered(&self, subnet: &str) -> Result<()> {
        let routes = self
            .nodes
            .a
            .sh(&format!("ip -o route show {subnet}"))?
            .stdout;
        ensure!(routes.contains("flannel.1"), "no route to {subnet}");
        self.nodes.a.subnet_env()?;
        let status = self.agent.status()?;
        ensure!(status["ready"] == true, "{status}");
        Ok(())
    }
}

impl Outcome {
    /// Returns an error text if packets were lost.
    pub(super) fn complaint(&self) -> Option<String> {
        self.report
            .expect_complete()
            .err()
            .map(|error| format!("{}: {error:#}", self.name))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            report,
            recovered,
        } = self;
        write!(
            f,
            "{name:<44} {:>8} {:>6} {:>10.2} s",
            report.sent,
            report.lost_count(),
            recovered.as_secs_f64()
        )
    }
}
