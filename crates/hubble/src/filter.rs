//! Filters of flows, checked and parsed once for each request.
//!
//! The rules are those of [pkg/hubble/filters, Cilium
//! 1.19.4](https://github.com/cilium/cilium/tree/v1.19.4/pkg/hubble/filters).

use std::net::IpAddr;

use ipnet::IpNet;
use tonic::Status;

use crate::{
    flow::{
        CiliumEventType, EventTypeFilter, Flow, FlowFilter, NetworkInterface, Protocol, TcpFlags,
        Verdict,
    },
    observer::GetFlowsRequest,
};

/// A condition on a flow.
type Condition = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// The filters of a request.
pub(crate) struct Filters {
    allowed: Vec<Filter>,
    excluded: Vec<Filter>,
}

/// One filter: all conditions must hold.
struct Filter(Vec<Condition>);

impl Filters {
    /// Checks the filters of a request. A filter that is not supported is refused, because without
    /// it the client would get flows that it does not want.
    pub(crate) fn new(request: &GetFlowsRequest) -> Result<Self, Status> {
        let all = |filters: &[FlowFilter]| {
            filters
                .iter()
                .map(Filter::new)
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            allowed: all(&request.whitelist)?,
            excluded: all(&request.blacklist)?,
        })
    }

    /// Returns true if the client wants every flow.
    pub(crate) fn are_empty(&self) -> bool {
        self.allowed.is_empty() && self.excluded.is_empty()
    }

    /// Returns true if the client wants the flow.
    pub(crate) fn match_flow(&self, flow: &Flow) -> bool {
        (self.allowed.is_empty() || self.allowed.iter().any(|filter| filter.matches(flow)))
            && !self.excluded.iter().any(|filter| filter.matches(flow))
    }
}

impl Filter {
    fn new(filter: &FlowFilter) -> Result<Self, Status> {
        refuse_unsupported(filter)?;
        let mut conditions = Conditions::default();
        conditions.add_ends(filter)?;
        conditions.add_packet(filter)?;
        conditions.add_observation(filter);
        Ok(Self(conditions.0))
    }

    fn matches(&self, flow: &Flow) -> bool {
        self.0.iter().all(|condition| condition(flow))
    }
}

/// Refuses fields that this server does not know.
fn refuse_unsupported(filter: &FlowFilter) -> Result<(), Status> {
    let unsupported = [
        ("uuid", filter.uuid.is_empty()),
        ("http_status_code", filter.http_status_code.is_empty()),
        ("http_method", filter.http_method.is_empty()),
        ("http_path", filter.http_path.is_empty()),
        ("http_url", filter.http_url.is_empty()),
        ("http_header", filter.http_header.is_empty()),
        ("dns_query", filter.dns_query.is_empty()),
        ("source_workload", filter.source_workload.is_empty()),
        (
            "destination_workload",
            filter.destination_workload.is_empty(),
        ),
        ("source_cluster_name", filter.source_cluster_name.is_empty()),
        (
            "destination_cluster_name",
            filter.destination_cluster_name.is_empty(),
        ),
        ("node_labels", filter.node_labels.is_empty()),
        ("trace_id", filter.trace_id.is_empty()),
        ("ip_trace_id", filter.ip_trace_id.is_empty()),
        ("encrypted", filter.encrypted.is_empty()),
        ("experimental", filter.experimental.is_none()),
    ];
    match unsupported.iter().find(|(_, is_unset)| !is_unset) {
        Some((name, _)) => Err(invalid(&format!(
            "the filter {name} is not supported: flannel does not know it"
        ))),
        None => Ok(()),
    }
}

fn invalid(text: &str) -> Status {
    Status::invalid_argument(text)
}

#[derive(Default)]
struct Conditions(Vec<Condition>);

impl Conditions {
    /// Adds a condition unless the list of wanted values is empty.
    fn add<T: Send + Sync + 'static>(
        &mut self,
        wanted: Vec<T>,
        matches: impl Fn(&T, &Flow) -> bool + Send + Sync + 'static,
    ) {
        if !wanted.is_empty() {
            self.0.push(Box::new(move |flow| {
                wanted.iter().any(|wanted| matches(wanted, flow))
            }));
        }
    }

    fn add_ends(&mut self, filter: &FlowFilter) -> Result<(), Status> {
        self.add(prefixes(&filter.source_ip)?, |net, flow| {
            lies_in(net, source(flow))
        });
        self.add(prefixes(&filter.destination_ip)?, |net, flow| {
            lies_in(net, destination(flow))
        });
        self.add(prefixes(&filter.source_ip_xlated)?, |net, flow| {
            lies_in(net, flow.ip.as_ref().map(|ip| ip.source_xlated.as_str()))
        });
        self.add(names(&filter.source_pod)?, |name, flow| {
            name.matches(pod(flow.source.as_ref()))
        });
        self.add(names(&filter.destination_pod)?, |name, flow| {
            name.matches(pod(flow.destination.as_ref()))
        });
        self.add(names(&filter.source_service)?, |name, flow| {
            name.matches(service(flow.source_service.as_ref()))
        });
        self.add(names(&filter.destination_service)?, |name, flow| {
            name.matches(service(flow.destination_service.as_ref()))
        });
        self.add(patterns(&filter.source_fqdn)?, |pattern, flow| {
            pattern.matches_any(&flow.source_names)
        });
        self.add(patterns(&filter.destination_fqdn)?, |pattern, flow| {
            pattern.matches_any(&flow.destination_names)
        });
        self.add(selectors(&filter.source_label)?, |selector, flow| {
            selector.matches(labels(flow.source.as_ref()))
        });
        self.add(selectors(&filter.destination_label)?, |selector, flow| {
            selector.matches(labels(flow.destination.as_ref()))
        });
        self.add(filter.source_identity.clone(), |wanted, flow| {
            flow.source
                .as_ref()
                .is_some_and(|end| end.identity == *wanted)
        });
        self.add(filter.destination_identity.clone(), |wanted, flow| {
            flow.destination
                .as_ref()
                .is_some_and(|end| end.identity == *wanted)
        });
        Ok(())
    }

    fn add_packet(&mut self, filter: &FlowFilter) -> Result<(), Status> {
        self.add(ports(&filter.source_port)?, |port, flow| {
            ports_of(flow).is_some_and(|[from, _]| from == *port)
        });
        self.add(ports(&filter.destination_port)?, |port, flow| {
            ports_of(flow).is_some_and(|[_, to]| to == *port)
        });
        self.add(protocols(&filter.protocol)?, |wanted, flow| {
            wanted.matches(protocol(flow))
        });
        self.add(filter.tcp_flags.clone(), |wanted, flow| {
            flags(flow).is_some_and(|flags| flags.to_byte() & wanted.to_byte() == wanted.to_byte())
        });
        self.add(filter.ip_version.clone(), |wanted, flow| {
            flow.ip.as_ref().is_some_and(|ip| ip.ip_version == *wanted)
        });
        Ok(())
    }

    fn add_observation(&mut self, filter: &FlowFilter) {
        self.add(filter.verdict.clone(), |wanted, flow| {
            flow.verdict == *wanted
        });
        self.add(filter.drop_reason_desc.clone(), |wanted, flow| {
            flow.drop_reason_desc == *wanted
        });
        self.add(filter.traffic_direction.clone(), |wanted, flow| {
            flow.traffic_direction == *wanted
        });
        // A drop of an unknown direction counts as no reply, as in Cilium.
        self.add(filter.reply.clone(), |wanted, flow| match flow.is_reply {
            Some(is_reply) => is_reply == *wanted,
            None => flow.verdict() == Verdict::Dropped && !wanted,
        });
        self.add(filter.event_type.clone(), |wanted, flow| {
            flow.event_type
                .is_some_and(|found| event_matches(wanted, found))
        });
        self.add(filter.interface.clone(), |wanted, flow| {
            flow.interface
                .as_ref()
                .is_some_and(|found| interface_matches(wanted, found))
        });
        self.add(
            filter
                .node_name
                .iter()
                .map(|name| Pattern::of_node(name))
                .collect(),
            |pattern, flow| pattern.matches(&flow.node_name),
        );
    }
}

fn event_matches(wanted: &EventTypeFilter, found: CiliumEventType) -> bool {
    (wanted.r#type == 0 || wanted.r#type == found.r#type)
        && (!wanted.match_sub_type || wanted.sub_type == found.sub_type)
}

fn interface_matches(wanted: &NetworkInterface, found: &NetworkInterface) -> bool {
    (wanted.index == 0 || wanted.index == found.index)
        && (wanted.name.is_empty() || wanted.name == found.name)
}

fn source(flow: &Flow) -> Option<&str> {
    flow.ip.as_ref().map(|ip| ip.source.as_str())
}

fn destination(flow: &Flow) -> Option<&str> {
    flow.ip.as_ref().map(|ip| ip.destination.as_str())
}

fn lies_in(net: &IpNet, address: Option<&str>) -> bool {
    address
        .and_then(|address| address.parse::<IpAddr>().ok())
        .is_some_and(|address| net.contains(&address))
}

fn pod(end: Option<&crate::flow::Endpoint>) -> [&str; 2] {
    end.map_or([""; 2], |end| [&end.namespace, &end.pod_name])
}

fn service(service: Option<&crate::flow::Service>) -> [&str; 2] {
    service.map_or([""; 2], |service| [&service.namespace, &service.name])
}

fn labels(end: Option<&crate::flow::Endpoint>) -> &[String] {
    end.map_or(&[], |end| &end.labels)
}

fn protocol(flow: &Flow) -> Option<Protocol> {
    flow.l4.as_ref().and_then(|l4| l4.protocol)
}

fn ports_of(flow: &Flow) -> Option<[u32; 2]> {
    match protocol(flow)? {
        Protocol::Tcp(tcp) => Some([tcp.source_port, tcp.destination_port]),
        Protocol::Udp(ports) | Protocol::Sctp(ports) => {
            Some([ports.source_port, ports.destination_port])
        }
        Protocol::Icmpv4(_) | Protocol::Icmpv6(_) => None,
    }
}

fn flags(flow: &Flow) -> Option<TcpFlags> {
    match protocol(flow)? {
        Protocol::Tcp(tcp) => tcp.flags,
        _ => None,
    }
}

fn prefixes(texts: &[String]) -> Result<Vec<IpNet>, Status> {
    let parse = |text: &String| {
        let net = text
            .parse::<IpNet>()
            .ok()
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        net.ok_or_else(|| invalid(&format!("{text:?} is neither an IP address nor a prefix")))
    };
    texts.iter().map(parse).collect()
}

fn ports(texts: &[String]) -> Result<Vec<u32>, Status> {
    let parse = |text: &String| {
        text.parse::<u16>()
            .map(u32::from)
            .map_err(|_bad| invalid(&format!("{text:?} is not a port")))
    };
    texts.iter().map(parse).collect()
}

/// A wanted protocol.
#[derive(Clone, Copy)]
enum Wanted {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv4,
    Icmpv6,
}

impl Wanted {
    fn matches(self, found: Option<Protocol>) -> bool {
        match found {
            Some(Protocol::Tcp(_)) => matches!(self, Self::Tcp),
            Some(Protocol::Udp(_)) => matches!(self, Self::Udp),
            Some(Protocol::Sctp(_)) => matches!(self, Self::Sctp),
            Some(Protocol::Icmpv4(_)) => matches!(self, Self::Icmp | Self::Icmpv4),
            Some(Protocol::Icmpv6(_)) => matches!(self, Self::Icmp | Self::Icmpv6),
            None => false,
        }
    }
}

fn protocols(texts: &[String]) -> Result<Vec<Wanted>, Status> {
    let parse = |text: &String| match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(Wanted::Tcp),
        "udp" => Ok(Wanted::Udp),
        "sctp" => Ok(Wanted::Sctp),
        "icmp" => Ok(Wanted::Icmp),
        "icmpv4" => Ok(Wanted::Icmpv4),
        "icmpv6" => Ok(Wanted::Icmpv6),
        _ => Err(invalid(&format!(
            "the protocol {text:?} is not supported: flannel knows tcp, udp, sctp and icmp"
        ))),
    };
    texts.iter().map(parse).collect()
}

/// A namespace, or any, and the beginning of a name.
struct NamePrefix {
    namespace: String,
    prefix: String,
}

impl NamePrefix {
    fn matches(&self, [namespace, name]: [&str; 2]) -> bool {
        !(namespace.is_empty() && name.is_empty())
            && (self.namespace.is_empty() || self.namespace == namespace)
            && name.starts_with(&self.prefix)
    }
}

/// A name without a namespace is one of the namespace `default`.
fn names(texts: &[String]) -> Result<Vec<NamePrefix>, Status> {
    let parse = |text: &String| {
        let (namespace, prefix) = text.split_once('/').unwrap_or(("default", text));
        if text.is_empty() {
            return Err(invalid("an empty name matches nothing"));
        }
        Ok(NamePrefix {
            namespace: namespace.to_owned(),
            prefix: prefix.to_owned(),
        })
    };
    texts.iter().map(parse).collect()
}

/// A name in which `*` stands for any characters.
struct Pattern(String);

impl Pattern {
    /// The pattern of a node; that of its cluster in front is left out, because there is one.
    fn of_node(text: &str) -> Self {
        let name = text.split_once('/').map_or(text, |(_, name)| name);
        Self(if name.is_empty() { "*" } else { name }.to_owned())
    }

    fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let parts: Vec<_> = parts.collect();
        let Some((last, middle)) = parts.split_last() else {
            return rest.is_empty();
        };
        for part in middle {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    fn matches_any(&self, texts: &[String]) -> bool {
        texts.iter().any(|text| self.matches(text))
    }
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>, Status> {
    let parse = |text: &String| match text.as_str() {
        "" => Err(invalid("an empty pattern matches nothing")),
        text => Ok(Pattern(text.to_owned())),
    };
    texts.iter().map(parse).collect()
}

/// Labels that must all be there: `key` or `key=value`, with the label's source in front or not.
struct Selector(Vec<String>);

impl Selector {
    fn matches(&self, labels: &[String]) -> bool {
        self.0
            .iter()
            .all(|wanted| labels.iter().any(|label| label_matches(wanted, label)))
    }
}

fn label_matches(wanted: &str, label: &str) -> bool {
    let bare = label.split_once(':').map_or(label, |(_, bare)| bare);
    [label, bare].iter().any(|label| {
        *label == wanted || label.split_once('=').is_some_and(|(key, _)| key == wanted)
    })
}

fn selectors(texts: &[String]) -> Result<Vec<Selector>, Status> {
    let parse = |text: &String| {
        if text.is_empty() || text.contains(['(', ')', '!', ' ']) {
            return Err(invalid(&format!(
                "the label selector {text:?} is not supported: write key or key=value"
            )));
        }
        Ok(Selector(
            text.split(',')
                .map(|part| part.replace("==", "="))
                .collect(),
        ))
    };
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        DropReason, Endpoint, Icmp, Ip, IpVersion, Layer4, Service, Tcp, TrafficDirection, Unread,
    };

    fn flow() -> Flow {
        let end = |namespace: &str, pod_name: &str, label: &str| Endpoint {
            identity: 2,
            namespace: namespace.to_owned(),
            pod_name: pod_name.to_owned(),
            labels: vec![label.to_owned()],
        };
        let tcp = Tcp {
            source_port: 40_000,
            destination_port: 80,
            flags: Some(TcpFlags::from_byte(0x12)),
        };
        Flow {
            verdict: Verdict::Dropped.into(),
            ip: Some(Ip {
                source: "10.244.1.5".to_owned(),
                destination: "10.96.0.1".to_owned(),
                ip_version: IpVersion::V4.into(),
                source_xlated: "192.168.1.11".to_owned(),
            }),
            l4: Some(Layer4 {
                protocol: Some(Protocol::Tcp(tcp)),
            }),
            source: Some(end("shop", "web-1", "k8s:io.kubernetes.pod.namespace=shop")),
            destination: Some(end("", "", "reserved:world")),
            destination_service: Some(Service {
                name: "db".to_owned(),
                namespace: "shop".to_owned(),
            }),
            source_names: vec!["build.example.org".to_owned()],
            node_name: "node-a".to_owned(),
            event_type: Some(CiliumEventType {
                r#type: 1,
                sub_type: 132,
            }),
            interface: Some(NetworkInterface {
                index: 3,
                name: "eth0".to_owned(),
            }),
            traffic_direction: TrafficDirection::Egress.into(),
            drop_reason_desc: DropReason::InvalidSourceIp.into(),
            ..Flow::default()
        }
    }

    fn matches(set: impl FnOnce(&mut FlowFilter)) -> Result<bool, String> {
        let mut filter = FlowFilter::default();
        set(&mut filter);
        Filter::new(&filter)
            .map(|filter| filter.matches(&flow()))
            .map_err(|status| status.message().to_owned())
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    type SetTexts = fn(&mut FlowFilter, &[&str]);

    /// Each filter of texts, with texts that fit the flow and others.
    const CASES: [(&str, SetTexts, &[&str], &[&str]); 16] = [
        (
            "source_ip",
            |f, v| f.source_ip = texts(v),
            &["10.244.1.0/24"],
            &["10.96.0.1"],
        ),
        (
            "destination_ip",
            |f, v| f.destination_ip = texts(v),
            &["9.9.9.9", "10.96.0.1"],
            &["10.244.1.5"],
        ),
        (
            "source_ip_xlated",
            |f, v| f.source_ip_xlated = texts(v),
            &["192.168.1.11"],
            &["10.244.1.5"],
        ),
        (
            "source_pod",
            |f, v| f.source_pod = texts(v),
            &["shop/web"],
            &["web-1"],
        ),
        (
            "source_pod, namespace",
            |f, v| f.source_pod = texts(v),
            &["shop/"],
            &["other/"],
        ),
        (
            "source_pod, name",
            |f, v| f.source_pod = texts(v),
            &["/web-1"],
            &["/db"],
        ),
        (
            "destination_pod",
            |f, v| f.source_pod = texts(v),
            &["/"],
            &["db"],
        ),
        (
            "destination_service",
            |f, v| f.destination_service = texts(v),
            &["shop/d"],
            &["shop/web"],
        ),
        (
            "source_fqdn",
            |f, v| f.source_fqdn = texts(v),
            &["*.example.org"],
            &["example.org"],
        ),
        (
            "source_label",
            |f, v| f.source_label = texts(v),
            &["io.kubernetes.pod.namespace=shop"],
            &["app=x"],
        ),
        (
            "destination_label",
            |f, v| f.destination_label = texts(v),
            &["reserved:world"],
            &["reserved:host"],
        ),
        (
            "source_port",
            |f, v| f.source_port = texts(v),
            &["40000"],
            &["80"],
        ),
        (
            "destination_port",
            |f, v| f.destination_port = texts(v),
            &["80"],
            &["40000"],
        ),
        (
            "protocol",
            |f, v| f.protocol = texts(v),
            &["TCP"],
            &["icmp", "udp"],
        ),
        (
            "node_name",
            |f, v| f.node_name = texts(v),
            &["default/node-*"],
            &["node-b"],
        ),
        (
            "node_name, any",
            |f, v| f.node_name = texts(v),
            &["cluster/"],
            &["a*"],
        ),
    ];

    fn assert_filters_of_numbers_and_flags() {
        let drop = |t, s| EventTypeFilter {
            r#type: t,
            match_sub_type: true,
            sub_type: s,
        };
        assert_eq!(
            matches(|f| f.event_type = vec![drop(4, 132), drop(1, 132)]),
            Ok(true)
        );
        assert_eq!(matches(|f| f.event_type = vec![drop(1, 133)]), Ok(false));
        assert_eq!(
            matches(|f| f.verdict = vec![Verdict::Forwarded.into()]),
            Ok(false)
        );
        assert_eq!(
            matches(|f| f.reply = vec![false]),
            Ok(true),
            "a drop counts as no reply"
        );
        assert_eq!(matches(|f| f.reply = vec![true]), Ok(false));
        let none = TcpFlags::default();
        let [syn, fin] = [
            TcpFlags { syn: true, ..none },
            TcpFlags { fin: true, ..none },
        ];
        assert_eq!(matches(|f| f.tcp_flags = vec![syn]), Ok(true));
        assert_eq!(matches(|f| f.tcp_flags = vec![fin]), Ok(false));
        assert_eq!(
            matches(|f| f.ip_version = vec![IpVersion::V6.into()]),
            Ok(false)
        );
        assert_eq!(matches(|f| f.destination_identity = vec![2]), Ok(true));
        assert_eq!(
            matches(|f| f.traffic_direction = vec![TrafficDirection::Ingress.into()]),
            Ok(false)
        );
        assert_eq!(
            matches(|f| f.drop_reason_desc = vec![DropReason::UnknownSender.into()]),
            Ok(false)
        );
        let device = |name: &str| NetworkInterface {
            index: 0,
            name: name.to_owned(),
        };
        assert_eq!(matches(|f| f.interface = vec![device("eth0")]), Ok(true));
        assert_eq!(matches(|f| f.interface = vec![device("eth1")]), Ok(false));
    }

    #[test]
    fn each_supported_filter_takes_what_fits_and_leaves_out_the_rest() {
        for (name, set, fits, others) in CASES {
            assert_eq!(
                matches(|filter| set(filter, fits)),
                Ok(true),
                "{name}: {fits:?}"
            );
            assert_eq!(
                matches(|filter| set(filter, others)),
                Ok(false),
                "{name}: {others:?}"
            );
        }
        assert_filters_of_numbers_and_flags();
    }

    #[test]
    fn all_fields_of_a_filter_must_fit() {
        let both = |port: &str| {
            matches(|f| (f.source_pod, f.destination_port) = (texts(&["shop/"]), texts(&[port])))
        };
        assert_eq!((both("80"), both("81")), (Ok(true), Ok(false)));
    }

    #[test]
    fn one_of_the_allowed_filters_and_none_of_the_excluded_ones_fits() {
        let filter = |pod: &str| FlowFilter {
            source_pod: texts(&[pod]),
            ..FlowFilter::default()
        };
        let wants = |whitelist: &[&str], blacklist: &[&str]| {
            let filters = |pods: &[&str]| pods.iter().map(|pod| filter(pod)).collect();
            let request = GetFlowsRequest {
                whitelist: filters(whitelist),
                blacklist: filters(blacklist),
                ..GetFlowsRequest::default()
            };
            Filters::new(&request)
                .expect("supported filters")
                .match_flow(&flow())
        };
        assert!(wants(&[], &[]) && wants(&["other/", "shop/"], &["other/"]));
        assert!(!wants(&["other/"], &[]) && !wants(&["shop/"], &["shop/web-1"]));
    }

    #[test]
    fn a_filter_that_is_not_supported_is_refused() {
        let refused = |result: Result<bool, String>, text: &str| {
            let error = result.expect_err(text);
            assert!(error.contains(text), "{error}");
        };
        refused(matches(|f| f.dns_query = texts(&["x"])), "dns_query");
        refused(
            matches(|f| f.source_workload = vec![Unread {}]),
            "source_workload",
        );
        refused(
            matches(|f| f.experimental = Some(Unread {})),
            "experimental",
        );
        refused(matches(|f| f.encrypted = vec![true]), "encrypted");
        refused(matches(|f| f.protocol = texts(&["http"])), "http");
        refused(matches(|f| f.source_port = texts(&["http"])), "not a port");
        refused(
            matches(|f| f.source_ip = texts(&["web"])),
            "neither an IP address nor a prefix",
        );
        refused(
            matches(|f| f.source_label = texts(&["a in (b)"])),
            "label selector",
        );
        refused(matches(|f| f.source_pod = texts(&[""])), "empty name");
    }

    #[test]
    fn icmp_is_of_either_version() {
        let icmp = Some(Protocol::Icmpv6(Icmp::default()));
        assert!(
            Wanted::Icmp.matches(icmp)
                && Wanted::Icmpv6.matches(icmp)
                && !Wanted::Icmpv4.matches(icmp)
        );
    }

    #[test]
    fn patterns_have_any_number_of_stars() {
        let fits = |pattern: &str, text: &str| Pattern(pattern.to_owned()).matches(text);
        assert!(fits("a*b*c", "a1b2c") && fits("*", "") && fits("node-a", "node-a"));
        assert!(!fits("a*b*c", "a1c2b") && !fits("node-a", "node-ab") && !fits("a*", "ba"));
    }
}
