//! The cluster: three nodes on two segments, and etcd on the router between them.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    StockNode, ThreeNodes, agent_binary,
    cluster::{LEASES, nodes::ready_agents},
    eventually,
    fast::FLAGS,
};

use super::{
    draw::Draw,
    kinds::Kind,
    member::{Member, Place, Versions},
    streams::Streams,
    tally::Tally,
};

/// The agents may wait for a retry of the store, and mode `fast` for its rules.
pub(super) const RECOVERY: Duration = Duration::from_secs(40);
/// Rules of nftables, which are repaired at once. Subnets below are those of nodes that join.
const CONFIG: &str = r#"{"Network":"10.244.0.0/16","SubnetMin":"10.244.80.0","EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;
const PLACES: [Place; 3] = [
    Place {
        segment: 1,
        digit: 1,
    },
    Place {
        segment: 1,
        digit: 2,
    },
    Place {
        segment: 2,
        digit: 3,
    },
];

/// The cluster under faults.
pub(super) struct Site {
    pub(super) members: Vec<Member>,
    streams: Option<Streams>,
    /// Faults so far.
    faults: u8,
    // Last: the lab goes when its handles are of no use any more.
    pub(super) nodes: ThreeNodes,
}

impl Site {
    /// With an agent of the other version on the second node, if there is one.
    pub(super) fn new(former: Option<PathBuf>) -> Result<Self> {
        let present = agent_binary()?;
        let versions = Versions {
            former: former.unwrap_or_else(|| present.clone()),
            present,
        };
        let nodes = ThreeNodes::new("random", CONFIG)?;
        let agents = ready_agents(
            [&nodes.a, &nodes.b, &nodes.c],
            &nodes.options()?.flags(&FLAGS),
        )?;
        let mut members = Vec::new();
        for (index, (agent, place)) in agents.into_iter().zip(PLACES).enumerate() {
            let pod = agent.node().add_pod("p1")?;
            members.push(Member::new(
                agent,
                pod,
                versions.clone(),
                index == 1,
                place,
            )?);
        }
        members.iter().try_for_each(Member::wait_ready)?;
        Ok(Self {
            members,
            streams: None,
            faults: 0,
            nodes,
        })
    }

    /// Lets faults happen, one after the other, under streams between all pods.
    pub(super) fn endure(&mut self, count: u64, draw: &mut Draw, tally: &mut Tally) -> Result<()> {
        self.recover().context("before the faults")?;
        let pods: Vec<_> = self.members.iter().map(|member| &member.pod).collect();
        self.streams = Some(Streams::start(&pods)?);
        for _ in 0..count {
            let (kind, at) = draw.next(self.members.len());
            let name = self.members[at].node().name().to_owned();
            self.happen(kind, at, tally)
                .with_context(|| format!("{} on {name}", kind.name))?;
        }
        self.streams.take().context("streams")?.stop(tally)
    }

    fn happen(&mut self, kind: &'static Kind, at: usize, tally: &mut Tally) -> Result<()> {
        let begin = self.streams()?.sent();
        (kind.happen)(self, at)?;
        let ended = Instant::now();
        self.recover()?;
        let end = self.streams()?.wait_arrived()?;
        tally.recovered(kind, ended.elapsed());
        self.streams
            .as_mut()
            .context("streams")?
            .note(kind, at, &begin, &end);
        Ok(())
    }

    /// Waits until each node serves again. What is in the store by now has arrived by then: a node
    /// joins, and each agent has it as a peer.
    fn recover(&mut self) -> Result<()> {
        self.faults = self.faults % 100 + 1;
        let (number, address) = (self.faults, format!("192.168.1.{}", 100 + self.faults));
        let joined = StockNode::vxlan(9, &address, &format!("02:00:00:00:09:{number:02x}"));
        joined.put(&self.nodes.etcd)?;
        let joined = ["10.244.9.0/24".to_owned(), address];
        eventually("the recovery", RECOVERY, || self.expect_serving(&joined))
    }

    fn expect_serving(&self, joined: &[String; 2]) -> Result<()> {
        for (index, member) in self.members.iter().enumerate() {
            let others = self
                .members
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let mut peers: Vec<_> = others
                .map(|(_, other)| other.as_peer())
                .chain([joined.clone()])
                .collect();
            member
                .expect_serving(&mut peers)
                .with_context(|| member.node().name().to_owned())?;
        }
        let leases = self.nodes.etcd.list(LEASES)?;
        ensure!(leases.len() == self.members.len() + 1, "leases: {leases:?}");
        Ok(())
    }

    fn streams(&self) -> Result<&Streams> {
        self.streams.as_ref().context("no streams")
    }

    /// Waits until each stream has sent this number of further datagrams.
    pub(super) fn wait_sent(&self, count: u64) -> Result<()> {
        self.streams()?.wait_sent(count)
    }

    /// The packets that programs and kernel of each node dropped.
    pub(super) fn drops(&self) -> Result<Vec<String>> {
        self.members.iter().map(Member::drops).collect()
    }

    /// Requires that no agent of the present version logged an error about its own lease, or any
    /// other.
    pub(super) fn expect_no_errors(&self) -> Result<()> {
        self.members.iter().try_for_each(Member::expect_no_errors)
    }

    /// Ends the agents, and requires each node to be as it was before.
    pub(super) fn clean(mut self) -> Result<()> {
        self.members
            .iter_mut()
            .try_for_each(Member::return_to_first_address)?;
        self.recover().context("at the end")?;
        self.members.iter().try_for_each(Member::clean)
    }
}
