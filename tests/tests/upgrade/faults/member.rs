//! One node of the cluster: its agent of either version, its pod and its address.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, ChildGuard, Node, Pod, agent::snapshot::Snapshot, cluster::LEASES, eventually,
};
use serde_json::Value;

use super::super::{clean, clean_to};

/// The limit for what events announce.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// The modes, of which each switch takes the next. The flags ask for the first one.
const MODES: [&str; 3] = ["fast", "kernel", "encap"];
const LOST: &str = " is lost: ";

/// The versions of the agent.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    pub(super) present: PathBuf,
    /// Without a former version, the present one.
    pub(super) former: PathBuf,
}

/// The place of a node in the underlay: 192.168.`segment`.1`digit`, or .2`digit` while its address
/// is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) segment: u8,
    pub(super) digit: u8,
}

/// A node with an agent and a pod.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) agent: Agent,
    pub(super) pod: Pod,
    /// The times that an administrator deleted its lease.
    pub(super) deleted_leases: usize,
    versions: Versions,
    is_former: bool,
    place: Place,
    is_moved: bool,
    mode: usize,
    /// The subnet of its lease, which it keeps.
    subnet: String,
    /// The node before it had an agent.
    before: Snapshot,
    /// The agents so far: their processes, and true for those of another version.
    agents: Vec<(ChildGuard, bool)>,
}

impl Member {
    /// From a ready agent of the present version: ends it, and starts one of a version on the clean
    /// node.
    pub(super) fn new(
        agent: Agent,
        pod: Pod,
        versions: Versions,
        is_former: bool,
        place: Place,
    ) -> Result<Self> {
        let subnet = agent.status()?["lease"]["subnet"]
            .as_str()
            .context("a subnet")?
            .to_owned();
        clean(&agent)?;
        let before = Snapshot::of(agent.node())?;
        let (deleted_leases, is_moved, mode, agents) = (0, false, 0, Vec::new());
        let mut member = Self {
            agent,
            pod,
            deleted_leases,
            versions,
            is_former,
            place,
            is_moved,
            mode,
            subnet,
            before,
            agents,
        };
        member.restart()?;
        Ok(member)
    }

    pub(super) fn node(&self) -> &Node {
        self.agent.node()
    }

    /// Starts an agent of the other version, after the former one has ended.
    pub(super) fn replace(&mut self) -> Result<()> {
        self.is_former = !self.is_former;
        self.restart()
    }

    /// Starts an agent of the same version, after the former one has ended.
    pub(super) fn restart(&mut self) -> Result<()> {
        let binary = if self.is_former {
            &self.versions.former
        } else {
            &self.versions.present
        };
        self.agent = self.agent.succeeded_by(binary)?;
        let is_other = self.is_former && self.versions.former != self.versions.present;
        self.agents.push((self.agent.child(), is_other));
        Ok(())
    }

    /// Sets another mode, and waits until it is active.
    pub(super) fn switch_mode(&mut self) -> Result<()> {
        self.mode = (self.mode + 1) % MODES.len();
        self.agent.set_mode(MODES[self.mode])
    }

    /// Its address in the underlay.
    pub(super) fn address(&self) -> String {
        let Place { segment, digit } = self.place;
        format!(
            "192.168.{segment}.{}{digit}",
            if self.is_moved { 2 } else { 1 }
        )
    }

    pub(super) fn remove_address(&self) -> Result<()> {
        self.node()
            .sh(&format!("ip address del {}/24 dev eth0", self.address()))
            .map(drop)
    }

    pub(super) fn add_address(&self) -> Result<()> {
        self.node()
            .sh(&format!("ip address add {}/24 dev eth0", self.address()))?;
        self.add_default_route()
    }

    pub(super) fn add_default_route(&self) -> Result<()> {
        self.node()
            .sh(&format!(
                "ip route add default via 192.168.{}.1 dev eth0",
                self.place.segment
            ))
            .map(drop)
    }

    /// Gives it its other address, as a DHCP server would.
    pub(super) fn change_address(&mut self) -> Result<()> {
        self.remove_address()?;
        self.is_moved = !self.is_moved;
        self.add_address()
    }

    /// The key of its lease.
    pub(super) fn lease_key(&self) -> String {
        format!("{LEASES}{}", self.subnet.replace('/', "-"))
    }

    /// The row that the status of another node has for it: subnet and address.
    pub(super) fn as_peer(&self) -> [String; 2] {
        [self.subnet.clone(), self.address()]
    }

    /// Requires a ready agent with its former subnet and these peers.
    pub(super) fn expect_serving(&self, peers: &mut [[String; 2]]) -> Result<()> {
        let status = self.agent.status()?;
        ensure!(
            status["ready"] == true && status["dirty_total"] == 0,
            "{status}"
        );
        let lease = row(&status["lease"]);
        ensure!(
            lease == self.as_peer(),
            "lease {lease:?} instead of {:?}",
            self.as_peer()
        );
        let mut found: Vec<_> = status["peers"]
            .as_array()
            .context("peers")?
            .iter()
            .map(row)
            .collect();
        found.sort();
        peers.sort();
        ensure!(found == peers, "peers {found:?} instead of {peers:?}");
        Ok(())
    }

    /// The lines in which the running agent says that its lease is lost.
    pub(super) fn losses_logged(&self) -> usize {
        self.agent.log_count(LOST)
    }

    /// Requires that agents of the present version logged no error but the loss of leases that an
    /// administrator deleted. Prints what the other version logged.
    pub(super) fn expect_no_errors(&self) -> Result<()> {
        let (losses, others) = self.errors(false);
        let allowed = self.deleted_leases;
        ensure!(
            losses.len() <= allowed,
            "{} losses, {allowed} by administrators: {losses:#?}",
            losses.len()
        );
        ensure!(
            others.is_empty(),
            "errors of {}: {others:#?}",
            self.node().name()
        );
        self.errors(true)
            .1
            .iter()
            .for_each(|line| println!("{}, other version: {line}", self.node().name()));
        Ok(())
    }

    /// The errors in the logs of one version: losses of the lease, and others.
    fn errors(&self, of_other: bool) -> (Vec<String>, Vec<String>) {
        let logs = self
            .agents
            .iter()
            .filter(|(_, is_other)| *is_other == of_other)
            .map(|(child, _)| child.log());
        let lines: Vec<String> = logs
            .flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        lines
            .into_iter()
            .filter(|line| line.contains(" ERROR "))
            .partition(|line| line.contains(LOST))
    }

    /// The packets that its programs dropped, and the counters of its kernel that are not zero.
    pub(super) fn drops(&self) -> Result<String> {
        let programs = &self.agent.cli_json(&["status", "-o", "json"])?["drops"];
        let kernel = self
            .node()
            .sh("nstat -as *Discards *NoRoutes *Drop* *Errors")?
            .stdout;
        let counters = kernel.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?))
        });
        Ok(format!(
            "{}: programs {programs}, kernel {:?}",
            self.node().name(),
            counters.collect::<Vec<_>>()
        ))
    }

    /// Gives it the address of the start.
    pub(super) fn return_to_first_address(&mut self) -> Result<()> {
        if self.is_moved {
            self.change_address()
        } else {
            Ok(())
        }
    }

    /// Ends the agent, and requires the node to be as before it had one, but for its pod.
    pub(super) fn clean(&self) -> Result<()> {
        clean_to(&self.before, &self.agent)
    }

    /// Waits until the agent runs, is ready, and has its subnet.
    pub(super) fn wait_ready(&self) -> Result<()> {
        self.agent.wait_ready()?;
        eventually("the former subnet", SOON, || {
            let lease = row(&self.agent.status()?["lease"]);
            ensure!(
                lease == self.as_peer(),
                "lease {lease:?} instead of {:?}",
                self.as_peer()
            );
            Ok(())
        })
    }
}

/// Subnet and address of a lease or a peer.
fn row(value: &Value) -> [String; 2] {
    ["subnet", "public_ip"].map(|field| value[field].as_str().unwrap_or_default().to_owned())
}
