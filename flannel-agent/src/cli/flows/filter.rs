//! The flows to show, by names, ports and ways.

use clap::{Args, ValueEnum};

use super::rows::EndRow;
use crate::{
    cli::maps::FlowFilter,
    flow_events::{FlowEvent, FlowEventKind},
    observe::flows::{FlowRow, FlowWay},
};

/// The flows to show. All that are given must fit.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(super) struct NamedFilter {
    #[command(flatten)]
    ends: FlowFilter,
    /// Flows of this pod: NAMESPACE/NAME, or NAME in the namespace default; the beginning of the
    /// name will do
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// Flows with a pod or a Service in this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Flows with an end on this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Flows with this Service: NAMESPACE/NAME, or NAME in the namespace default
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Flows with this port at either end
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Flows that leave by this way
    #[arg(long, value_enum, value_name = "WAY")]
    way: Option<WayChoice>,
    /// Flows with this outcome; needs --follow
    #[arg(long, value_enum, value_name = "VERDICT", requires = "follow")]
    verdict: Option<VerdictChoice>,
}

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WayChoice {
    /// Into the tunnel to a peer
    Tunnel,
    /// To a pod of this node
    Pod,
    /// By a route to a peer, without a tunnel
    Direct,
    /// Out of the pod network
    Outside,
}

impl WayChoice {
    const fn way(self) -> FlowWay {
        match self {
            Self::Tunnel => FlowWay::Tunnel,
            Self::Pod => FlowWay::Pod,
            Self::Direct => FlowWay::Direct,
            Self::Outside => FlowWay::Outside,
        }
    }
}

/// An outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VerdictChoice {
    /// Passed on
    Forwarded,
    /// Dropped
    Dropped,
}

impl NamedFilter {
    /// Returns true if a known flow between these ends matches.
    pub(super) fn takes_row(&self, row: &FlowRow, ends: &[&EndRow]) -> bool {
        self.ends.takes(row) && self.way.is_none_or(|wanted| wanted.way() == row.way) && self.takes_names(ends)
    }

    /// Returns true if an event between these ends matches.
    pub(super) fn takes_event(&self, event: &FlowEvent, ends: &[&EndRow]) -> bool {
        let after = event.translated.map_or(event.addresses, |(addresses, _)| addresses);
        let is_dropped = event.kind == FlowEventKind::Dropped;
        self.ends.takes_ends(&event.protocol_name(), event.addresses, after)
            && self.way.is_none_or(|wanted| event.way == Some(wanted.way()))
            && self.verdict.is_none_or(|wanted| (wanted == VerdictChoice::Dropped) == is_dropped)
            && self.takes_names(ends)
    }

    /// Returns true if it needs names.
    pub(super) const fn has_names(&self) -> bool {
        self.pod.is_some() || self.namespace.is_some() || self.node.is_some() || self.service.is_some()
    }

    fn takes_names(&self, ends: &[&EndRow]) -> bool {
        let any = |matches: &dyn Fn(&EndRow) -> bool| ends.iter().any(|end| matches(end));
        let in_namespace = |name: Option<&String>, wanted: &str| {
            name.and_then(|name| name.split_once('/')).is_some_and(|(namespace, _)| namespace == wanted)
        };
        let is_of = |wanted: &String, end: &EndRow| {
            in_namespace(end.pod.as_ref(), wanted) || in_namespace(end.service.as_ref(), wanted)
        };
        self.pod.as_ref().is_none_or(|pod| {
            let pod = with_namespace(pod);
            any(&|end| end.pod.as_ref().is_some_and(|name| name.starts_with(&pod)))
        }) && self.namespace.as_ref().is_none_or(|namespace| any(&|end| is_of(namespace, end)))
            && self.node.as_ref().is_none_or(|node| any(&|end| end.node.as_ref() == Some(node)))
            && self.service.as_ref().is_none_or(|service| {
                let service = with_namespace(service);
                any(&|end| end.service.as_ref() == Some(&service))
            })
            && self.port.is_none_or(|port| any(&|end| end.port == Some(port)))
    }
}

fn with_namespace(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("default/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::AddressKind;

    fn end(pod: Option<&str>, service: Option<&str>, port: u16) -> EndRow {
        EndRow {
            address: "10.244.1.5".parse().expect("an address"),
            port: Some(port),
            kind: AddressKind::Pod,
            pod: pod.map(str::to_owned),
            node: Some("node-a".to_owned()),
            service: service.map(str::to_owned),
            host: None,
        }
    }

    #[test]
    fn names_of_either_end_count() {
        let (web, db) = (end(Some("shop/web-1"), None, 40_000), end(None, Some("default/db"), 5432));
        let takes = |set: fn(&mut NamedFilter)| {
            let mut filter = NamedFilter::default();
            set(&mut filter);
            filter.takes_names(&[&web, &db])
        };
        assert!(takes(|_| {}));
        assert!(takes(|filter| filter.pod = Some("shop/web".to_owned())), "the beginning of its name");
        assert!(!takes(|filter| filter.pod = Some("web".to_owned())), "in another namespace");
        assert!(takes(|filter| filter.namespace = Some("shop".to_owned())));
        assert!(takes(|filter| filter.namespace = Some("default".to_owned())), "of the Service");
        assert!(!takes(|filter| filter.namespace = Some("sho".to_owned())));
        assert!(takes(|filter| filter.service = Some("db".to_owned())));
        assert!(!takes(|filter| filter.service = Some("shop/db".to_owned())));
        assert!(takes(|filter| filter.node = Some("node-a".to_owned())));
        assert!(!takes(|filter| filter.node = Some("node".to_owned())));
        assert!(takes(|filter| filter.port = Some(5432)) && !takes(|filter| filter.port = Some(80)));
        assert!(!takes(|filter| (filter.port, filter.node) = (Some(5432), Some("b".to_owned()))), "all must fit");
    }
}
