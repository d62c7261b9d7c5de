//! Rules as their tools read them. Pure.
//!
//! A rule bears its number as a comment, by which its counter is found again.

pub mod iptables;
pub mod nft;

use std::net::IpAddr;

use super::scenario::{Flow, Place, Rule, Scenario, Side, Tool, client_port};
use crate::{fast::Family, load::rr::Protocol};

/// The pods' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses(pub [[IpAddr; 2]; 4]);

impl Addresses {
    /// One pod's of one family.
    pub fn of(&self, place: Place, family: Family) -> IpAddr {
        self.0[place.index()][usize::from(family == Family::V6)]
    }
}

/// The address that [`Action::Redirect`](super::scenario::Action::Redirect) translates.
pub fn redirected(family: Family, flow: u16) -> std::net::SocketAddr {
    family.service(3000 + flow)
}

/// The comment of a rule.
pub fn comment(rule: &Rule) -> String {
    format!("diff-{}", rule.id)
}

/// The number of the rule with this comment.
pub fn rule_number(comment: &str) -> Option<u16> {
    comment.strip_prefix("diff-")?.parse().ok()
}

/// The rules of a node that one tool writes for one family, in order.
pub(crate) fn rules(
    scenario: &Scenario,
    side: Side,
    tool: Tool,
    family: Family,
) -> impl Iterator<Item = &Rule> {
    let is_meant =
        move |rule: &&Rule| rule.side == side && rule.tool == tool && rule.family == family;
    scenario.rules.iter().filter(is_meant)
}

/// The protocol these flows share.
pub(crate) fn protocol(scenario: &Scenario, flows: &[u16]) -> Protocol {
    let first = flows.iter().find_map(|id| scenario.flow(*id));
    first.map_or(Protocol::Udp, Flow::protocol)
}

/// The clients' ports of these flows.
pub(crate) fn client_ports(flows: &[u16], separator: &str) -> String {
    let ports: Vec<_> = flows
        .iter()
        .map(|id| client_port(*id).to_string())
        .collect();
    ports.join(separator)
}

/// The server's port and address behind a redirection.
pub(crate) fn target(
    scenario: &Scenario,
    addresses: &Addresses,
    flow: u16,
) -> Option<std::net::SocketAddr> {
    let flow = scenario.flow(flow)?;
    Some((addresses.of(flow.to, flow.family), flow.server_port()).into())
}

#[cfg(test)]
pub(crate) fn test_addresses() -> Addresses {
    let pod = |node: u8, number: u8| -> [IpAddr; 2] {
        let v6 = format!("fd00:10:244:{node}::{number}")
            .parse()
            .expect("an address");
        [[10, 244, node, number].into(), v6]
    };
    Addresses([pod(1, 2), pod(1, 3), pod(2, 2), pod(2, 3)])
}
