//! Address translation on this node, as far as rules of others say it: the Services of kube-proxy,
//! and masquerade.
//!
//! [`read`] runs the tools; the rest is pure. Rules are read and followed, not evaluated as the
//! kernel does it: a condition that is not understood makes the answer unknown, and it is named.

mod iptables;
mod masquerade;
mod nftables;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use flannel_firewall::tools::tool::{self, ToolError};
use flannel_host::family::Family;

pub(super) use self::masquerade::MasqueradeAnswer;
use super::question::{Question, Transport};

/// The listings of one family, or why there are none.
#[derive(Clone, Debug, Default)]
pub(super) struct NatRules {
    family: Option<Family>,
    /// The dumps of `iptables-save`, each with the name of the tool.
    saved: Vec<(String, String)>,
    /// kube-proxy's table of nftables, as JSON.
    proxy_table: Option<String>,
    /// flannel's table of nftables, as text.
    flannel_table: Option<String>,
    /// Tools that are there and cannot be read.
    errors: Vec<String>,
}

/// The translation of a destination by the rules of kube-proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceAnswer {
    /// No rule names the address.
    No,
    /// A Service with endpoints.
    Translated(Service),
    /// A Service without endpoints: connections are rejected.
    Empty(Service),
    /// The address has Services at these ports, and no port was asked about, or another.
    Ports(Vec<String>),
    /// There are no rules of kube-proxy: it uses IPVS, another program translates Services, or
    /// there are none.
    NoProxy,
    /// Rules cannot be read.
    Unknown(String),
}

/// A Service at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// The rule that translates.
    pub(super) rule: String,
    /// Its name, such as `default/web:http`, where the rules have it.
    pub(super) name: Option<String>,
    /// Its port.
    pub(super) port: u16,
    /// The addresses behind it.
    pub(super) endpoints: Vec<SocketAddr>,
}

/// The Services of one address and protocol, from one listing.
type Found = Vec<Service>;

impl NatRules {
    /// The listing of a table; `None` if there is no such table.
    async fn listed(&mut self, nft: &Path, args: &[&str]) -> Option<String> {
        match tool::run(nft, args, "").await {
            Ok(text) => Some(text),
            Err(ToolError::Refused { message, .. }) if message.contains("No such file or directory") => None,
            Err(error) => {
                self.errors.push(error.to_string());
                None
            }
        }
    }

    /// Adds the dump of a tool, if that is installed.
    async fn save(&mut self, name: String) {
        let Some(path) = tool::find(&name) else { return };
        match tool::run(&path, &[], "").await {
            Ok(text) => self.saved.push((name, text)),
            Err(error) => self.errors.push(error.to_string()),
        }
    }

    /// Returns true if some rules could not be read.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns the Service that the packet is for.
    pub(super) fn service(&self, question: &Question) -> ServiceAnswer {
        let (destination, transport) = (question.destination, question.transport);
        let from_nft = self.proxy_table.as_deref().and_then(|text| nftables::services(text, destination, transport));
        let saved =
            || self.saved.iter().find_map(|(tool, text)| iptables::services(tool, text, destination, transport));
        match from_nft.or_else(saved) {
            Some(found) => choose(&found, question.dport, transport),
            None if self.errors.is_empty() => ServiceAnswer::NoProxy,
            None => ServiceAnswer::Unknown(self.errors.join("; ")),
        }
    }

    /// Returns the names of all Services, without their ports, by address.
    pub(super) fn service_names(&self) -> BTreeMap<IpAddr, String> {
        let saved = self.saved.iter().flat_map(|(_, text)| iptables::names(text));
        let listed = self.proxy_table.iter().flat_map(|text| nftables::names(text));
        saved.chain(listed).filter_map(|(address, name)| Some((address, without_port(&name)?))).collect()
    }

    /// Returns what happens to the source of a packet that leaves by `device`.
    pub(super) fn masquerade(&self, source: IpAddr, destination: IpAddr, device: Option<&str>) -> MasqueradeAnswer {
        let Some(family) = self.family else { return MasqueradeAnswer::Unknown(self.errors.join("; ")) };
        let table =
            self.flannel_table.as_deref().map(|text| masquerade::by_nftables(text, family, source, destination));
        let saved =
            self.saved.iter().map(|(tool, text)| masquerade::by_iptables(tool, text, source, destination, device));
        let answers: Vec<_> = table.into_iter().chain(saved).collect();
        let of = |wanted: fn(&MasqueradeAnswer) -> bool| answers.iter().find(|answer| wanted(answer)).cloned();
        of(|answer| matches!(answer, MasqueradeAnswer::Yes { .. }))
            .or_else(|| of(|answer| matches!(answer, MasqueradeAnswer::Unknown(_))))
            .unwrap_or_else(|| {
                if self.errors.is_empty() {
                    MasqueradeAnswer::No
                } else {
                    MasqueradeAnswer::Unknown(self.errors.join("; "))
                }
            })
    }
}

/// `default/web` of `default/web:http` and of `default/web/tcp/http`.
fn without_port(name: &str) -> Option<String> {
    let mut parts = name.split(['/', ':']);
    Some(format!("{}/{}", parts.next()?, parts.next()?))
}

fn choose(found: &[Service], port: Option<u16>, transport: Transport) -> ServiceAnswer {
    let ports = || {
        let mut ports: Vec<_> = found.iter().map(|service| service.port).collect();
        ports.sort_unstable();
        ports.iter().map(|port| format!("{} {port}", transport.name())).collect()
    };
    if found.is_empty() {
        return ServiceAnswer::No;
    }
    let mut fitting = found.iter().filter(|service| port.is_none_or(|port| port == service.port));
    match (fitting.next(), fitting.next()) {
        (Some(service), None) if service.endpoints.is_empty() => ServiceAnswer::Empty(service.clone()),
        (Some(service), None) => ServiceAnswer::Translated(service.clone()),
        _ => ServiceAnswer::Ports(ports()),
    }
}

/// Reads the rules of a family.
pub(super) async fn read(family: Family) -> NatRules {
    let mut rules = NatRules { family: Some(family), ..NatRules::default() };
    let (nft_family, save) = match family {
        Family::V4 => ("ip", "iptables"),
        Family::V6 => ("ip6", "ip6tables"),
    };
    let nft = tool::find("nft");
    if let Some(nft) = &nft {
        rules.proxy_table = rules.listed(nft, &["-j", "list", "table", nft_family, "kube-proxy"]).await;
        let table = crate::traffic::nft_table(family);
        rules.flannel_table = rules.listed(nft, &["-s", "list", "table", nft_family, table]).await;
    }
    for variant in ["nft", "legacy"] {
        rules.save(format!("{save}-{variant}-save")).await;
    }
    if rules.saved.is_empty() {
        rules.save(format!("{save}-save")).await;
    }
    if nft.is_none() && rules.saved.is_empty() && rules.errors.is_empty() {
        rules.errors.push(format!("neither nft nor {save}-save is installed"));
    }
    rules
}

#[cfg(test)]
mod tests;
