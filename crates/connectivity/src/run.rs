//! The order of a test: deploy, check in each mode, explain failures, and clean up whatever
//! happened.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use flannel_cluster::{
    AT_ONCE,
    answer::{self, Silence},
    client::ClusterClient,
    exec::Container,
    interrupt::Interrupt,
    members::{AgentPods, ClusterNode},
    progress::Progress,
};
use flannel_document::Document;
use flannel_host::{error_chain::chain, family::Family};
use futures::{StreamExt as _, future::LocalBoxFuture, stream};
use serde::Serialize;

pub use super::failing_check::failure;
use super::{
    deploy::{TestNamespace, TestNode},
    diagnosis::{self, Cause, Explanation},
    manifest::{PodSettings, Role},
    modes::{self, Switchable},
    plan::{Batch, Check, PairCheck, families, plan, record_results},
    target::Outcome,
};

/// For the first answers: endpoints and the rules of Services come after the pods.
const FIRST: Duration = Duration::from_secs(30);
/// For those in further modes, when everything was there before.
pub(super) const LATER: Duration = Duration::from_secs(5);
/// For the probes of one command, once their targets answer: a search for the largest packet takes
/// some 15 s, and a hundred of them run in a few turns.
pub(super) const PROBES: Duration = Duration::from_mins(2);
/// For one explanation.
pub(super) const EXPLANATION: Duration = answer::LIMIT;
/// Nodes of one test. The work grows with their square: 50,000 checks in one family.
pub(super) const MOST_NODES: usize = 100;

/// The settings of a test.
#[derive(Clone, Debug)]
pub struct TestSettings {
    /// The pods of flannel.
    pub agents: AgentPods,
    /// The names of the nodes; all of them if empty.
    pub nodes: Vec<String>,
    /// The image of the test pods; that of the agents if absent.
    pub image: Option<String>,
    /// The port of the servers.
    pub port: u16,
    /// The modes to switch to; if empty, the test uses the active mode.
    pub modes: Vec<String>,
    /// The address outside the cluster.
    pub outside: Option<String>,
    /// The time limit for the start of the pods.
    pub start_limit: Duration,
}

/// The results of a connectivity test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestReport {
    /// True if every check passed in every mode, and the cluster is as it was.
    pub ok: bool,
    /// The image of the test pods; absent without Kubernetes.
    pub image: Option<String>,
    /// The nodes, by name.
    pub nodes: Vec<String>,
    /// The results in each mode.
    pub runs: Vec<ModeRun>,
    /// Checks that were not made, each with the reason.
    pub left_out: Vec<String>,
    /// The likely causes of failures.
    pub causes: Vec<Cause>,
    /// The explanations of failures, by the nodes at both ends.
    pub explanations: Vec<Explanation>,
    /// Changes of the cluster that were not undone.
    pub left_behind: Vec<String>,
}

impl Document for TestReport {
    const NAME: &'static str = "connectivity";
}

/// The results in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModeRun {
    /// The mode, and the number of nodes in it where there are several.
    pub mode: String,
    /// Remarks on nodes, such as those that are in another mode.
    pub notes: Vec<String>,
    /// The checks.
    pub checks: Vec<PairCheck>,
}

impl ModeRun {
    /// True if there are checks and all passed.
    pub(super) fn passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.ok)
    }
}

/// Changes of the cluster that have to be undone.
struct Undo {
    namespace: TestNamespace,
    switched: Vec<Switchable>,
    /// A change of modes that has begun: it ends before they are set back, so that no command of it
    /// comes later.
    switching: Option<LocalBoxFuture<'static, Vec<String>>>,
}

/// Runs a test. The objects are deleted and the modes set back also after an error and a signal.
pub async fn run(
    client: &ClusterClient,
    settings: &TestSettings,
    progress: &mut Progress,
) -> anyhow::Result<TestReport> {
    let members = tested_nodes(client, settings).await?;
    let (agents, notes) = agents(client, &settings.agents, &members).await;
    let image = image(settings, &members, &agents)?;
    let pods = PodSettings {
        image,
        port: settings.port,
    };
    let mut undo = Undo {
        namespace: TestNamespace::new(client),
        switched: Vec::new(),
        switching: None,
    };
    let mut interrupt = Interrupt::new().context("cannot wait for signals")?;
    // A signal has to wait for this, so that it is known whether there is a namespace.
    if let Err(error) = undo.namespace.create().await {
        // Without an answer, the server may have made it.
        let left_behind = if error.code().is_some() {
            Vec::new()
        } else {
            undo.run(client, progress).await
        };
        return Err(and_left_behind(error.into(), &left_behind));
    }
    let work = Work {
        client,
        settings,
        members: &members,
        agents,
        notes,
        pods,
    };
    let result = tokio::select! {
        result = work.run(&mut undo, progress) => result,
        () = interrupt.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    let name = undo.namespace.name().to_owned();
    let left_behind = tokio::select! {
        left_behind = undo.run(client, progress) => left_behind,
        () = interrupt.wait() => {
            vec![format!(
                "interrupted again: run `kubectl delete namespace {name}`, and check \
                 `flannel-agent datapath show` on \
                 each node"
            )]
        }
    };
    match result {
        Ok(report) => {
            let ok = left_behind.is_empty() && report.runs.iter().all(ModeRun::passed);
            Ok(TestReport {
                ok,
                left_behind,
                ..report
            })
        }
        Err(error) => Err(and_left_behind(error, &left_behind)),
    }
}

/// The nodes to test.
async fn tested_nodes(
    client: &ClusterClient,
    settings: &TestSettings,
) -> anyhow::Result<Vec<ClusterNode>> {
    let mut members = client.nodes(&settings.agents).await?;
    if members.is_empty() {
        bail!("the cluster has no nodes with Linux");
    }
    if !settings.nodes.is_empty() {
        members.retain(|member| settings.nodes.iter().any(|name| name == member.name()));
        let is_known = |name: &&String| members.iter().any(|member| member.name() == *name);
        if let Some(unknown) = settings.nodes.iter().find(|name| !is_known(name)) {
            bail!("the cluster has no node {unknown} with Linux");
        }
    }
    if members.len() > MOST_NODES {
        bail!(
            "{} nodes are too many, because every pair is tested: choose at most {MOST_NODES} of \
             them by --nodes",
            members.len()
        );
    }
    Ok(members)
}

/// Adds what could not be undone.
pub(super) fn and_left_behind(error: anyhow::Error, left_behind: &[String]) -> anyhow::Error {
    if left_behind.is_empty() {
        error
    } else {
        error.context(format!("left behind: {}", left_behind.join("; ")))
    }
}

/// Returns the image of the flag, or that of a flannel-agent pod.
fn image(
    settings: &TestSettings,
    members: &[ClusterNode],
    agents: &[Switchable],
) -> anyhow::Result<String> {
    let is_ours = |member: &&ClusterNode| agents.iter().any(|agent| agent.node == member.name());
    let of_agents = || {
        members
            .iter()
            .filter(is_ours)
            .find_map(ClusterNode::image)
            .map(str::to_owned)
    };
    let namespace = &settings.agents.namespace;
    settings.image.clone().or_else(of_agents).with_context(|| {
        format!(
            "no agent of ours answers in namespace {namespace}, so no image is known; name one \
            by --image"
        )
    })
}

/// Returns the nodes that run flannel-agent, and a line for each node without it.
async fn agents(
    client: &ClusterClient,
    pods: &AgentPods,
    members: &[ClusterNode],
) -> (Vec<Switchable>, Vec<String>) {
    let asked = stream::iter(members).map(async |member| {
        let name = member.name();
        let Some(agent) = member.agent(pods) else {
            return Err(format!("{name} has no pod of flannel"));
        };
        let answer = modes::switchable(client, name, agent).await;
        answer.map_err(|silence| match silence {
            Silence::Exec(error) if error.lacks_program() => format!("{name} runs stock flannel"),
            silence => format!("{name} has no agent that answers: {}", chain(&silence)),
        })
    });
    let (mut agents, mut notes) = (Vec::new(), Vec::new());
    let mut asked = std::pin::pin!(asked.buffered(AT_ONCE));
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(agent) => agents.push(agent),
            Err(note) => notes.push(note),
        }
    }
    (agents, notes)
}

impl Undo {
    async fn run(&mut self, client: &ClusterClient, progress: &mut Progress) -> Vec<String> {
        progress.show("setting back and deleting");
        if let Some(switching) = self.switching.take() {
            // Its remarks were for a report that is not made.
            drop(switching.await);
        }
        let mut left_behind = modes::restore(client, &self.switched).await;
        let name = self.namespace.name();
        let by_hand = format!("run `kubectl delete namespace {name}`");
        if let Err(error) = self.namespace.delete().await {
            left_behind.push(format!("{}; {by_hand}", chain(&error)));
            return left_behind;
        }
        match self.namespace.wait_gone(progress).await {
            Ok(true) => {}
            Ok(false) => left_behind.push(format!("the namespace {name} is still being deleted")),
            Err(error) => {
                left_behind.push(format!("{}; {by_hand} if it is still there", chain(&error)));
            }
        }
        left_behind
    }
}

/// The part that a signal may end anywhere.
struct Work<'a> {
    client: &'a ClusterClient,
    settings: &'a TestSettings,
    members: &'a [ClusterNode],
    /// The nodes that run flannel-agent.
    agents: Vec<Switchable>,
    /// A line for each node without flannel-agent.
    notes: Vec<String>,
    pods: PodSettings,
}

impl Work<'_> {
    async fn run(&self, undo: &mut Undo, progress: &mut Progress) -> anyhow::Result<TestReport> {
        undo.namespace.deploy(self.members, &self.pods).await?;
        let nodes = undo
            .namespace
            .wait(self.members, self.settings.start_limit, progress)
            .await?;
        if let Some(problem) = nothing_runs(&nodes) {
            bail!("no test pod runs: {problem}");
        }
        let mut report = TestReport {
            image: Some(self.pods.image.clone()),
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            left_out: left_out(&nodes, self.settings.outside.as_deref()),
            ..TestReport::default()
        };
        let modes: Vec<Option<&String>> = if self.settings.modes.is_empty() {
            vec![None]
        } else {
            self.settings.modes.iter().map(Some).collect()
        };
        for (mode, patience) in modes
            .into_iter()
            .zip(std::iter::once(FIRST).chain(std::iter::repeat(LATER)))
        {
            let mut notes = self.notes.clone();
            if let Some(mode) = mode {
                // Before the first change, so that a signal in its middle undoes it.
                undo.switched.clone_from(&self.agents);
                let (client, agents, mode) =
                    (self.client.clone(), self.agents.clone(), mode.clone());
                let switching = Box::pin(async move { modes::set(&client, &agents, &mode).await });
                notes.extend(undo.switching.insert(switching).await);
                undo.switching = None;
            }
            let mode = mode.cloned().unwrap_or_else(|| {
                modes_in_force(
                    self.agents
                        .iter()
                        .map(|agent| agent.before.effective.as_str()),
                )
            });
            let run = self
                .checks(undo, &nodes, (&mode, patience), notes, progress)
                .await;
            // The explanation must come while the mode of the failures is active.
            self.explain(&run.checks, &mut report).await;
            report.runs.push(run);
        }
        Ok(report)
    }

    async fn checks(
        &self,
        undo: &Undo,
        nodes: &[TestNode],
        (mode, patience): (&str, Duration),
        notes: Vec<String>,
        progress: &mut Progress,
    ) -> ModeRun {
        let (mut checks, batches) = plan(
            nodes,
            &Check::OF_PAIRS,
            self.settings.port,
            self.settings.outside.as_deref(),
        );
        let mut probed = stream::iter(&batches)
            .map(async |batch| {
                let container = undo.namespace.container(batch.role, batch.node);
                (batch, self.probe(&container, batch, patience).await)
            })
            .buffer_unordered(AT_ONCE);
        let mut probed = std::pin::pin!(probed.by_ref());
        let mut done = 0;
        progress.show(&format!("mode {mode}: checking"));
        while let Some((batch, result)) = probed.next().await {
            done += batch.targets.len();
            progress.show(&format!(
                "mode {mode}: {done} of {} checks made",
                checks.len()
            ));
            record_results(&mut checks, batch, result);
        }
        ModeRun {
            mode: mode.to_owned(),
            notes,
            checks,
        }
    }

    /// Runs the probes of a batch in their pod.
    async fn probe(
        &self,
        pod: &Container,
        batch: &Batch,
        patience: Duration,
    ) -> Result<Vec<Outcome>, String> {
        let patience_flag = format!("--patience={}", patience.as_secs());
        let targets: Vec<String> = batch.targets.iter().map(ToString::to_string).collect();
        let mut command = vec!["flannel-agent", "connectivity", "probe", &patience_flag];
        command.extend(targets.iter().map(String::as_str));
        let executed = self
            .client
            .exec(pod, &command, patience + PROBES)
            .await
            .map_err(|error| chain(&error))?;
        serde_json::from_slice(&executed.stdout).map_err(|error| match executed.stderr.trim() {
            "" => format!("the output of the probe cannot be read: {error}"),
            said => format!("the probe failed: {said}"),
        })
    }

    /// Asks the agents at both ends of failing pairs.
    async fn explain(&self, checks: &[PairCheck], report: &mut TestReport) {
        let agent = |node: &str| self.agents.iter().find(|agent| agent.node == node);
        for (check, command) in diagnosis::pairs_to_explain(checks) {
            for node in std::iter::once(&check.from)
                .chain(check.to.as_ref().filter(|to| **to != check.from))
            {
                let (text, code) = match agent(node) {
                    Some(agent) => self.ask(agent, &command).await,
                    None => (format!("{node} has no agent that explains it\n"), None),
                };
                report
                    .explanations
                    .push(diagnosis::explanation(node, check, text, code));
            }
        }
        let command = ["flannel-agent", "check", "-o", "json"].map(str::to_owned);
        let mut findings = BTreeMap::new();
        for agent in diagnosis::ends(checks).into_iter().filter_map(agent) {
            let (text, _) = self.ask(agent, &command).await;
            findings.insert(
                agent.node.clone(),
                diagnosis::read_findings(text.as_bytes()),
            );
        }
        report.causes.extend(diagnosis::causes(checks, &findings));
    }

    /// Runs a command in the container of an agent. Returns its output or the error, and its exit
    /// status.
    async fn ask(&self, agent: &Switchable, command: &[String]) -> (String, Option<i32>) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match self.client.exec(&agent.agent, &words, EXPLANATION).await {
            Ok(executed) if executed.stdout.is_empty() => (executed.stderr, Some(executed.code)),
            Ok(executed) => (
                String::from_utf8_lossy(&executed.stdout).into_owned(),
                Some(executed.code),
            ),
            Err(error) => (format!("{}\n", chain(&error)), None),
        }
    }
}

/// The checks that are not made, each with the reason.
pub(super) fn left_out(nodes: &[TestNode], outside: Option<&str>) -> Vec<String> {
    let families = families(nodes);
    let absent = Family::BOTH
        .into_iter()
        .filter(|family| !families.contains(family));
    let mut left_out: Vec<String> = absent
        .map(|family| format!("{family}: no test pod has an address of this family"))
        .collect();
    if outside.is_none() {
        left_out.push("pod to outside: no address is given (--outside HOST:PORT)".to_owned());
    }
    left_out
}

/// Describes why no pod of the pod network runs; `None` if one does.
fn nothing_runs(nodes: &[TestNode]) -> Option<String> {
    let pods = nodes
        .iter()
        .flat_map(|node| [&node.pods[&Role::Client], &node.pods[&Role::Server]]);
    let problems: Option<Vec<&String>> = pods.map(|pod| pod.problem.as_ref()).collect();
    problems?.first().map(|problem| (*problem).clone())
}

/// The modes that agents are in.
pub(super) fn modes_in_force<'a>(of_agents: impl Iterator<Item = &'a str>) -> String {
    let mut modes = BTreeMap::<&str, usize>::new();
    for mode in of_agents {
        *modes.entry(mode).or_default() += 1;
    }
    match modes.len() {
        0 => "not known".to_owned(),
        1 => modes.into_keys().collect(),
        _ => modes
            .iter()
            .map(|(mode, number)| format!("{mode} ({number})"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::TestPod;

    #[test]
    fn pods_of_the_hosts_network_alone_are_no_test() {
        let pod = |problem: Option<&str>| TestPod {
            addresses: Vec::new(),
            problem: problem.map(str::to_owned),
        };
        let node = |client| TestNode {
            name: "n1".to_owned(),
            pods: [
                (Role::Client, pod(client)),
                (Role::Server, pod(Some("ContainerCreating"))),
                (Role::Host, pod(None)),
            ]
            .into(),
            service: Vec::new(),
        };
        assert_eq!(
            nothing_runs(&[node(Some("no subnet"))]).as_deref(),
            Some("no subnet")
        );
        assert_eq!(nothing_runs(&[node(Some("no subnet")), node(None)]), None);
        assert!(
            !ModeRun {
                mode: String::new(),
                notes: Vec::new(),
                checks: Vec::new()
            }
            .passed(),
            "of no checks"
        );
    }

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<TestReport>(TestReport::NAME, TestReport::SCHEMA_VERSION);
    }
}
