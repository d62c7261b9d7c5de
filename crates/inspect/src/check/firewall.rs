//! The firewall rules that bear on pods' packets.

use flannel_common::abi::mode::Mode;
use flannel_datapath::{JudgeFinder, PinRoot};
use flannel_firewall::{PerPacket, Ruleset};
use flannel_host::{error_chain::chain, words::first};

use super::{code::HostCode, finding::Finding};

/// The number of chains that are named.
const NAMED: usize = 5;

/// `port` is the tunnel's, if there may be one; `best` is the highest mode this node can do.
pub(super) async fn look(port: Option<u16>, best: Mode) -> Vec<Finding> {
    let (rules, errors) = Ruleset::read(port).await;
    let is_complete = errors.is_empty();
    let mut findings: Vec<Finding> = errors
        .into_iter()
        .map(|error| {
            Finding::warn(
                HostCode::UnreadableRules,
                error,
                "not all rules could be read: look at them yourself",
            )
        })
        .collect();
    findings.extend(judge(&rules, port, best, is_complete));
    findings
}

/// BPF programs at netfilter's hooks. Our pinned program finds them, so they are not known before
/// an agent has run.
pub(super) fn netfilter_programs(pins: &PinRoot) -> Vec<Finding> {
    let lowered = "the agent lowers the mode while it is there, so that no packet bypasses it";
    match JudgeFinder::open(pins).and_then(|finder| finder.find()) {
        Ok(judges) => judges
            .names()
            .into_iter()
            .map(|name| Finding::warn(HostCode::NetfilterProgram, name, lowered))
            .collect(),
        Err(error) => {
            let text = format!(
                "BPF programs at netfilter's hooks are not known: {}",
                chain(&error)
            );
            vec![Finding::warn(
                HostCode::UnknownPrograms,
                text,
                "run the command as root, in the network namespace of the agent",
            )]
        }
    }
}

fn judge(rules: &Ruleset, port: Option<u16>, best: Mode, is_complete: bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = port.map(|port| at_port(rules, port)).into_iter().collect();
    let forward = rules.closed_forward();
    if !forward.is_empty() {
        findings.push(Finding::warn(
            HostCode::ForwardPolicy,
            format!(
                "forwarded packets are dropped in {}",
                first(&forward, NAMED)
            ),
            "pods' packets need a rule that accepts them there, in front of what drops: run the \
             agent with \
             --iptables-forward-rules, the default, and remove rules that drop all packets",
        ));
    }
    findings.push(per_packet(&rules.per_packet(), best, is_complete));
    findings
}

fn per_packet(found: &[PerPacket], best: Mode, is_complete: bool) -> Finding {
    let names = |of: &dyn Fn(&PerPacket) -> bool| -> Vec<String> {
        found
            .iter()
            .filter(|chain| of(chain))
            .map(ToString::to_string)
            .collect()
    };
    let (all, of_encap) = (names(&|_| true), names(&PerPacket::concerns_encap));
    let (hidden, modes) = match best {
        Mode::Fast => (&all, "modes encap (tunnel packets that leave) and fast"),
        Mode::Encap => (&of_encap, "mode encap"),
        Mode::Kernel => (&Vec::new(), ""),
    };
    let sees = "see one packet in two seconds of a known flow, or to a peer";
    if !hidden.is_empty() {
        return Finding::warn(
            HostCode::PerPacketRules,
            format!("rules judge packets one by one in {}", first(hidden, NAMED)),
            format!("in {modes} they {sees}: use a lower mode, or --strict-rules, if that matters"),
        );
    }
    if !all.is_empty() {
        let text = format!(
            "rules judge packets one by one in {}; higher modes than {best} would hide most",
            first(&all, NAMED)
        );
        return Finding::ok("rules", text);
    }
    if is_complete {
        return Finding::ok(
            "rules",
            "no rule outside NAT chains judges, counts, copies or logs packets one by one",
        );
    }
    Finding::warn(
        HostCode::IncompleteRules,
        "of the rules that could be read none judges packets one by one",
        "others may: see the finding about the firewall",
    )
}

fn at_port(rules: &Ruleset, port: u16) -> Finding {
    let (at_port, dropping) = (rules.at_port(), rules.dropping_at_port());
    if !dropping.is_empty() {
        return Finding::warn(
            HostCode::PortDropped,
            format!(
                "a rule drops packets of UDP port {port} in {}",
                first(&dropping, NAMED)
            ),
            "unless it spares the other nodes, pods do not reach each other",
        );
    }
    let input = rules.dropping_policies("input");
    if !input.is_empty() && at_port.is_empty() {
        return Finding::warn(
            HostCode::PortNotAccepted,
            format!(
                "what no rule accepts is dropped in {}, and no rule names UDP port {port}",
                first(&input, NAMED)
            ),
            format!("accept UDP port {port} from the other nodes"),
        );
    }
    let named: Vec<String> = at_port.into_keys().collect();
    if named.is_empty() {
        return Finding::ok("firewall", format!("no rule names UDP port {port}"));
    }
    Finding::ok(
        "firewall",
        format!("rules accept UDP port {port} in {}", first(&named, NAMED)),
    )
}
