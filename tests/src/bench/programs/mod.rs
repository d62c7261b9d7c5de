//! The time that each BPF program takes per packet, by the kernel's own run-time statistics. All
//! packets of a load are treated alike. The programs' counters by reason prove it, so hits and
//! misses stand apart.
//!
//! The figures include the kernel's clock reads before and after a run. The statistics are enabled
//! only while this process holds them, however it ends.

mod cost;

use std::{collections::BTreeMap, fs, net::IpAddr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use aya::sys::{Stats, enable_stats};
use clap::Args;
use flannel_common::abi::program::Program;

use self::cost::{Cost, table};
use super::{
    cpus::{Cpus, Placement},
    plan::{Mode, Profile, Via, Workload},
    rules::SERVICE,
    site::{self, Binaries, Load, Site},
};
use crate::{
    Agent, Host, Lab,
    agent::pins::{self, learn_none_of_ports},
    cluster::topology::SECOND,
};

/// A port whose flows the programs are made to learn none of, so every packet is a miss.
const NEVER_LEARNED: u16 = 5060;
/// A program that ran less often in a load has nothing to do with it.
const FEW: u64 = 1000;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Seconds of one load
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// CPU on which the load runs; the last one without this
    #[arg(long)]
    cpu: Option<usize>,
    /// Write the table's lines to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One load, and the ends between which it runs.
struct Talk {
    name: &'static str,
    mode: Mode,
    workload: Workload,
    ends: Ends,
}

#[derive(Clone, Copy)]
enum Ends {
    /// Pod to pod, or to a Service.
    Pods(Via),
    /// Pod to pod, at the port of which no flow is learned.
    NeverLearned,
    /// The nodes themselves.
    Nodes,
}

const TALKS: [Talk; 9] = [
    Talk {
        name: "known flow, datagrams",
        mode: Mode::Fast,
        workload: Workload::UdpPps,
        ends: Ends::Pods(Via::Pod),
    },
    Talk {
        name: "known flow, Service",
        mode: Mode::Fast,
        workload: Workload::UdpPps,
        ends: Ends::Pods(Via::Service),
    },
    Talk {
        name: "known flow, TCP",
        mode: Mode::Fast,
        workload: Workload::TcpRr,
        ends: Ends::Pods(Via::Pod),
    },
    Talk {
        name: "known flow, TCP Service",
        mode: Mode::Fast,
        workload: Workload::TcpRr,
        ends: Ends::Pods(Via::Service),
    },
    Talk {
        name: "never learned",
        mode: Mode::Fast,
        workload: Workload::UdpPps,
        ends: Ends::NeverLearned,
    },
    Talk {
        name: "not pods' packets",
        mode: Mode::Fast,
        workload: Workload::UdpPps,
        ends: Ends::Nodes,
    },
    Talk {
        name: "short connections",
        mode: Mode::Fast,
        workload: Workload::TcpCrr,
        ends: Ends::Pods(Via::Pod),
    },
    Talk {
        name: "datagrams",
        mode: Mode::Encap,
        workload: Workload::UdpPps,
        ends: Ends::Pods(Via::Pod),
    },
    Talk {
        name: "datagrams",
        mode: Mode::Kernel,
        workload: Workload::UdpPps,
        ends: Ends::Pods(Via::Pod),
    },
];

impl Options {
    pub(super) fn run(&self) -> Result<()> {
        ensure!(
            (0.1..=60.0).contains(&self.seconds),
            "--seconds={}: from 0.1 to 60",
            self.seconds
        );
        let load = Load {
            cpus: Cpus::choose(Placement::One, self.cpu)?,
            seconds: self.seconds,
        };
        let lab = Lab::new("bench-programs")?;
        lab.end_on_interrupt()?;
        let sites: Vec<Site> = [Mode::Fast, Mode::Encap, Mode::Kernel]
            .into_iter()
            .map(|mode| Site::new(&lab, mode, &Binaries::default(), &load.cpus))
            .collect::<Result<_>>()?;
        for site in &sites {
            site.set_profile(Profile::Offload)?;
            for node in site.nodes() {
                learn_none_of_ports(node, &[NEVER_LEARNED])?;
            }
        }
        let _statistics = enable_stats(Stats::RunTime)
            .context("the kernel's run-time statistics (kernel 5.8)")?;
        let mut costs = Vec::new();
        for talk in &TALKS {
            let site = sites
                .iter()
                .find(|site| site.mode == talk.mode)
                .context("a site for each mode")?;
            costs.extend(
                talk.costs(site, &load)
                    .with_context(|| format!("{}, mode {}", talk.name, talk.mode))?,
            );
        }
        print!("{}", table(&costs));
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&costs)? + "\n";
            fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }
}

impl Talk {
    fn costs(&self, site: &Site, load: &Load) -> Result<Vec<Cost>> {
        let agents = site.agents().context("a mode without an agent")?;
        let before = [Reading::of(&agents[0])?, Reading::of(&agents[1])?];
        self.run(site, load)?;
        let mut costs = Vec::new();
        for (agent, (node, before)) in agents
            .iter()
            .zip(["client", "server"].into_iter().zip(&before))
        {
            let after = Reading::of(agent)?;
            costs.extend(
                Program::ALL
                    .into_iter()
                    .filter_map(|program| self.cost(node, program, before, &after)),
            );
        }
        Ok(costs)
    }

    fn run(&self, site: &Site, load: &Load) -> Result<()> {
        let [a, b] = site.nodes();
        let pods = site.ends();
        let (client, server, port): ((&Host, IpAddr), (&Host, IpAddr), u16) = match self.ends {
            Ends::Pods(via) => {
                let own = site.server_ip()?;
                let at = if via == Via::Pod { own } else { SERVICE };
                ((pods.0, at), (pods.1, own), via.port())
            }
            Ends::NeverLearned => (
                (pods.0, site.server_ip()?),
                (pods.1, site.server_ip()?),
                NEVER_LEARNED,
            ),
            Ends::Nodes => {
                let at = SECOND.parse()?;
                ((a, at), (b, at), Via::Pod.port())
            }
        };
        site::run(self.workload, client, server, port, load).map(drop)
    }

    /// `None` where the program hardly ran: what comes back from the server is not the load.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn cost(
        &self,
        node: &'static str,
        program: Program,
        before: &Reading,
        after: &Reading,
    ) -> Option<Cost> {
        let packets = after.runs(program) - before.runs(program);
        (packets >= FEW).then(|| Cost {
            mode: self.mode,
            load: self.name,
            node,
            program: program.name(),
            packets,
            nanoseconds: (after.time(program) - before.time(program)) as f64 / packets as f64,
            reasons: after.reasons_since(before, program),
        })
    }
}

/// The statistics of one node's programs so far.
struct Reading {
    /// Runs and nanoseconds, by the program's number.
    times: Vec<pins::RunTime>,
    /// Packets by program and reason.
    reasons: BTreeMap<(String, String), u64>,
}

impl Reading {
    fn of(agent: &Agent) -> Result<Self> {
        let times = Program::ALL.map(|program| pins::run_time(agent.node(), program));
        let times = times.into_iter().collect::<Result<_>>()?;
        let dump = agent.cli_json(&["maps", "dump", "stats", "-o", "json"])?;
        let mut reasons = BTreeMap::new();
        for row in dump["stats"].as_array().context("a dump without stats")? {
            let name = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            reasons.insert(
                (name("program"), name("reason")),
                row["packets"].as_u64().context("packets")?,
            );
        }
        Ok(Self { times, reasons })
    }

    fn reasons_since(&self, earlier: &Self, program: Program) -> BTreeMap<String, u64> {
        let ours = self
            .reasons
            .iter()
            .filter(|((name, _), _)| name == program.name());
        let counted = ours.map(|(key, packets)| {
            (
                key.1.clone(),
                packets - earlier.reasons.get(key).unwrap_or(&0),
            )
        });
        counted.filter(|(_, packets)| *packets > 0).collect()
    }

    fn runs(&self, program: Program) -> u64 {
        self.times[program as usize].runs
    }

    fn time(&self, program: Program) -> u64 {
        self.times[program as usize].nanoseconds
    }
}
