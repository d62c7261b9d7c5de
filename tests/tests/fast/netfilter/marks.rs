//! Marks and priorities that rules put on packets, for the queues of the external interface:
//! replayed packets have them too.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Node,
    fast::{Family, FastLab},
    no_agent::Talk,
};

/// Messages there, and as many back that the other node sends.
const MESSAGES: u32 = 1000;

/// A filter that leads what is marked 0x42 to class 1:2: load the mark, compare, return the class.
const BY_MARK: &str = "4,32 0 0 4294963220,21 0 1 66,6 0 0 65538,6 0 0 0";

/// Packets that went by a class of the external interface: the fourth word of the line behind that
/// of the class.
fn sent_by(node: &Node, class: &str) -> Result<u64> {
    let text = node.sh("tc -s class show dev eth0")?.stdout;
    let head = format!("class htb {class} ");
    let line = text
        .lines()
        .skip_while(|line| !line.starts_with(&head))
        .nth(1);
    let packets = line.and_then(|line| line.split_ascii_whitespace().nth(3)?.parse().ok());
    packets.with_context(|| format!("no class {class}:\n{text}"))
}

/// A new connection's packets go by this class.
fn goes_by(lab: &FastLab, mode: &str, family: Family, class: &str) -> Result<()> {
    let mut talk = Talk::open(&lab.near, &lab.far, family.end(&lab.far)?, None)?;
    lab.until_replayed_on([mode == "fast"; 2], |messages| talk.exchange(messages))?;
    let (packets, replayed) = (sent_by(&lab.nodes.a, class)?, lab.replayed()?[0]);
    talk.exchange(MESSAGES)?;
    let (packets, replayed) = (
        sent_by(&lab.nodes.a, class)? - packets,
        lab.replayed()?[0] - replayed,
    );
    ensure!(
        packets >= u64::from(MESSAGES),
        "{packets} of {MESSAGES} packets by class {class}"
    );
    ensure!(
        mode != "fast" || replayed > u64::from(MESSAGES),
        "{replayed} packets were replayed"
    );
    Ok(())
}

/// Marks that conntrack restores, then classes, in every mode.
pub(crate) fn what_is_marked_is_queued_by_its_mark(lab: &FastLab) -> Result<()> {
    let node = &lab.nodes.a;
    node.sh("tc qdisc add dev eth0 root handle 1: htb default 1")?;
    for class in ["1:1", "1:2", "1:3"] {
        node.sh(&format!(
            "tc class add dev eth0 parent 1: classid {class} htb rate 10gbit"
        ))?;
    }
    node.run([
        "tc", "filter", "add", "dev", "eth0", "parent", "1:", "bpf", "bytecode", BY_MARK,
    ])?;
    let rules = |rules: &[&str]| {
        Family::ALL.into_iter().try_for_each(|family| {
            let add = |rule: &&str| {
                node.sh(&format!("{} -t mangle {rule}", family.iptables()))
                    .map(drop)
            };
            rules.iter().try_for_each(add)
        })
    };
    // The connection's mark, of its first packet, is restored to all others.
    rules(&[
        "-A PREROUTING -j CONNMARK --restore-mark",
        "-A FORWARD -o flannel+ -m conntrack --ctstate NEW -j MARK --set-mark 0x42",
        "-A FORWARD -m conntrack --ctstate NEW -j CONNMARK --save-mark",
    ])?;
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            goes_by(lab, mode, family, "1:2")
                .with_context(|| format!("marked, mode {mode}, {family:?}"))?;
        }
    }
    rules(&[
        "-F",
        "-A POSTROUTING -o flannel+ -j CLASSIFY --set-class 1:3",
    ])?;
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            goes_by(lab, mode, family, "1:3")
                .with_context(|| format!("classified, mode {mode}, {family:?}"))?;
        }
    }
    rules(&["-F"])?;
    node.sh("tc qdisc delete dev eth0 root").map(drop)
}
