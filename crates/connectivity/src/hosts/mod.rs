//! `flannel-agent connectivity hosts`: the test without Kubernetes. The command runs on each host,
//! and the hosts meet in etcd.
//!
//! On each host there are two test namespaces on the bridge of its containers (`bridge`,
//! `namespace`, `inside`), which take the places of the test pods, and a server in the host's own
//! network. The hosts agree on one list of members, plan the same checks by it, and exchange what
//! they find (`record`, `rendezvous`), so each of them prints the whole matrix.
//!
//! Invariant: namespaces and devices end with the process, and keys in etcd half a minute later.

mod agent;
mod bridge;
pub mod inside;
mod namespace;
mod record;
mod rendezvous;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use flannel_cluster::{interrupt::Interrupt, progress::Progress};
use flannel_netlink::Netlink;
use flannel_store::etcd::MeetingPlace;
use flannel_subnet_env::SubnetFile;
use ipnet::IpNet;

pub use self::{agent::LocalAgent, rendezvous::Quorum};
use self::{
    bridge::ContainerBridge,
    namespace::TestNetns,
    record::{Diagnosis, Findings, Member, Ready, Start},
    rendezvous::Rendezvous,
};
use super::{
    deploy::TestNode,
    diagnosis,
    manifest::Role,
    modes::SETTLED,
    plan::{Batch, Check, PairCheck, plan, record_results},
    probe::probe,
    run::{
        EXPLANATION, LATER, MOST_NODES, ModeRun, PROBES, TestReport, and_left_behind, left_out,
        modes_in_force,
    },
    serve::serve,
};

/// The checks: a cluster without Kubernetes has no Services.
const CHECKS: [Check; 4] = [
    Check::PodToPod,
    Check::Mtu,
    Check::PodToNode,
    Check::NodeToPod,
];
/// For the explanations of one host, two of each failing pair, and its check.
const DIAGNOSIS: Duration = EXPLANATION.saturating_mul(6);
/// For a host that has less to do to wait for one that has more.
const SLACK: Duration = Duration::from_mins(1);

/// The settings of a test.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The name of this host in the report.
    pub name: String,
    /// The name of the bridge of containers; found if absent.
    pub bridge: Option<String>,
    /// The port of the servers.
    pub port: u16,
    /// The modes to switch to; if empty, the test uses the active mode.
    pub modes: Vec<String>,
    /// The address outside the cluster.
    pub outside: Option<String>,
    /// The hosts that are waited for.
    pub quorum: Quorum,
}

/// Runs this host's part of a test, and puts together what all found. The mode is set back also
/// after an error and a signal.
pub async fn run(
    agent: &LocalAgent,
    settings: &HostSettings,
    progress: &mut Progress,
) -> anyhow::Result<TestReport> {
    let mut interrupt = Interrupt::new().context("cannot wait for signals")?;
    let (place, member) = tokio::select! {
        place = Place::make(agent, settings) => place?,
        () = interrupt.wait() => bail!("interrupted"),
    };
    let meeting = MeetingPlace::enter(&agent.options.etcd).await?;
    let mut round = Rendezvous::join(meeting, &member).await?;
    let mut undo = Undo::default();
    let mut work = Work {
        agent,
        settings,
        place,
    };
    let result = tokio::select! {
        result = work.run(&member, &mut round, &mut undo, progress) => result,
        () = interrupt.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    let left_behind = undo.run(agent, &mut round).await;
    let report = match result {
        Ok(report) => report,
        Err(error) => return Err(and_left_behind(error, &left_behind)),
    };
    let ok = left_behind.is_empty() && report.runs.iter().all(ModeRun::passed);
    Ok(TestReport {
        ok,
        left_behind,
        ..report
    })
}

/// Changes of this host and of etcd that have to be undone.
#[derive(Default)]
struct Undo {
    is_switched: bool,
    /// The test that has begun.
    run: Option<String>,
}

impl Undo {
    async fn run(&self, agent: &LocalAgent, round: &mut Rendezvous) -> Vec<String> {
        let mode = self.is_switched.then(|| agent.restore_mode()).flatten();
        let left = round.leave(self.run.as_deref()).await.err();
        let keys = left.map(|error| {
            format!("keys in etcd, which go by themselves within half a minute: {error:#}")
        });
        mode.into_iter().chain(keys).collect()
    }
}

/// The test namespaces of this host.
struct Place {
    client: TestNetns,
    server: TestNetns,
}

impl Place {
    async fn make(agent: &LocalAgent, settings: &HostSettings) -> anyhow::Result<(Self, Member)> {
        let path = &agent.options.paths.subnet_file;
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("cannot read {}: the agent has no lease yet", path.display())
        })?;
        let subnets = SubnetFile::parse(&text).with_context(|| path.display().to_string())?;
        let (netlink, _events) = Netlink::connect()?;
        let bridge = ContainerBridge::find(&netlink, &subnets, settings.bridge.as_deref()).await?;
        let mut free = bridge.free_addresses(&netlink, 2).await?.into_iter();
        let (client, server) = (
            free.next().unwrap_or_default(),
            free.next().unwrap_or_default(),
        );
        let addresses = |nets: &[IpNet]| nets.iter().map(IpNet::addr).collect();
        let member = Member {
            name: settings.name.clone(),
            client: addresses(&client),
            server: addresses(&server),
            host: agent.addresses(),
        };
        let mut place = Self {
            client: TestNetns::start().await?,
            server: TestNetns::start().await?,
        };
        place
            .client
            .connect(&netlink, &bridge, client, subnets.mtu)
            .await?;
        place
            .server
            .connect(&netlink, &bridge, server, subnets.mtu)
            .await?;
        Ok((place, member))
    }
}

/// The part that a signal may end anywhere.
struct Work<'a> {
    agent: &'a LocalAgent,
    settings: &'a HostSettings,
    place: Place,
}

impl Work<'_> {
    async fn run(
        &mut self,
        member: &Member,
        round: &mut Rendezvous,
        undo: &mut Undo,
        progress: &mut Progress,
    ) -> anyhow::Result<TestReport> {
        let (start, leases) = round
            .begin(self.wanted(), self.settings.quorum, progress)
            .await?;
        undo.run = Some(start.run.clone());
        let port = self.settings.port;
        if start.port != port {
            bail!(
                "the test has begun with port {}, and this host has {port}: run it again with one \
                 --port",
                start.port
            );
        }
        if start.members.len() > MOST_NODES {
            bail!(
                "{} hosts are too many: at most {MOST_NODES}, because every pair is tested",
                start.members.len()
            );
        }
        let number = start
            .members
            .iter()
            .position(|other| other.name == member.name)
            .unwrap_or_default();
        self.place
            .server
            .serve(Role::Server.pod(number), port)
            .await?;
        let host = Role::Host.pod(number);
        tokio::select! {
            report = self.rounds(&start, (number, leases), round, undo, progress) => report,
            served = serve(&host, &member.host, port) => {
                served.and_then(|()| bail!("the server in this host's own network ended"))
            }
        }
    }

    /// The test that this host begins if it is the one; the members are added then.
    fn wanted(&self) -> Start {
        Start {
            run: format!("{:016x}", rand::random::<u64>()),
            members: Vec::new(),
            port: self.settings.port,
            modes: self.settings.modes.clone(),
            outside: self.settings.outside.clone(),
        }
    }

    async fn rounds(
        &mut self,
        start: &Start,
        (number, leases): (usize, usize),
        round: &mut Rendezvous,
        undo: &mut Undo,
        progress: &mut Progress,
    ) -> anyhow::Result<TestReport> {
        let nodes: Vec<TestNode> = start.members.iter().map(Member::node).collect();
        let mut report = TestReport {
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            left_out: skipped(&nodes, start, leases),
            ..TestReport::default()
        };
        let modes: Vec<Option<&String>> = if start.modes.is_empty() {
            vec![None]
        } else {
            start.modes.iter().map(Some).collect()
        };
        for (step, mode) in modes.into_iter().enumerate() {
            undo.is_switched |= mode.is_some();
            let ready = self.ready(mode).await;
            let all = round
                .exchange(
                    start,
                    &format!("{step}-ready"),
                    &ready,
                    SETTLED + SLACK,
                    progress,
                )
                .await?;
            let (mode, notes) = summary(mode, &all);
            let (mut checks, batches) = plan(&nodes, &CHECKS, start.port, start.outside.as_deref());
            progress.show(&format!("mode {mode}: checking"));
            // All servers listen since the exchange, and no rules of Services are to come.
            let findings = self.findings(number, &batches, LATER).await;
            let limit = LATER + PROBES + SLACK;
            let found = round
                .exchange(start, &format!("{step}-found"), &findings, limit, progress)
                .await?;
            put_together(&mut checks, &batches, &nodes, &found);
            if checks.iter().any(|check| !check.ok) {
                // While the mode of the failures is active.
                let own = self.diagnosis(&checks).await;
                let all = round
                    .exchange(
                        start,
                        &format!("{step}-causes"),
                        &own,
                        DIAGNOSIS + SLACK,
                        progress,
                    )
                    .await?;
                add_causes(&checks, all, &mut report);
            }
            report.runs.push(ModeRun {
                mode,
                notes,
                checks,
            });
        }
        Ok(report)
    }

    /// Switches to the mode, if one is given.
    async fn ready(&self, mode: Option<&String>) -> Ready {
        let before = || self.agent.mode().effective.clone();
        let Some(mode) = mode else {
            return Ready {
                mode: before(),
                note: None,
            };
        };
        let note = self.agent.set_mode(mode).await;
        Ready {
            mode: mode.clone(),
            note: note.map(|note| format!("{} {note}", self.settings.name)),
        }
    }

    /// Runs this host's probes.
    async fn findings(&mut self, number: usize, batches: &[Batch], patience: Duration) -> Findings {
        let mut findings = Findings::default();
        for batch in batches.iter().filter(|batch| batch.node == number) {
            let probed = match batch.role {
                Role::Host => Ok(probe(&batch.targets, patience).await),
                Role::Client | Role::Server => {
                    self.place.client.probe(&batch.targets, patience).await
                }
            };
            match probed {
                Ok(outcomes) => findings.outcomes.extend(outcomes),
                Err(error) => findings.silence = Some(format!("{error:#}")),
            }
        }
        findings
    }

    /// Explains the failures at one end of which this host is.
    async fn diagnosis(&self, checks: &[PairCheck]) -> Diagnosis {
        let (name, mut own) = (&self.settings.name, Diagnosis::default());
        for (check, command) in diagnosis::pairs_to_explain(checks) {
            if check.from != *name && check.to.as_ref() != Some(name) {
                continue;
            }
            let (text, code) = self.agent.run(command.get(1..).unwrap_or_default()).await;
            own.explanations
                .push(diagnosis::explanation(name, check, text, code));
        }
        if diagnosis::ends(checks).contains(name.as_str()) {
            let (text, _) = self
                .agent
                .run(&["check", "-o", "json"].map(str::to_owned))
                .await;
            own.findings = diagnosis::read_findings(text.as_bytes());
        }
        own
    }
}

/// Returns the active mode, and the remarks of hosts.
fn summary(
    wanted: Option<&String>,
    all: &BTreeMap<String, Option<Ready>>,
) -> (String, Vec<String>) {
    let known: Vec<&Ready> = all.values().flatten().collect();
    let mode = wanted
        .cloned()
        .unwrap_or_else(|| modes_in_force(known.iter().map(|ready| ready.mode.as_str())));
    let gone = all
        .iter()
        .filter(|(_, ready)| ready.is_none())
        .map(|(name, _)| format!("{name} does not answer any more"));
    (
        mode,
        known
            .iter()
            .filter_map(|ready| ready.note.clone())
            .chain(gone)
            .collect(),
    )
}

/// Writes what all hosts found into the checks.
fn put_together(
    checks: &mut [PairCheck],
    batches: &[Batch],
    nodes: &[TestNode],
    found: &BTreeMap<String, Option<Findings>>,
) {
    for batch in batches {
        let findings = nodes
            .get(batch.node)
            .and_then(|node| found.get(&node.name)?.as_ref());
        let gone = || Err("the host left the test, or took too long".to_owned());
        record_results(
            checks,
            batch,
            findings.map_or_else(gone, |findings| findings.of(batch)),
        );
    }
}

/// Adds the views of all hosts on the failures in one mode.
fn add_causes(
    checks: &[PairCheck],
    all: BTreeMap<String, Option<Diagnosis>>,
    report: &mut TestReport,
) {
    let mut findings = BTreeMap::new();
    for (name, diagnosis) in all {
        let Diagnosis {
            explanations,
            findings: found,
        } = diagnosis.unwrap_or_default();
        report.explanations.extend(explanations);
        findings.insert(name, found);
    }
    report.causes.extend(diagnosis::causes(checks, &findings));
}

/// The checks that are not made, and hosts that are not in the test, each with the reason.
fn skipped(nodes: &[TestNode], start: &Start, leases: usize) -> Vec<String> {
    let mut skipped = left_out(nodes, start.outside.as_deref());
    skipped.push("pod to Service: there are none without Kubernetes".to_owned());
    if let Some(absent) = leases.checked_sub(nodes.len()).filter(|absent| *absent > 0) {
        skipped.push(format!(
            "{absent} of {leases} hosts with a lease: this command did not run there"
        ));
    }
    skipped
}
