//! Address translation on this node, as rules of others say it: the Services of kube-proxy, and
//! masquerade.
//!
//! Rules are read and followed, not evaluated as the kernel does it: a condition that is not
//! understood makes the answer unknown, and it is named. Only chains that the answer needs are
//! read.

mod chains;
mod masquerade;

use std::{collections::BTreeMap, net::IpAddr};

pub(super) use flannel_firewall::services::Service;
use flannel_firewall::services::{self, without_port};
use flannel_firewall_tools::tool::{self, ToolError};
use flannel_host::family::Family;

use self::chains::Lister;
pub(super) use self::masquerade::MasqueradeAnswer;
use super::question::{Question, Transport};

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
    /// The node has no rules of kube-proxy: it uses IPVS, another program translates Services, or
    /// the cluster has none.
    NoProxy,
    /// Rules cannot be read.
    Unknown(String),
}

/// Returns the Service that the packet is for.
pub(super) async fn service(question: &Question) -> ServiceAnswer {
    let (found, errors) = services::services(question.destination, question.protocol()).await;
    answer(found, &errors, question)
}

fn answer(found: Option<Vec<Service>>, errors: &[String], question: &Question) -> ServiceAnswer {
    match found {
        Some(found) => choose(&found, question.dport, question.transport),
        None if errors.is_empty() => ServiceAnswer::NoProxy,
        None => ServiceAnswer::Unknown(errors.join("; ")),
    }
}

/// Returns the names of all Services of a family, without their ports, by address; `None` if rules
/// cannot be read.
pub(super) async fn service_names(family: Family) -> Option<BTreeMap<IpAddr, String>> {
    let names = services::service_names(family).await.ok()?;
    Some(
        names
            .into_iter()
            .filter_map(|(address, name)| Some((address, without_port(&name)?)))
            .collect(),
    )
}

/// Returns what happens to the source of a packet that leaves by `device`.
pub(super) async fn masquerade(
    source: IpAddr,
    destination: IpAddr,
    device: Option<&str>,
) -> MasqueradeAnswer {
    let (family, mut answers, mut errors) = (Family::of(source), Vec::new(), Vec::new());
    let (nft, listers) = (tool::find("nft"), Lister::find(family));
    if nft.is_none() && listers.is_empty() {
        errors.push("neither nft nor iptables is installed".to_owned());
    }
    if let Some(nft) = nft {
        let protocol = match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        let table = flannel_traffic::nft_table(family);
        match tool::run(&nft, &["-s", "list", "table", protocol, table], "").await {
            Ok(text) => answers.push(masquerade::by_nftables(&text, family, source, destination)),
            Err(ToolError::Refused { message, .. })
                if message.contains("No such file or directory") => {}
            Err(error) => errors.push(error.to_string()),
        }
    }
    for lister in listers {
        let ask = |chains: &mut _| {
            masquerade::by_iptables(&lister.name, chains, source, destination, device)
        };
        match lister.answer(ask).await {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push(error),
        }
    }
    decide(&answers, &errors)
}

/// One rule that translates decides; one that is not understood leaves the answer open.
fn decide(answers: &[MasqueradeAnswer], errors: &[String]) -> MasqueradeAnswer {
    let of = |wanted: fn(&MasqueradeAnswer) -> bool| {
        answers.iter().find(|answer| wanted(answer)).cloned()
    };
    of(|answer| matches!(answer, MasqueradeAnswer::Yes { .. }))
        .or_else(|| of(|answer| matches!(answer, MasqueradeAnswer::Unknown(_))))
        .unwrap_or_else(|| match errors {
            [] => MasqueradeAnswer::No,
            errors => MasqueradeAnswer::Unknown(errors.join("; ")),
        })
}

fn choose(found: &[Service], port: Option<u16>, transport: Transport) -> ServiceAnswer {
    let ports = || {
        let mut ports: Vec<_> = found.iter().map(|service| service.port).collect();
        ports.sort_unstable();
        ports
            .iter()
            .map(|port| format!("{} {port}", transport.name()))
            .collect()
    };
    if found.is_empty() {
        return ServiceAnswer::No;
    }
    let mut fitting = found
        .iter()
        .filter(|service| port.is_none_or(|port| port == service.port));
    match (fitting.next(), fitting.next()) {
        (Some(service), None) if service.endpoints.is_empty() => {
            ServiceAnswer::Empty(service.clone())
        }
        (Some(service), None) => ServiceAnswer::Translated(service.clone()),
        _ => ServiceAnswer::Ports(ports()),
    }
}

#[cfg(test)]
mod tests;
