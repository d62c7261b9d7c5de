//! Flows that are left to the kernel whatever they do.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use flannel_host::kernel_types;
use flannel_tests::{
    agent::pins::learn_none_of_ports,
    fast::{Conversation, Family, FastLab},
    kernel::nfqueue::Answers,
    load::rr::Protocol,
    not_run,
};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

const MESSAGES: u32 = 1000;

/// Exchanges messages, and fails if `a` replayed a packet of them.
fn left_alone(lab: &FastLab, talk: &mut Conversation) -> Result<()> {
    let before = lab.replayed()?[0];
    talk.exchange(MESSAGES)?;
    let replayed = lab.replayed()?[0] - before;
    ensure!(replayed == 0, "{replayed} packets were replayed");
    Ok(())
}

/// Ports of conntrack's helpers, which read what such flows say, and rewrite it.
const HELPERS: [(Protocol, u16); 4] = [
    (Protocol::Tcp, 21),
    (Protocol::Tcp, 1723),
    (Protocol::Udp, 69),
    (Protocol::Udp, 5060),
];

/// Flows of these ports, which a masquerade may have chosen, are replayed if the kernel shows which
/// connections have a helper. Otherwise they are left to the kernel.
pub(crate) fn ports_of_helpers(lab: &FastLab) -> Result<()> {
    if kernel_types::layout().extensions == 0 {
        not_run(
            "ports of helpers, replayed",
            "the kernel does not show its types",
        );
    } else {
        at_ports_of_helpers(lab, |talk| {
            lab.until_replayed(|messages| talk.exchange(messages))
        })?;
    }
    learn_none_of_ports(&lab.nodes.a, &HELPERS.map(|(_, port)| port))?;
    at_ports_of_helpers(lab, |talk| left_alone(lab, talk))?;
    learn_none_of_ports(&lab.nodes.a, &[])
}

fn at_ports_of_helpers(
    lab: &FastLab,
    mut work: impl FnMut(&mut Conversation) -> Result<()>,
) -> Result<()> {
    for family in Family::ALL {
        for (protocol, port) in HELPERS {
            let at = SocketAddr::new(family.of(&lab.far)?, port);
            let mut talk = Conversation::open(protocol, &lab.near, &lab.far, at, None)?;
            work(&mut talk).with_context(|| format!("{family:?}, {protocol:?} {port}"))?;
        }
    }
    Ok(())
}

/// A rule gives a helper, or special timeouts, to connections on any port: conntrack's entry shows
/// it.
pub(crate) fn connections_with_a_helper(lab: &FastLab) -> Result<()> {
    const PORT: u16 = 2121;
    let node = &lab.nodes.a;
    for family in Family::ALL {
        let rule = |verb: &str| {
            format!(
                "{} -t raw {verb} PREROUTING -p tcp --dport {PORT} -j CT --helper ftp",
                family.iptables()
            )
        };
        if let Err(error) = node.sh(&rule("-A")) {
            not_run(
                "connections with a helper by rule",
                &format!("the kernel or iptables refuses it: {error:#}"),
            );
            return Ok(());
        }
        let at = SocketAddr::new(family.of(&lab.far)?, PORT);
        let mut talk = Conversation::open(Protocol::Tcp, &lab.near, &lab.far, at, None)?;
        left_alone(lab, &mut talk).with_context(|| format!("{family:?}"))?;
        node.sh(&rule("-D"))?;
        let mut talk = Conversation::open(Protocol::Tcp, &lab.near, &lab.far, at, None)?;
        lab.until_replayed(|messages| talk.exchange(messages))
            .context("without the rule")?;
    }
    let policy = "table ip t {
        ct timeout short { protocol udp; l3proto ip; policy = { unreplied: 10, replied: 10 }; }
        chain c \
        { type filter hook prerouting priority -150; udp dport 9400 ct timeout set \"short\"; }
    }";
    if let Err(error) = node.nft(policy) {
        not_run(
            "connections with a timeout policy",
            &format!("the kernel or nft refuses it: {error:#}"),
        );
        return Ok(());
    }
    let at = SocketAddr::new(Family::V4.of(&lab.far)?, 9400);
    let mut talk = Conversation::open(Protocol::Udp, &lab.near, &lab.far, at, None)?;
    left_alone(lab, &mut talk).context("a timeout policy")?;
    node.sh("nft delete table ip t").map(drop)
}

/// A program in userspace is asked about each packet, and answers on the CPU the packet came from.
pub(crate) fn packets_userspace_judges(lab: &FastLab) -> Result<()> {
    let cpu = 0;
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    let answers = Answers::start(&lab.nodes.a, cpu)?;
    lab.agents[0].wait_polls_counted()?;
    for family in Family::ALL {
        lab.nodes.a.sh(&format!(
            "{} -I FORWARD -j NFQUEUE --queue-num 0",
            family.iptables()
        ))?;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let judged = answers.count();
            let mut talk =
                Conversation::open(protocol, &lab.near, &lab.far, family.end(&lab.far)?, None)?;
            left_alone(lab, &mut talk).with_context(|| format!("{family:?}, {protocol:?}"))?;
            let judged = answers.count() - judged;
            ensure!(
                judged >= 2 * u64::from(MESSAGES),
                "{judged} packets were judged"
            );
        }
        // A flow that is no longer judged is replayed after all.
        let mut talk = Conversation::open(
            Protocol::Tcp,
            &lab.near,
            &lab.far,
            family.end(&lab.far)?,
            None,
        )?;
        left_alone(lab, &mut talk)?;
        lab.nodes.a.sh(&format!(
            "{} -D FORWARD -j NFQUEUE --queue-num 0",
            family.iptables()
        ))?;
        lab.until_replayed(|messages| talk.exchange(messages))?;
    }
    Ok(())
}
