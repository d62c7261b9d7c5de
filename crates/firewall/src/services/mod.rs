//! The Services that kube-proxy translates, as its rules have them.
//!
//! kube-proxy writes them in one of two modes: in its own table of nftables, or in chains of
//! iptables of either variant. A node may have a hundred thousand of these rules, so only the rules
//! that name the address are kept, and only the chains they lead to are read. nf_tables is read by
//! netlink. The kernel gives legacy tables only as a whole: their tool runs once for each level of
//! chains, and lines are dropped as they arrive.

#[cfg(test)]
mod fuzz;
mod read;
pub(crate) mod rule;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
};

use flannel_firewall_tools::legacy;
use flannel_host::family::Family;
use flannel_netfilter::NftablesTable;

use self::{
    read::{Chains, MapEntry, map_entries},
    rule::{ServiceRule, Target},
};

/// The maps from addresses and ports to chains: of Services with endpoints, and of those without.
const WITH: &str = "service-ips";
const WITHOUT: &str = "no-endpoint-services";
/// The chain of iptables that leads to all Services.
const SERVICES: &str = "KUBE-SERVICES";
/// The chain that only marks, and leads to no endpoint.
const MARKS: &str = "KUBE-MARK-MASQ";
/// Levels of chains. The kernel allows sixteen (`NFT_JUMP_STACK_SIZE` in
/// [include/net/netfilter/nf_tables.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/netfilter/nf_tables.h)).
const DEPTH: usize = 16;

/// A Service at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The rule that translates.
    pub rule: String,
    /// The name, such as `default/web:http`, where the rules have it.
    pub name: Option<String>,
    /// The port.
    pub port: u16,
    /// The addresses behind it.
    pub endpoints: Vec<SocketAddr>,
}

/// The tables of iptables in one variant.
#[derive(Clone, Debug)]
struct Iptables {
    /// The tool that lists them all.
    tool: String,
    nat: Chains,
    filter: Chains,
}

/// Returns the Services of an address and protocol by the first rules of kube-proxy that exist;
/// `None` if there are none. The errors are those of rules that could not be read.
pub async fn services(address: IpAddr, protocol: u8) -> (Option<Vec<Service>>, Vec<String>) {
    let (family, mut errors) = (Family::of(address), Vec::new());
    match of_kube_proxy(address, protocol).await {
        Ok(Some(found)) => return (Some(found), errors),
        Ok(None) => {}
        Err(error) => errors.push(error),
    }
    for tables in variants(family) {
        match of_iptables(&tables, address, protocol).await {
            Ok(Some(found)) => return (Some(found), errors),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    (None, errors)
}

/// Returns the names of all Services of a family with their addresses.
///
/// # Errors
/// Rules exist and cannot be read.
pub async fn service_names(family: Family) -> Result<Vec<(IpAddr, String)>, String> {
    let mut names = Vec::new();
    for tables in variants(family) {
        for chains in [&tables.nat, &tables.filter] {
            let has_name = |rule: &ServiceRule| rule.address.is_some() && rule.name().is_some();
            let rules = chains
                .rules(BTreeSet::from([SERVICES.to_owned()]), has_name)
                .await?;
            names.extend(
                rules
                    .into_iter()
                    .flatten()
                    .filter_map(|(_, rule)| Some((rule.address?, rule.name()?))),
            );
        }
    }
    for map in [WITH, WITHOUT] {
        let named = |entry: MapEntry| Some((entry.address, name(&entry)?));
        names.extend(
            map_entries(kube_proxy(family), map, named)
                .await?
                .into_iter()
                .flatten(),
        );
    }
    Ok(names)
}

/// Returns the name of a Service without its port: `default/web` of `default/web:http` and of
/// `default/web/tcp/http`.
pub fn without_port(name: &str) -> Option<String> {
    let mut parts = name.split(['/', ':']);
    Some(format!("{}/{}", parts.next()?, parts.next()?))
}

/// The table of kube-proxy's mode `nftables`.
fn kube_proxy(family: Family) -> NftablesTable {
    NftablesTable::new(family, "kube-proxy")
}

/// The tables of both variants of iptables. Legacy ones that do not exist have no rules.
fn variants(family: Family) -> Vec<Iptables> {
    let (base, nft) = (legacy::base(family), |table| {
        Chains::Nft(NftablesTable::new(family, table))
    });
    let mut variants = vec![Iptables {
        tool: format!("{base}-nft-save"),
        nat: nft("nat"),
        filter: nft("filter"),
    }];
    if legacy::tables(family).iter().any(|table| table == "nat")
        && let Some(tool) = legacy::saver(base)
    {
        let name = tool
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let of = |table| Chains::Legacy(tool.clone(), table);
        variants.push(Iptables {
            tool: name,
            nat: of("nat"),
            filter: of("filter"),
        });
    }
    variants
}

async fn of_kube_proxy(address: IpAddr, protocol: u8) -> Result<Option<Vec<Service>>, String> {
    let table = kube_proxy(Family::of(address));
    let is_asked = move |entry: MapEntry| {
        (entry.address == address && entry.protocol == protocol).then_some(entry)
    };
    let Some(with) = map_entries(table.clone(), WITH, is_asked).await? else {
        return Ok(None);
    };
    let Some(without) = map_entries(table.clone(), WITHOUT, is_asked).await? else {
        return Ok(None);
    };
    let rules = follow(
        &Chains::Nft(table),
        with.iter().map(|entry| entry.chain.clone()).collect(),
    )
    .await?;
    let service = |map: &str, entry: &MapEntry, endpoints| Service {
        rule: format!(
            "nftables, table kube-proxy, map {map} to chain {}",
            entry.chain
        ),
        name: name(entry),
        port: entry.port,
        endpoints,
    };
    let with = with
        .iter()
        .map(|entry| service(WITH, entry, endpoints(&rules, &entry.chain)));
    Ok(Some(
        with.chain(
            without
                .iter()
                .map(|entry| service(WITHOUT, entry, Vec::new())),
        )
        .collect(),
    ))
}

/// `default/web/tcp/http`, from kube-proxy's comment or the chain's name.
fn name(entry: &MapEntry) -> Option<String> {
    let in_chain = || {
        entry
            .chain
            .splitn(3, '-')
            .nth(2)
            .filter(|name| name.contains('/'))
            .map(str::to_owned)
    };
    entry.comment.clone().or_else(in_chain)
}

async fn of_iptables(
    tables: &Iptables,
    address: IpAddr,
    protocol: u8,
) -> Result<Option<Vec<Service>>, String> {
    let is_asked = move |rule: &ServiceRule| rule.is_for(address, protocol) && rule.port.is_some();
    let first = || BTreeSet::from([SERVICES.to_owned()]);
    let Some(leading) = tables.nat.rules(first(), is_asked).await? else {
        return Ok(None);
    };
    let rejecting = tables
        .filter
        .rules(first(), move |rule| is_asked(rule) && rule.rejects)
        .await?;
    let rules = follow(
        &tables.nat,
        leading.iter().flat_map(|(_, rule)| chains(rule)).collect(),
    )
    .await?;
    let mut found = Vec::new();
    for (_, rule) in &leading {
        let (Some(port), Some(chain)) = (rule.port, chains(rule).next()) else {
            continue;
        };
        let named = format!("{}, table nat, chain {chain}", tables.tool);
        found.push(Service {
            rule: named,
            name: rule.name(),
            port,
            endpoints: endpoints(&rules, &chain),
        });
    }
    for (_, rule) in rejecting.into_iter().flatten() {
        let named = format!("{}, table filter, chain {SERVICES}", tables.tool);
        found.extend(rule.port.map(|port| Service {
            rule: named,
            name: rule.name(),
            port,
            endpoints: Vec::new(),
        }));
    }
    Ok(Some(found))
}

fn chains(rule: &ServiceRule) -> impl Iterator<Item = String> {
    rule.targets.iter().filter_map(|target| match target {
        Target::Chain(chain) => Some(chain.clone()),
        Target::Map(_) => None,
    })
}

/// Reads chains, those they lead to, and so on.
async fn follow(
    source: &Chains,
    first: BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<ServiceRule>>, String> {
    let mut known: BTreeMap<String, Vec<ServiceRule>> =
        BTreeMap::from([(MARKS.to_owned(), Vec::new())]);
    let mut waiting = first;
    for _ in 0..DEPTH {
        waiting.retain(|chain| !known.contains_key(chain));
        if waiting.is_empty() {
            break;
        }
        let found = source.rules(waiting.clone(), |_| true).await?;
        known.extend(
            std::mem::take(&mut waiting)
                .into_iter()
                .map(|chain| (chain, Vec::new())),
        );
        for (chain, rule) in found.into_iter().flatten() {
            waiting.extend(chains(&rule));
            known.entry(chain).or_default().push(rule);
        }
    }
    Ok(known)
}

/// The endpoints to which a chain leads, in the order of the rules.
fn endpoints(rules: &BTreeMap<String, Vec<ServiceRule>>, chain: &str) -> Vec<SocketAddr> {
    let (mut endpoints, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = VecDeque::from([chain.to_owned()]);
    while let Some(chain) = open.pop_front() {
        if !seen.insert(chain.clone()) {
            continue;
        }
        for rule in rules.get(&chain).into_iter().flatten() {
            endpoints.extend(&rule.ends);
            open.extend(chains(rule));
        }
    }
    let mut known = BTreeSet::new();
    endpoints.retain(|end| known.insert(*end));
    endpoints
}
