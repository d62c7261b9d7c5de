//! The store with its leases, and one fresh node after the other that follows it.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    announce::{Announcements, Sight},
    change::{Changes, changes},
    peers::NumberedPeer,
    store::{Kind, Store},
};
use crate::{Agent, Lab, Node, eventually};

/// The router, which runs the store.
const ROUTER: &str = "192.168.1.1";
/// From the last route to the programs.
const READY_LIMIT: Duration = Duration::from_mins(1);
/// The agent's log line once it has read all leases.
const IN_SYNC: &str = "the store is in sync";

/// The underlay of one node: a cable without a neighbour, with the route to all peers.
pub(super) struct Underlay;

impl Underlay {
    pub(super) fn of(node: &Node) -> Result<()> {
        node.sh("ip link add eth0 type veth peer name peer0")?;
        node.sh("ip link set peer0 up")?;
        node.sh("ip link set eth0 up")?;
        node.address("eth0", "192.168.1.11/24", Some(ROUTER))
    }
}

/// A store full of leases.
pub(super) struct Cluster {
    router: Node,
    store: Store,
    peers: u32,
    // Last: the lab goes when its handles are of no use any more.
    lab: Lab,
}

/// The measurements of one start of an agent, in seconds and MB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) to_last_route: f64,
    pub(super) cpu_to_last_route: f64,
    pub(super) sync_to_last_route: f64,
    pub(super) changes: Changes,
    pub(super) nexthops: u64,
    pub(super) peak_rss: f64,
    pub(super) steady_rss: f64,
    pub(super) own_rss: f64,
}

impl Cluster {
    pub(super) fn new(kind: Kind, peers: u32) -> Result<Self> {
        let lab = Lab::new("scale")?;
        lab.end_on_interrupt()?;
        let router = lab.node("store")?;
        router.sh("ip link add br0 type bridge")?;
        router.sh("ip link set br0 up")?;
        router.address("br0", &format!("{ROUTER}/24"), None)?;
        let store = Store::start(kind, &lab, &router, ROUTER, peers)?;
        Ok(Self {
            router,
            store,
            peers,
            lab,
        })
    }

    pub(super) const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Starts an agent on a fresh node, waits until it has followed, and lets one more peer come
    /// and go.
    pub(super) fn start(&self, times: u32) -> Result<Start> {
        let node = self.lab.node("node")?;
        self.lab.link(&node, "eth0", &self.router, "port")?;
        self.router.sh("ip link set port master br0")?;
        node.address("eth0", "192.168.1.11/24", Some(ROUTER))?;
        let mut heard = node.enter(Announcements::listen)??;
        let options = self.store.agent(&node, ROUTER)?.flag("--log-format=json");
        let start = SystemTime::now();
        let agent = node.agent(options)?;
        let routed = heard
            .until(Sight::Route, self.peers)
            .with_context(|| agent.child().log_tail(15))?;
        let cpu_to_last_route = agent.cpu_time()?.as_secs_f64();
        let nexthops = heard.nexthops;
        // Not by its status, which is a large document here. The file comes after the programs.
        let env = eventually("subnet.env", READY_LIMIT, || node.subnet_env())?;
        let changes = changes(&self.store, &mut heard, NumberedPeer(self.peers + 1), times)?;
        let measured = Start {
            to_last_route: routed.duration_since(start)?.as_secs_f64(),
            cpu_to_last_route,
            sync_to_last_route: time_of_day(routed)? - in_sync_at(&agent)?,
            changes,
            nexthops,
            peak_rss: megabytes(&agent, "VmHWM")?,
            steady_rss: megabytes(&agent, "VmRSS")?,
            own_rss: megabytes(&agent, "RssAnon")?,
        };
        agent.sigterm_and_wait()?;
        node.end()?;
        // The next node has the same address: it would ask this one about its lease, for 2 s.
        let subnet = env.subnets.first().context("a subnet")?;
        self.store.release(*subnet)?;
        Ok(measured)
    }
}

/// When the agent had read all leases, as the time of day (UTC) in seconds. A run around midnight
/// is a bad one.
fn in_sync_at(agent: &Agent) -> Result<f64> {
    let log = agent.child().log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with(IN_SYNC))
    });
    let line = found
        .next()
        .with_context(|| format!("no {IN_SYNC:?} in the agent's log"))?;
    let time = line["timestamp"]
        .as_str()
        .and_then(|text| text.split_once('T'))
        .context("a line without its time")?
        .1;
    let fields: Vec<f64> = time
        .trim_end_matches('Z')
        .split(':')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(fields.iter().fold(0.0, |sum, field| sum * 60.0 + field))
}

fn time_of_day(time: SystemTime) -> Result<f64> {
    Ok(time.duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() % 86_400.0)
}

/// A field of `/proc/<pid>/status` in MB (10^6 bytes).
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn megabytes(agent: &Agent, field: &str) -> Result<f64> {
    Ok(agent.memory(field)? as f64 / 1e6)
}
