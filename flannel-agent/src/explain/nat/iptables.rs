//! Services in a dump of `iptables-save`, as kube-proxy's mode `iptables` writes them: from
//! `KUBE-SERVICES` by chains of the Service to chains of the endpoints. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use flannel_firewall::tools::{
    saved::{SavedLine, lines},
    words,
};
use ipnet::IpNet;

use super::{Found, Service};
use crate::explain::question::Transport;

/// The chain that leads to all Services.
const SERVICES: &str = "KUBE-SERVICES";
/// The chain that only marks, and leads to no endpoint.
const MARKS: &str = "KUBE-MARK-MASQ";

/// A rule as its words.
pub(super) type Words<'a> = Vec<Cow<'a, str>>;

/// The rules of each chain, by table and chain.
pub(super) type Tables<'a> = BTreeMap<(&'a str, &'a str), Vec<Words<'a>>>;

/// Splits a dump.
pub(super) fn tables(text: &str) -> Tables<'_> {
    let (mut tables, mut table) = (Tables::new(), "");
    for line in lines(text) {
        match line {
            SavedLine::Table(name) => table = name,
            SavedLine::Chain { name, .. } => drop(tables.entry((table, name)).or_default()),
            SavedLine::Rule { chain, options } => {
                tables.entry((table, chain)).or_default().push(words::split(options));
            }
            SavedLine::Remark(_) => {}
        }
    }
    tables
}

/// The word behind an option.
pub(super) fn option<'w>(rule: &'w Words<'_>, name: &str) -> Option<&'w str> {
    let place = rule.iter().position(|word| word == name)?;
    rule.get(place + 1).map(AsRef::as_ref)
}

/// The Services of an address; `None` if the dump has no chain of kube-proxy's.
pub(super) fn services(tool: &str, text: &str, address: IpAddr, transport: Transport) -> Option<Found> {
    let tables = tables(text);
    let rules = tables.get(&("nat", SERVICES))?;
    let mut found = Found::new();
    for rule in rules.iter().filter(|rule| is_for(rule, address, transport)) {
        let (Some(port), Some(chain)) = (port(rule), option(rule, "-j")) else { continue };
        let endpoints = endpoints(&tables, chain);
        let rule_name = format!("{tool}, table nat, chain {chain}");
        found.push(Service { rule: rule_name, name: name(rule), port, endpoints });
    }
    let rejected = tables.get(&("filter", SERVICES)).into_iter().flatten();
    for rule in rejected.filter(|rule| is_for(rule, address, transport) && option(rule, "-j") == Some("REJECT")) {
        let Some(port) = port(rule) else { continue };
        let rule_name = format!("{tool}, table filter, chain {SERVICES}");
        found.push(Service { rule: rule_name, name: name(rule), port, endpoints: Vec::new() });
    }
    Some(found)
}

/// The names of all Services, by address.
pub(super) fn names(text: &str) -> Vec<(IpAddr, String)> {
    let tables = tables(text);
    let rules = ["nat", "filter"].into_iter().filter_map(|table| tables.get(&(table, SERVICES))).flatten();
    let named = |rule: &Words<'_>| Some((option(rule, "-d").and_then(net)?.addr(), name(rule)?));
    rules.filter_map(named).collect()
}

fn is_for(rule: &Words<'_>, address: IpAddr, transport: Transport) -> bool {
    let network = option(rule, "-d").and_then(net);
    network.is_some_and(|network| network.contains(&address) && network.prefix_len() == network.max_prefix_len())
        && option(rule, "-p") == Some(transport.name())
        && !rule.iter().any(|word| word == "!")
}

/// An address or a prefix.
pub(super) fn net(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn port(rule: &Words<'_>) -> Option<u16> {
    option(rule, "--dport")?.parse().ok()
}

/// `default/web:http cluster IP`: the name in kube-proxy's comment.
fn name(rule: &Words<'_>) -> Option<String> {
    let comment = option(rule, "--comment")?;
    comment.split(' ').next().filter(|name| name.contains('/')).map(str::to_owned)
}

/// The endpoints to which a chain leads, by its own chains, in their order.
fn endpoints(tables: &Tables<'_>, chain: &str) -> Vec<SocketAddr> {
    let (mut endpoints, mut seen) = (Vec::new(), BTreeSet::from([MARKS.to_owned()]));
    let mut open = vec![chain.to_owned()];
    while let Some(chain) = open.pop() {
        let rules = tables.get(&("nat", chain.as_str())).into_iter().flatten();
        let is_new = seen.insert(chain.clone());
        for rule in rules.filter(|_| is_new) {
            match option(rule, "-j") {
                Some("DNAT") => {
                    let end = option(rule, "--to-destination").and_then(|end| end.parse::<SocketAddr>().ok());
                    endpoints.extend(end);
                }
                Some(next) => open.insert(0, next.to_owned()),
                None => {}
            }
        }
    }
    let mut known = BTreeSet::new();
    endpoints.retain(|end| known.insert(*end));
    endpoints
}
