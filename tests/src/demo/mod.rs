//! Three nodes, six pods and the agent at work, step by step, on one machine and in less than 90
//! seconds: a step for each claim of the README.
//!
//! Each step shows something and judges it: what is not as it should be is a finding. Speed is
//! shown, never judged: the machine may be busy.

mod cleanup;
mod faults;
mod page;
mod paths;
mod pings;
mod service;
mod speed;
mod table;
mod under_load;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::page::Page;
use crate::{
    Agent, AgentOptions, Etcd, Lab, Pod,
    agent::snapshot::Snapshot,
    cluster::{
        self,
        etcd::CONFIG_KEY,
        nodes::ready_agents,
        topology::{ROUTER, Three},
    },
};

/// Shows the agent on a cluster of three nodes made of network namespaces. Needs root;
/// FLANNEL_AGENT is the agent's binary. `cargo xtask demo` builds and calls it.
#[derive(Debug, Parser)]
#[command(name = "demo")]
pub struct Options {
    /// Leave the cluster running and show how to enter it
    #[arg(long)]
    pub keep: bool,
    /// End with status 1 when something is not as it should be
    #[arg(long)]
    pub check: bool,
}

/// The cluster that the steps work on.
struct Cluster {
    net: Three,
    etcd: Etcd,
    agents: [Agent; 3],
    pods: Vec<Pod>,
    /// Of node c, before its agent started.
    before: Snapshot,
}

impl Cluster {
    /// First pod of the first node: the sender where one is needed.
    fn near(&self) -> &Pod {
        &self.pods[0]
    }

    /// First pod of the node behind the router.
    fn far(&self) -> &Pod {
        &self.pods[4]
    }
}

/// Runs the demo. Status 0; 1 when a step failed or, with `--check`, when there are findings.
pub fn run(options: &Options) -> ExitCode {
    let mut page = Page::new();
    let outcome = all(options, &mut page);
    if let Err(error) = &outcome {
        page.failed(error);
    }
    let findings = page.summary();
    if outcome.is_err() || options.check && findings > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn all(options: &Options, page: &mut Page) -> Result<()> {
    let lab = if options.keep {
        Lab::new_lasting("demo")
    } else {
        Lab::new("demo")
    }?;
    lab.end_on_interrupt()?;
    let cluster = build(&lab, page)?;
    page.step("Leases in etcd", |page| paths::leases(page, &cluster))?;
    page.step("Peers, as node a has them in its BPF map", |page| {
        paths::peers(page, &cluster)
    })?;
    page.step(
        "Ping, every pod to every pod: best of three, in ms",
        |page| pings::matrix(page, &cluster),
    )?;
    page.step("Speed from a-p1 to c-p1, through the router", |page| {
        speed::compare(page, &cluster)
    })?;
    page.step("A Service, on the fast path", |page| {
        service::fast(page, &cluster)
    })?;
    page.step(
        "Mode switched on all nodes, there and back, under UDP load",
        |page| under_load::live(page, &cluster),
    )?;
    page.step(
        "An agent killed and started again, under UDP load",
        |page| under_load::without_agent(page, &cluster),
    )?;
    page.step("A route and the tunnel device removed", |page| {
        faults::repaired(page, &cluster)
    })?;
    page.step("Tunnel packets of a stranger", |page| {
        faults::refused(page, &cluster)
    })?;
    page.step("A firewall rule that drops", |page| {
        faults::explained(page, &cluster)
    })?;
    page.step("Rates, under UDP load", |page| {
        under_load::rates(page, &cluster)
    })?;
    if options.keep {
        page.step("The cluster stays", |page| {
            paths::how_to_enter(page, &lab, &cluster);
            Ok(())
        })?;
        return lab.keep();
    }
    page.step("Clean-up", |page| cleanup::all(page, cluster))?;
    drop(lab);
    Ok(())
}

fn build(lab: &Lab, page: &mut Page) -> Result<Cluster> {
    let net = page.step("Underlay", |page| {
        let net = Three::new(lab)?;
        page.line("a 192.168.1.11 ---+");
        page.line("                  +--- 192.168.1.1 r 192.168.2.1 --- c 192.168.2.13");
        page.line("b 192.168.1.12 ---+                router, etcd");
        Ok(net)
    })?;
    let etcd = page.step("Store", |page| {
        let etcd = lab.etcd(&net.r)?;
        etcd.put(CONFIG_KEY, cluster::DIRECT_ROUTING, None)?;
        page.line(&format!("{} = {}", CONFIG_KEY, cluster::DIRECT_ROUTING));
        Ok(etcd)
    })?;
    let before = Snapshot::of(&net.c)?;
    let agents = page.step("An agent on each node", |page| {
        let agents = ready_agents(net.nodes(), &AgentOptions::etcd(&etcd.endpoint(ROUTER))?)?;
        paths::agents(page, &agents)?;
        Ok(agents)
    })?;
    let pods = page.step("Two pods on each node", |page| {
        let mut pods = Vec::new();
        for node in net.nodes() {
            let pair = [node.add_pod("p1")?, node.add_pod("p2")?];
            let names: Vec<String> = pair
                .iter()
                .map(|pod| format!("{} {:<12}", pod.name(), pod.ip()))
                .collect();
            page.line(names.join("   ").trim_end());
            pods.extend(pair);
        }
        Ok(pods)
    })?;
    Ok(Cluster {
        net,
        etcd,
        agents,
        pods,
        before,
    })
}
