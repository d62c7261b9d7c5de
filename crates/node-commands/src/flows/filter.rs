//! The flows to show, by names, ports and ways.

use clap::{Args, ValueEnum};
use flannel_flows::{
    events::{FlowEvent, FlowEventKind},
    rows::{FlowRow, FlowWay},
};

use super::rows::EndRow;
use crate::maps::FlowFilter;

/// The flows of this node to show. All filters that are given must fit.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(super) struct ListFilter {
    #[command(flatten)]
    named: NamedFilter,
    /// Flows with a pod or a Service in this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Flows with this outcome; needs --follow
    #[arg(long, value_enum, value_name = "VERDICT", requires = "follow")]
    verdict: Option<VerdictChoice>,
}

/// The filters that the command on a whole cluster has too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct NamedFilter {
    #[command(flatten)]
    ends: FlowFilter,
    /// Flows of this pod: NAMESPACE/NAME, or NAME in the namespace default; the beginning of the
    /// name will do
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
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
pub enum VerdictChoice {
    /// Passed on
    Forwarded,
    /// Dropped
    Dropped,
}

impl VerdictChoice {
    /// The flag that makes the same choice.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Forwarded => "--verdict=forwarded",
            Self::Dropped => "--verdict=dropped",
        }
    }
}

impl ListFilter {
    /// Returns true if a known flow between these ends matches.
    pub(super) fn takes_row(&self, row: &FlowRow, ends: &[&EndRow]) -> bool {
        let named = &self.named;
        named.ends.takes(row)
            && named.way.is_none_or(|wanted| wanted.way() == row.way)
            && named.takes_names(ends)
            && self.takes_namespace(ends)
    }

    /// Returns true if an event between these ends matches.
    pub(super) fn takes_event(&self, event: &FlowEvent, ends: &[&EndRow]) -> bool {
        let (named, after) = (
            &self.named,
            event
                .translated
                .map_or(event.addresses, |(addresses, _)| addresses),
        );
        let is_dropped = event.kind == FlowEventKind::Dropped;
        named
            .ends
            .takes_ends(&event.protocol_name(), event.addresses, after)
            && named
                .way
                .is_none_or(|wanted| event.way == Some(wanted.way()))
            && self
                .verdict
                .is_none_or(|wanted| (wanted == VerdictChoice::Dropped) == is_dropped)
            && named.takes_names(ends)
            && self.takes_namespace(ends)
    }

    /// Returns true if it needs names.
    pub(super) const fn has_names(&self) -> bool {
        self.namespace.is_some() || self.named.has_names()
    }

    fn takes_namespace(&self, ends: &[&EndRow]) -> bool {
        let Some(wanted) = &self.namespace else {
            return true;
        };
        let is_in = |name: &String| {
            name.split_once('/')
                .is_some_and(|(namespace, _)| namespace == wanted)
        };
        ends.iter()
            .any(|end| [&end.pod, &end.service].into_iter().flatten().any(is_in))
    }
}

impl NamedFilter {
    /// The flags that make the same filter.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        let text = |flag: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("--{flag}={value}"))
        };
        let texts = [
            text("pod", &self.pod),
            text("node", &self.node),
            text("service", &self.service),
        ];
        let way = self.way.map(|way| format!("--way={}", way.way().name()));
        let port = self.port.map(|port| format!("--port={port}"));
        self.ends
            .flags()
            .chain(texts.into_iter().flatten())
            .chain(port)
            .chain(way)
    }

    /// Returns true if it needs names.
    pub const fn has_names(&self) -> bool {
        self.pod.is_some() || self.node.is_some() || self.service.is_some()
    }

    fn takes_names(&self, ends: &[&EndRow]) -> bool {
        let any = |matches: &dyn Fn(&EndRow) -> bool| ends.iter().any(|end| matches(end));
        self.pod.as_ref().is_none_or(|pod| {
            let pod = with_namespace(pod);
            any(&|end| end.pod.as_ref().is_some_and(|name| name.starts_with(&pod)))
        }) && self
            .node
            .as_ref()
            .is_none_or(|node| any(&|end| end.node.as_ref() == Some(node)))
            && self.service.as_ref().is_none_or(|service| {
                let service = with_namespace(service);
                any(&|end| end.service.as_ref() == Some(&service))
            })
            && self
                .port
                .is_none_or(|port| any(&|end| end.port == Some(port)))
    }
}

fn with_namespace(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("default/{name}")
    }
}

#[cfg(test)]
mod tests {
    use flannel_names::AddressKind;

    use super::*;

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
        let (web, db) = (
            end(Some("shop/web-1"), None, 40_000),
            end(None, Some("default/db"), 5432),
        );
        let takes = |set: fn(&mut ListFilter)| {
            let mut filter = ListFilter::default();
            set(&mut filter);
            filter.named.takes_names(&[&web, &db]) && filter.takes_namespace(&[&web, &db])
        };
        assert!(takes(|_| {}));
        assert!(
            takes(|filter| filter.named.pod = Some("shop/web".to_owned())),
            "the beginning of its name"
        );
        assert!(
            !takes(|filter| filter.named.pod = Some("web".to_owned())),
            "in another namespace"
        );
        assert!(takes(|filter| filter.namespace = Some("shop".to_owned())));
        assert!(
            takes(|filter| filter.namespace = Some("default".to_owned())),
            "of the Service"
        );
        assert!(!takes(|filter| filter.namespace = Some("sho".to_owned())));
        assert!(takes(|filter| filter.named.service = Some("db".to_owned())));
        assert!(!takes(
            |filter| filter.named.service = Some("shop/db".to_owned())
        ));
        assert!(takes(|filter| filter.named.node = Some("node-a".to_owned())));
        assert!(!takes(|filter| filter.named.node = Some("node".to_owned())));
        assert!(
            takes(|filter| filter.named.port = Some(5432))
                && !takes(|filter| filter.named.port = Some(80))
        );
        let both = |filter: &mut ListFilter| {
            (filter.named.port, filter.named.node) = (Some(5432), Some("b".to_owned()));
        };
        assert!(!takes(both), "all must fit");
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        filter: NamedFilter,
    }

    #[test]
    fn the_flags_of_a_filter_make_the_same_filter() {
        let words = "x --src=10.244.1.0/24 --dst=fd00::1/128 --proto=udp --pod=shop/web --node=n1 \
            --service=db \
                     --port=53 --way=outside";
        let filter = |words: &str| {
            <Line as clap::Parser>::try_parse_from(words.split_whitespace()).map(|line| line.filter)
        };
        let wanted = filter(words).expect("a filter");
        let flags: Vec<String> = wanted.flags().collect();
        assert_eq!(
            filter(&format!("x {}", flags.join(" "))).expect("the same"),
            wanted
        );
        assert_eq!(flags.len(), 8, "every flag");
    }
}
