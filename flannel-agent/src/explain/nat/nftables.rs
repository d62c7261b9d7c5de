//! Services in kube-proxy's table of nftables, as `nft -j` lists it: from the map `service-ips` by
//! chains of the Service to chains of the endpoints. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde_json::Value;

use super::{Found, Service};
use crate::explain::question::Transport;

/// The maps from addresses and ports to chains: of Services with endpoints, and of those without.
const WITH: &str = "service-ips";
const WITHOUT: &str = "no-endpoint-services";

/// The Services of an address; `None` if the listing is not understood.
pub(super) fn services(text: &str, address: IpAddr, transport: Transport) -> Option<Found> {
    let listing: Value = serde_json::from_str(text).ok()?;
    let objects = listing["nftables"].as_array()?;
    let mut chains: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for rule in objects.iter().map(|object| &object["rule"]).filter(|rule| rule.is_object()) {
        chains.entry(rule["chain"].as_str()?).or_default().push(&rule["expr"]);
    }
    let mut found = Found::new();
    for name in [WITH, WITHOUT] {
        let map = objects.iter().map(|object| &object["map"]).find(|map| map["name"] == name)?;
        for element in map["elem"].as_array().into_iter().flatten() {
            let Some((port, chain)) = leads(element, address, transport) else { continue };
            let endpoints = if name == WITH { endpoints(&chains, chain) } else { Vec::new() };
            let rule = format!("nftables, table kube-proxy, map {name} to chain {chain}");
            found.push(Service { rule, name: service_name(element, chain), port, endpoints });
        }
    }
    Some(found)
}

/// The names of all Services, by address.
pub(super) fn names(text: &str) -> Vec<(IpAddr, String)> {
    let Ok(listing) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    let objects = listing["nftables"].as_array().into_iter().flatten();
    let maps =
        objects.map(|object| &object["map"]).filter(|map| [WITH, WITHOUT].iter().any(|name| map["name"] == *name));
    maps.flat_map(|map| map["elem"].as_array().into_iter().flatten()).filter_map(named).collect()
}

fn named(element: &Value) -> Option<(IpAddr, String)> {
    let [key, verdict] = element.as_array()?.as_slice() else { return None };
    let address = plain(key)["concat"].get(0)?.as_str()?.parse().ok()?;
    Some((address, service_name(element, targets(verdict).into_iter().next().unwrap_or_default())?))
}

/// The port and the chain of an element for this address.
fn leads(element: &Value, address: IpAddr, transport: Transport) -> Option<(u16, &str)> {
    let [key, verdict] = element.as_array()?.as_slice() else { return None };
    let [to, protocol, port] = plain(key)["concat"].as_array()?.as_slice() else { return None };
    let is_ours = to.as_str()?.parse() == Ok(address) && protocol == transport.name();
    let chain = targets(verdict).into_iter().next()?;
    is_ours.then_some((u16::try_from(port.as_u64()?).ok()?, chain))
}

/// The key of an element, without its comment and counters.
fn plain(key: &Value) -> &Value {
    key.get("elem").map_or(key, |element| &element["val"])
}

/// `default/web/tcp/http`, from kube-proxy's comment or the chain's name.
fn service_name(element: &Value, chain: &str) -> Option<String> {
    let comment = element.get(0).and_then(|key| key["elem"]["comment"].as_str());
    let in_chain = || chain.splitn(3, '-').nth(2).filter(|name| name.contains('/'));
    comment.or_else(in_chain).map(str::to_owned)
}

/// The chains that a value leads to, anywhere in it.
fn targets(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().flat_map(targets).collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, member)| match (name.as_str(), member["target"].as_str()) {
                ("goto" | "jump", Some(target)) => vec![target],
                _ => targets(member),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The destinations that a value translates to, anywhere in it.
fn translations(value: &Value) -> Vec<SocketAddr> {
    match value {
        Value::Array(values) => values.iter().flat_map(translations).collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(
                |(name, member)| if name == "dnat" { end(member).into_iter().collect() } else { translations(member) },
            )
            .collect(),
        _ => Vec::new(),
    }
}

fn end(translation: &Value) -> Option<SocketAddr> {
    let address: IpAddr = translation["addr"].as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, u16::try_from(translation["port"].as_u64()?).ok()?))
}

fn endpoints(chains: &BTreeMap<&str, Vec<&Value>>, chain: &str) -> Vec<SocketAddr> {
    let (mut endpoints, mut seen, mut open) = (Vec::new(), BTreeSet::new(), vec![chain]);
    while let Some(chain) = open.pop() {
        if !seen.insert(chain) {
            continue;
        }
        for rule in chains.get(chain).into_iter().flatten() {
            endpoints.extend(translations(rule));
            open.extend(targets(rule).into_iter().rev());
        }
    }
    let mut known = BTreeSet::new();
    endpoints.retain(|end| known.insert(*end));
    endpoints
}
