//! A flow as a client of Hubble shows it, in one line.

use std::fmt::{self, Debug};

use flannel_hubble::flow::{DropReason, Endpoint, Flow, Protocol, Service};
use serde_json::Value;

/// A flow.
#[derive(Debug)]
pub(super) struct ShownFlow {
    /// The verdict, by its published name.
    verdict: String,
    /// The reason of a drop, by its published name.
    reason: Option<String>,
    source: String,
    destination: String,
    /// The destination port.
    port: u64,
}

impl fmt::Display for ShownFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verdict,
            reason,
            source,
            destination,
            port,
        } = self;
        let reason = reason
            .as_ref()
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        write!(
            f,
            "{verdict}{reason}: {source} -> {destination}, port {port}"
        )
    }
}

impl ShownFlow {
    /// The flow of a message.
    pub(super) fn of_message(flow: &Flow) -> Self {
        let ip = flow.ip.clone().unwrap_or_default();
        let reason = flow.drop_reason_desc();
        let port = match flow.l4.and_then(|l4| l4.protocol) {
            Some(Protocol::Tcp(tcp)) => tcp.destination_port,
            Some(Protocol::Udp(udp)) => udp.destination_port,
            _ => 0,
        };
        let end = |end: &Option<Endpoint>, service: &Option<Service>, names: &[String], address| {
            let end = end.clone().unwrap_or_default();
            let service = service.clone().unwrap_or_default();
            let service = [service.namespace.as_str(), service.name.as_str()];
            text(
                [&end.namespace, &end.pod_name],
                service,
                end.labels.iter().chain(names),
                address,
            )
        };
        Self {
            verdict: published(flow.verdict()),
            reason: (reason != DropReason::Unknown).then(|| published(reason)),
            source: end(
                &flow.source,
                &flow.source_service,
                &flow.source_names,
                &ip.source,
            ),
            destination: end(
                &flow.destination,
                &flow.destination_service,
                &flow.destination_names,
                &ip.destination,
            ),
            port: port.into(),
        }
    }

    /// The flow of a document of `hubble observe --output=jsonpb`.
    pub(super) fn of_document(document: &Value) -> Self {
        let flow = &document["flow"];
        let port = flow["l4"]
            .as_object()
            .and_then(|l4| l4.values().next())
            .map(|l4| &l4["destination_port"]);
        let end = |side: &str| {
            let (end, service) = (&flow[side], &flow[format!("{side}_service")]);
            let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
            let labels: Vec<String> = [&end["labels"], &flow[format!("{side}_names")]]
                .into_iter()
                .flat_map(list)
                .map(|label| word(&label).to_owned())
                .collect();
            let pod = [&end["namespace"], &end["pod_name"]].map(word);
            text(
                pod,
                [&service["namespace"], &service["name"]].map(word),
                labels.iter(),
                word(&flow["IP"][side]),
            )
        };
        Self {
            verdict: word(&flow["verdict"]).to_owned(),
            reason: flow["drop_reason_desc"].as_str().map(str::to_owned),
            source: end("source"),
            destination: end("destination"),
            port: port.and_then(Value::as_u64).unwrap_or_default(),
        }
    }
}

/// A text of a document; empty if it is absent.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An end: its pod or its Service, or else its labels and names, and its address.
fn text<'a>(
    pod: [&str; 2],
    service: [&str; 2],
    labels: impl Iterator<Item = &'a String>,
    address: &'a str,
) -> String {
    match (pod, service) {
        ([namespace, name], _) if !name.is_empty() => format!("{namespace}/{name}"),
        (_, [namespace, name]) if !name.is_empty() => format!("Service {namespace}/{name}"),
        _ => labels
            .map(String::as_str)
            .chain([address])
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The name of a value in the published messages: `POLICY_DENIED` for `PolicyDenied`.
fn published(value: impl Debug) -> String {
    let name = format!("{value:?}");
    let mut published = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !published.is_empty() {
            published.push('_');
        }
        published.extend(letter.to_uppercase());
    }
    published
}
