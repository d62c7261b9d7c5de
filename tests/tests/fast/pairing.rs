//! A wrong pairing is impossible to provoke: whatever is done to packets between the hooks -
//! copied, put aside, put in another order, handed to another CPU, taken in once more - what was
//! learned is what conntrack does.
//!
//! The packets are made to be taken for one another: many flows from every CPU through many
//! Services, alike but for addresses and ports.

use std::{fs, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_datapath::Maps;
use flannel_tests::{
    Agent, Host, Node, Pod,
    fast::{Family, FastLab, pairs},
    harness::variable::number,
    kernel::nfqueue::Answers,
    load::{equal::flood, rr::Protocol},
    no_agent::BarePair,
    service_rules::{Backend, Service, ServiceRules},
};

/// Services, each of one backend.
const SERVICES: u16 = 18;
/// Of one flood, in seconds; `FLANNEL_FLOOD_SECONDS` says otherwise.
const SECONDS: u64 = 1;
/// The least number of flows that a flood teaches.
const LEARNED: usize = 50;

fn length() -> Result<Duration> {
    let seconds = number("FLANNEL_FLOOD_SECONDS")?;
    Ok(Duration::from_secs(seconds.unwrap_or(SECONDS)))
}

/// Installs Services that lead to the pods, and returns their addresses.
fn services(node: &Node, family: Family, pods: &[&Pod]) -> Result<Vec<SocketAddr>> {
    let service = |number: u16| {
        let backend = SocketAddr::new(
            family.of(pods[usize::from(number) % pods.len()])?,
            9000 + number,
        );
        Ok(Service::new(
            family.service(number),
            Protocol::Udp,
            [backend],
        ))
    };
    let services = (1..=SERVICES).map(service).collect::<Result<Vec<_>>>()?;
    ServiceRules::install(node, Backend::Nftables, family.pods())?.set(&services)?;
    Ok(services.into_iter().map(|service| service.at).collect())
}

/// Packets of these programs that named a note on another packet, so far.
fn stale(maps: &Maps) -> Result<u64> {
    let [to_tunnel, to_pod] =
        [Program::ToTunnel, Program::ToPod].map(|by| maps.stats.get(by, Reason::RecordStale));
    Ok(to_tunnel?.packets + to_pod?.packets)
}

struct Arena {
    lab: FastLab,
    targets: [Vec<SocketAddr>; 2],
}

impl Arena {
    fn new(name: &str) -> Result<Self> {
        let lab = FastLab::new(name, &[])?;
        let pods = [&lab.far, &lab.other, &lab.beside];
        let on = |family| services(&lab.nodes.a, family, &pods);
        let targets = [on(Family::V4)?, on(Family::V6)?];
        Ok(Self { lab, targets })
    }

    /// Floods, and compares what both nodes learned of it with conntrack.
    fn hold(&self) -> Result<()> {
        let senders: [&Host; 2] = [&self.lab.near, &self.lab.beside];
        for targets in &self.targets {
            self.lab
                .agents
                .iter()
                .try_for_each(|agent| agent.cli(&["flows", "flush"]).map(drop))?;
            flood(&senders, targets, length()?)?;
        }
        for (node, maps) in [&self.lab.nodes.a, &self.lab.nodes.b]
            .into_iter()
            .zip(&self.lab.maps)
        {
            let learned = pairs::are_right(node, maps)?;
            ensure!(
                learned >= LEARNED,
                "{}: only {learned} flows were learned",
                node.name()
            );
        }
        Ok(())
    }

    /// The same, while many packets on these nodes are not where their notes are.
    fn hold_while_notes_go_astray(&self, on: [bool; 2]) -> Result<()> {
        let astray =
            || Ok::<_, anyhow::Error>([stale(&self.lab.maps[0])?, stale(&self.lab.maps[1])?]);
        let before = astray()?;
        self.hold()?;
        let after = astray()?;
        ensure!(
            (0..2).all(|node| !on[node] || after[node] - before[node] > 100),
            "too few notes: {before:?}, {after:?}"
        );
        Ok(())
    }

    /// Runs legacy iptables on both nodes, for both families. `each` gives the rest of the line.
    fn iptables(&self, each: impl Fn(&Node, Family) -> Result<String>) -> Result<()> {
        for node in [&self.lab.nodes.a, &self.lab.nodes.b] {
            for family in Family::ALL {
                node.sh(&format!("{} {}", family.iptables(), each(node, family)?))?;
            }
        }
        Ok(())
    }

    /// Every second packet waits for a program, which answers in another order, on a CPU of its
    /// own.
    fn queued(&self) -> Result<()> {
        let rule =
            "FORWARD -p udp -m statistic --mode nth --every 2 --packet 0 -j NFQUEUE --queue-num 0";
        // More at a time on the other node than a CPU has slots for notes.
        let answers = [
            Answers::start_reversing(&self.lab.nodes.a, 0, 16)?,
            Answers::start_reversing(&self.lab.nodes.b, 1, 128)?,
        ];
        self.lab
            .agents
            .iter()
            .try_for_each(Agent::wait_polls_counted)?;
        self.iptables(|_, _| Ok(format!("-I {rule}")))?;
        self.hold_while_notes_go_astray([true; 2])?;
        self.iptables(|_, _| Ok(format!("-D {rule}")))?;
        ensure!(
            answers.iter().all(|answers| answers.count() > 1000),
            "too few packets were judged"
        );
        Ok(())
    }

    /// Every packet is also copied to one pod of the node: `near` on the first node, `other` on the
    /// second.
    fn copied(&self) -> Result<()> {
        let monitor = |node: &Node| {
            if node.name() == self.lab.nodes.a.name() {
                &self.lab.near
            } else {
                &self.lab.other
            }
        };
        let rule = |node: &Node, family: Family| {
            Ok(format!(
                "-t mangle -A PREROUTING -p udp ! --dport 8472 -j TEE --gateway {}",
                family.of(monitor(node))?
            ))
        };
        self.iptables(rule)?;
        self.hold_while_notes_go_astray([true; 2])?;
        self.iptables(|_, _| Ok("-t mangle -F".to_owned()))
    }

    /// Another CPU takes over between the hooks.
    fn steered(&self) -> Result<()> {
        let steer = |cpus: &str| {
            for node in [&self.lab.nodes.a, &self.lab.nodes.b] {
                for device in ["cni0", "flannel.1", "flannel-v6.1"] {
                    fs::write(
                        node.outside_path(format!("/sys/class/net/{device}/queues/rx-0/rps_cpus")),
                        cpus,
                    )?;
                }
            }
            Ok::<_, anyhow::Error>(())
        };
        steer("3")?;
        // What comes out of the tunnel is steered before it is noted.
        self.hold_while_notes_go_astray([true, false])?;
        steer("0")
    }
}

#[test]
fn what_is_learned_is_what_conntrack_does() -> Result<()> {
    let arena = Arena::new("pairing")?;
    arena.hold().context("undisturbed")?;
    arena.queued().context("put aside and in another order")?;
    arena.copied().context("copied")?;
    arena.steered().context("steered to other CPUs")
}

/// Without agents, which leave a way to the kernel on which such filters are.
#[test]
fn packets_taken_in_once_more_are_paired_right() -> Result<()> {
    let pair = BarePair::new("pairingmirred")?;
    let targets = services(&pair.a.node, Family::V4, &[&pair.far])?;
    let node = &pair.a.node;
    node.sh("ip link add again type veth peer name again-peer")?;
    node.sh("ip link set again up")?;
    node.sh("ip link set again-peer up")?;
    node.sh("tc qdisc add dev cni0 clsact")?;
    for action in ["mirror", "redirect"] {
        let argv = format!(
            "tc filter add dev cni0 ingress protocol ip u32 match u32 0 0 action mirred ingress \
             {action} dev again"
        );
        node.sh(&argv)?;
        flood(&[&pair.near], &targets, length()?)?;
        pairs::are_right(node, &pair.a.maps).with_context(|| action.to_owned())?;
        let shown = node.sh("tc -s filter show dev cni0 ingress")?.stdout;
        let sent = shown
            .split_once("Sent ")
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(2)?.parse().ok());
        ensure!(
            sent.is_some_and(|packets: u64| packets > 100),
            "too few packets were taken in once more:\n{shown}"
        );
        node.sh("tc filter delete dev cni0 ingress")?;
    }
    flood(&[&pair.near], &targets, length()?)?;
    let learned = pairs::are_right(node, &pair.a.maps)?;
    ensure!(learned >= LEARNED, "only {learned} flows were learned");
    Ok(())
}
