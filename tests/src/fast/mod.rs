//! Two nodes with agents in mode `fast`, as an operator runs them.

pub mod arrivals;
mod conversation;
mod lab;
pub mod pairs;

pub use self::{
    conversation::{Conversation, Family, PORT},
    lab::FastLab,
};

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_datapath::{
    PinRoot,
    maps::{ModeMap, StatsMap},
};
use serde_json::Value;

use crate::{
    Agent, Pair, Pod,
    agent::pins::ROOT,
    cluster::topology::{Stack, TwoRouters},
    eventually,
    no_agent::Talk,
};

/// The flags of an agent in mode `fast`. Masquerade is on, as in most clusters: conntrack is active
/// only if rules need it.
pub const FLAGS: [&str; 2] = ["--datapath=fast", "--ip-masq=true"];

impl Agent {
    /// Packets of known flows taken so far: from pods, and out of the tunnel.
    pub fn replayed(&self) -> Result<u64> {
        REPLAYING
            .iter()
            .map(|program| self.counted(program.name(), Reason::Replayed.name()))
            .sum()
    }

    /// Begins this number of generations. Each makes the programs observe all flows again.
    pub fn begin_generations(&self, number: u32) -> Result<()> {
        let open = || ModeMap::open(&PinRoot::new(ROOT.as_ref()));
        let mut mode = self.node().enter(open)??;
        (0..number).try_for_each(|_| Ok(mode.bump()?))
    }

    /// Returns the entry of `status` for a pod of this node in mode `fast`.
    pub fn pod_status(&self, pod: &Pod) -> Result<Value> {
        let status = self.status()?;
        let pods = status["fast"]["pods"]
            .as_array()
            .with_context(|| format!("not in mode fast: {status}"))?;
        let row = pods.iter().find(|row| row["veth"] == pod.veth());
        row.cloned()
            .with_context(|| format!("no pod {} in {pods:?}", pod.veth()))
    }

    /// Waits until packets from and to this pod may be replayed, or may not, as `status` says.
    pub fn wait_pod(&self, pod: &Pod, sends: bool, receives: bool) -> Result<()> {
        eventually(
            &format!("{}: sends {sends}, receives {receives}", pod.veth()),
            Duration::from_secs(10),
            || {
                let row = self.pod_status(pod)?;
                ensure!(
                    row["sends"] == sends && row["receives"] == receives,
                    "{row}"
                );
                Ok(())
            },
        )
    }

    /// Waits until polls are counted, which they are from the first listener to a queue on.
    pub fn wait_polls_counted(&self) -> Result<()> {
        let link = self
            .node()
            .outside_path("/sys/fs/bpf/flannel/v2/links/count_polls");
        eventually("a count of polls", Duration::from_secs(5), || {
            link.exists().then_some(())
        })
    }

    /// The generation of what was learned, from `datapath show`.
    pub fn generation(&self) -> Result<u64> {
        let shown = self.cli_json(&["datapath", "show", "-o", "json"])?;
        shown["generation"]
            .as_u64()
            .with_context(|| shown.to_string())
    }
}

/// The counters of the programs of a node with an agent, read from the pinned map: many times
/// faster than by the agent's CLI.
pub struct Counters(StatsMap);

impl Counters {
    /// Opens the map of an agent with the default pin root.
    pub fn of(agent: &Agent) -> Result<Self> {
        let open = || StatsMap::open(&PinRoot::new(Path::new(ROOT)));
        Ok(Self(agent.node().enter(open)??))
    }

    /// Packets a program counted under a reason so far.
    pub fn packets(&self, program: Program, reason: Reason) -> Result<u64> {
        Ok(self.0.get(program, reason)?.packets)
    }

    /// Packets replayed so far, from pods and out of the tunnel.
    pub fn replayed(&self) -> Result<u64> {
        REPLAYING
            .iter()
            .map(|program| self.packets(*program, Reason::Replayed))
            .sum()
    }
}

/// The programs that replay packets.
const REPLAYING: [Program; 3] = [
    Program::FromPod,
    Program::FromUnderlay,
    Program::FromL3Tunnel,
];

/// Exchanges messages until `packets` more packets are replayed on each of these nodes.
pub fn until_replayed(
    agents: &[Agent; 2],
    on: [bool; 2],
    packets: u64,
    replayed: impl Fn() -> Result<[u64; 2]>,
    mut exchange: impl FnMut() -> Result<()>,
) -> Result<()> {
    let before = replayed()?;
    eventually("replayed packets", Duration::from_secs(15), || {
        // A lost message is a failure at once: waiting does not bring it back.
        if let Err(lost) = exchange() {
            return Ok(Err(lost));
        }
        let after = replayed()?;
        for node in 0..2 {
            let more = after[node] - before[node];
            let stats = || agents[node].cli(&["maps", "dump", "stats"]);
            ensure!(
                !on[node] || more >= packets,
                "{more} on node {node}: {}",
                stats()?.stdout
            );
        }
        Ok(Ok(()))
    })?
}

/// Two nodes in mode `fast` with a router between them and a pod on each that takes part.
pub fn fast_pair(name: &str, flags: &[&str]) -> Result<Pair> {
    fast_pair_of(name, Stack::V4, flags)
}

/// The same, with these families.
pub fn fast_pair_of(name: &str, stack: Stack, flags: &[&str]) -> Result<Pair> {
    let flags: Vec<&str> = FLAGS.iter().chain(flags).copied().collect();
    Pair::with(name, stack, &flags)?.taking_part()
}

/// The same with neighbours, which reach each other without a tunnel.
pub fn fast_neighbours(name: &str, stack: Stack) -> Result<Pair> {
    Pair::direct(name, stack, &FLAGS)?.taking_part()
}

/// The same with the backend host-gw, which has no tunnels at all.
pub fn fast_host_gw(name: &str, stack: Stack) -> Result<Pair> {
    Pair::host_gw(name, stack, &FLAGS)?.taking_part()
}

/// The same neighbours with this backend.
pub fn fast_backend(name: &str, stack: Stack, backend: &str) -> Result<Pair> {
    Pair::of_backend(name, stack, backend, &FLAGS)?.taking_part()
}

/// The same with two routers between the nodes, of which both use the first.
pub fn fast_pair_by_two_routers(name: &str) -> Result<Pair<TwoRouters>> {
    Pair::with_two_routers(name, &FLAGS)?.taking_part()
}

impl<N> Pair<N> {
    fn taking_part(self) -> Result<Self> {
        self.sender.wait_pod(&self.near, true, true)?;
        self.receiver.wait_pod(&self.far, true, true)?;
        Ok(self)
    }

    /// Packets replayed so far on each node.
    pub fn replayed(&self) -> Result<[u64; 2]> {
        Ok([self.sender.replayed()?, self.receiver.replayed()?])
    }

    /// Waits until `packets` more packets are replayed on each node.
    pub fn wait_replayed(&self, packets: u64) -> Result<()> {
        let start = self.replayed()?;
        eventually("replayed packets", Duration::from_secs(15), || {
            self.have_replayed(start, packets)
        })
    }

    /// Checks that at least `packets` packets were replayed on each node since `start`.
    pub fn have_replayed(&self, start: [u64; 2], packets: u64) -> Result<()> {
        for ((agent, start), now) in [&self.sender, &self.receiver]
            .into_iter()
            .zip(start)
            .zip(self.replayed()?)
        {
            let stats = || agent.cli(&["maps", "dump", "stats"]);
            ensure!(
                now - start >= packets,
                "{} of {packets}: {}",
                now - start,
                stats()?.stdout
            );
        }
        Ok(())
    }

    /// A connection from the near pod to the far one.
    pub fn talk(&self) -> Result<Talk> {
        Talk::open(&self.near, &self.far, (self.far.ip(), 0).into(), None)
    }

    /// Exchanges messages until `packets` more packets are replayed on each node.
    pub fn talk_until_replayed(&self, talk: &mut Talk, packets: u64) -> Result<()> {
        let start = self.replayed()?;
        eventually("replayed packets", Duration::from_secs(20), || {
            talk.exchange(100)?;
            self.have_replayed(start, packets)
        })
    }
}
