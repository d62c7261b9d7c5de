//! The firewall rules that bear on pods' packets.

use super::Finding;
use crate::firewall::Ruleset;

/// How many chains are named.
const NAMED: usize = 5;

/// `port` is the tunnel's, if there may be one.
pub(super) async fn look(port: Option<u16>, fast: bool) -> Vec<Finding> {
    let (rules, errors) = Ruleset::read().await;
    let mut findings: Vec<Finding> = errors
        .into_iter()
        .map(|error| Finding::warn("firewall", error, "not all rules could be read: look at them yourself"))
        .collect();
    match rules {
        Some(rules) => findings.extend(judge(&rules, port, fast)),
        None if findings.is_empty() => {
            findings.push(Finding::ok("firewall", "not looked at: neither nft nor iptables is installed"));
        }
        None => {}
    }
    findings
}

fn judge(rules: &Ruleset, port: Option<u16>, fast: bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = port.map(|port| at_port(rules, port)).into_iter().collect();
    let forward = rules.dropping_policies("forward");
    if !forward.is_empty() && !rules.has_chain("FLANNEL-FWD") {
        findings.push(Finding::warn(
            "firewall",
            format!("what no rule accepts is dropped in {}", some(&forward)),
            "pods' packets need a rule there: run the agent with --iptables-forward-rules, the default",
        ));
    }
    let per_packet: Vec<String> = rules.per_packet().iter().map(ToString::to_string).collect();
    findings.push(if per_packet.is_empty() {
        Finding::ok("rules", "no rule judges pods' packets one by one")
    } else if fast {
        Finding::warn(
            "rules",
            format!("rules judge packets one by one in {}", some(&per_packet)),
            "in mode fast they see one packet in two seconds of a known flow: use mode encap, or --strict-rules, if that matters",
        )
    } else {
        Finding::ok("rules", format!("rules judge packets one by one in {}; mode fast would hide most from them", some(&per_packet)))
    });
    findings
}

fn at_port(rules: &Ruleset, port: u16) -> Finding {
    let at_port = rules.at_port(port);
    let dropping: Vec<String> = at_port.iter().filter(|(_, drops)| **drops).map(|(chain, _)| chain.clone()).collect();
    if !dropping.is_empty() {
        return Finding::warn(
            "firewall",
            format!("a rule drops packets of UDP port {port} in {}", some(&dropping)),
            "unless it spares the other nodes, pods do not reach each other",
        );
    }
    let input = rules.dropping_policies("input");
    if !input.is_empty() && at_port.is_empty() {
        return Finding::warn(
            "firewall",
            format!("what no rule accepts is dropped in {}, and no rule names UDP port {port}", some(&input)),
            format!("accept UDP port {port} from the other nodes"),
        );
    }
    let named: Vec<String> = at_port.into_keys().collect();
    if named.is_empty() {
        return Finding::ok("firewall", format!("no rule names UDP port {port}"));
    }
    Finding::ok("firewall", format!("rules accept UDP port {port} in {}", some(&named)))
}

/// The first of them.
fn some(names: &[String]) -> String {
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    format!("{}{more}", names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
}
