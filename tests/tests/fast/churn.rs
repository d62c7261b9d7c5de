//! Flows without end leave nothing behind: what agents and kernel hold for mode `fast` stays within
//! what was set up.
//!
//! The table is as small as it gets, so that it is full after a few seconds. `FLANNEL_CHURN_FLOWS`
//! (default 100,000) chooses how many; an hour takes some ten million.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::maps::MapData;
use flannel_common::abi::{
    maps::{ALL, FLOWS},
    program::Program,
    reason::Reason,
};
use flannel_datapath::{Maps, PinRoot};
use flannel_tests::{
    Agent, Host, Pair,
    agent::pins,
    fast::fast_pair,
    harness::variable::number,
    load::short_flows::{Round, round},
};

const DEFAULT_FLOWS: u64 = 100_000;
const ROUND: Round = Round {
    datagrams: 9_800,
    connections: 200,
};
const FLOWS_OF_A_ROUND: u64 = 10_000;
/// Memory an agent may hold more at the end than it did in the second quarter.
const GROWTH: u64 = 4 << 20;

/// The resources that one node holds: resident memory of the agent in bytes, flows, pins, and
/// kernel memory of the maps in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    resident: u64,
    flows: u64,
    pins: Vec<String>,
    map_memory: u64,
}

/// An agent and its maps, opened once.
struct Watched<'a> {
    agent: &'a Agent,
    maps: Maps,
    capacity: u64,
}

impl<'a> Watched<'a> {
    fn new(agent: &'a Agent) -> Result<Self> {
        let maps = agent
            .node()
            .enter(|| Maps::open(&PinRoot::new(Path::new("/sys/fs/bpf/flannel"))))??;
        Ok(Self {
            agent,
            maps,
            capacity: pins::map(agent.node(), FLOWS)?.max_entries.into(),
        })
    }

    fn held(&self) -> Result<Held> {
        let node = self.agent.node();
        let mut pins: Vec<_> = node
            .sh("find /sys/fs/bpf/flannel")?
            .stdout
            .lines()
            .map(str::to_owned)
            .collect();
        pins.sort();
        Ok(Held {
            resident: self.agent.memory("VmRSS")?,
            flows: self.maps.flows.table().flatten().count() as u64,
            pins,
            map_memory: map_memory(node)?,
        })
    }

    fn counted(&self, programs: [Program; 2], reasons: &[Reason]) -> Result<u64> {
        let pairs = programs
            .into_iter()
            .flat_map(|program| reasons.iter().map(move |reason| (program, *reason)));
        pairs
            .map(|(program, reason)| Ok(self.maps.stats.get(program, reason)?.packets))
            .sum()
    }

    /// Packets noted, and notes of which something came.
    fn notes(&self) -> Result<[u64; 2]> {
        use Reason::{
            ChangedOtherwise, FlowClosed, Handshake, Learned, MirrorDiffers, OtherReceiver,
            RecordStale, Refreshing, Sampled, TableRefused, Untracked, WindowChecked,
        };
        let came = [
            ChangedOtherwise,
            FlowClosed,
            Learned,
            MirrorDiffers,
            RecordStale,
            OtherReceiver,
            TableRefused,
            Untracked,
            WindowChecked,
        ];
        let noted = self.counted(
            [Program::FromPod, Program::FromTunnel],
            &[Sampled, Refreshing, Handshake],
        )?;
        Ok([
            noted,
            self.counted([Program::ToPod, Program::ToTunnel], &came)?,
        ])
    }

    /// Within bounds whatever happened before.
    fn check(&self, before: &Held, now: &Held) -> Result<()> {
        ensure!(
            now.flows <= self.capacity,
            "{} flows in a table of {}",
            now.flows,
            self.capacity
        );
        ensure!(
            now.pins == before.pins,
            "pins were {:#?}\nand are {:#?}",
            before.pins,
            now.pins
        );
        ensure!(
            now.map_memory == before.map_memory,
            "maps took {} bytes, now {}",
            before.map_memory,
            now.map_memory
        );
        Ok(())
    }
}

/// Returns the bytes of kernel memory of all maps of a node, from the `memlock` line of their
/// descriptors.
fn map_memory(node: &Host) -> Result<u64> {
    node.enter(|| {
        ALL.into_iter()
            .map(|name| {
                let map = MapData::from_pin(Path::new(pins::MAPS).join(name))
                    .with_context(|| name.to_owned())?;
                let number = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(map.fd()));
                let text = fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}"))?;
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix("memlock:"))
                    .context("memlock")?;
                line.trim().parse::<u64>().with_context(|| line.to_owned())
            })
            .sum()
    })?
}

/// Conntrack holds a flow for a while after its last packet; with the usual two minutes its table
/// would be the bound.
fn forget_soon(pair: &Pair) -> Result<()> {
    for agent in [&pair.sender, &pair.receiver] {
        for name in ["udp_timeout", "udp_timeout_stream", "tcp_timeout_time_wait"] {
            agent
                .node()
                .sh(&format!("sysctl -qw net.netfilter.nf_conntrack_{name}=10"))?;
        }
    }
    Ok(())
}

#[test]
fn flows_without_end_leave_nothing_behind() -> Result<()> {
    let pair = fast_pair("fa-churn", &["--flow-table-size=16384"])?;
    forget_soon(&pair)?;
    // One round to set up whatever is set up once.
    round(&pair.near, &pair.far, ROUND)?;
    let nodes = [Watched::new(&pair.sender)?, Watched::new(&pair.receiver)?];
    let start = [nodes[0].held()?, nodes[1].held()?];
    let rounds = number("FLANNEL_CHURN_FLOWS")?
        .unwrap_or(DEFAULT_FLOWS)
        .div_ceil(FLOWS_OF_A_ROUND)
        .max(4);
    let began = Instant::now();
    let (mut quarter, mut now) = ([0; 2], start.clone());
    for number in 1..=rounds {
        round(&pair.near, &pair.far, ROUND)
            .with_context(|| format!("round {number} of {rounds}: {now:?}"))?;
        // To count a full table takes as long as a tenth of a round.
        if number % rounds.div_ceil(100) != 0 && number != rounds {
            continue;
        }
        for (at, node) in nodes.iter().enumerate() {
            now[at] = node.held()?;
            node.check(&start[at], &now[at])
                .with_context(|| format!("round {number} of {rounds}"))?;
            if (rounds / 4..=rounds / 2).contains(&number) {
                quarter[at] = now[at].resident.max(quarter[at]);
            }
        }
        let brief = now
            .each_ref()
            .map(|held| [held.resident >> 10, held.flows, held.map_memory >> 10]);
        let flows = number * FLOWS_OF_A_ROUND;
        println!(
            "{flows} flows in {:.0?}: RSS KiB, table, map KiB {brief:?}",
            began.elapsed()
        );
    }
    for (at, node) in nodes.iter().enumerate() {
        let [noted, came] = node.notes()?;
        println!(
            "node {at}: {noted} packets noted, of {came} something came; table of {}",
            node.capacity
        );
        ensure!(noted == came, "{} notes were left", noted.abs_diff(came));
        let [was, is] = [quarter[at], now[at].resident];
        ensure!(
            is <= was + GROWTH,
            "the agent grew from {was} to {is} bytes"
        );
    }
    // In a full table a new flow finds its place. The short ones may end before the agent confirms
    // what was learned.
    let run = pair.stream(1_000, Duration::from_mins(1))?;
    pair.wait_replayed(1_000)?;
    run.stop()?.expect_complete()
}
