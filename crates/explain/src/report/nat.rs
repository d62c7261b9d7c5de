//! The steps about translation: the Service that a packet is for, and masquerade.

use std::net::SocketAddr;

use flannel_host::words::first;

use super::step::Step;
use crate::{
    nat::{MasqueradeAnswer, Service, ServiceAnswer},
    snapshot::Snapshot,
};

/// Endpoints that are listed; more are counted.
const LISTED: usize = 8;

/// The step about the Service; none if no rule has to do with the destination.
pub(super) fn service(facts: &Snapshot) -> Option<Step> {
    let asked = facts.question.destination;
    let onward = facts.onward;
    let end = SocketAddr::new(onward.address, onward.port.unwrap_or_default());
    let learned = onward.is_learned.then_some(end);
    let text = match (facts.service.as_ref(), learned) {
        (Some(ServiceAnswer::Translated(service)), _) => translated(facts, service, learned),
        (_, Some(end)) => {
            format!("{asked} is translated: the kernel sent packets of the known flow to {end}")
        }
        (Some(ServiceAnswer::Empty(service)), None) => {
            let text = format!(
                "{}: it has no endpoints, so connections are rejected",
                named(facts, service)
            );
            return Some(Step::fail("service", text));
        }
        (Some(ServiceAnswer::Ports(ports)), None) => {
            let other = if facts.question.dport.is_some() {
                ", and not at this port"
            } else {
                ""
            };
            let text = format!(
                "{asked} is the address of a Service at {}{other}: ask with --proto and --dport",
                ports.join(", ")
            );
            return Some(Step::warn("service", text));
        }
        (Some(ServiceAnswer::Unknown(why)), None) => {
            let text = format!(
                "not known if {asked} is the address of a Service: {why}. If so, ask about a pod \
                 behind it"
            );
            return Some(Step::warn("service", text));
        }
        (Some(ServiceAnswer::NoProxy), None) => {
            let text = format!(
                "there are no rules of kube-proxy here, so a Service at {asked} cannot be seen \
                 (IPVS, or another \
                 program). If it is one, ask about a pod behind it"
            );
            return Some(Step::ok("service", text));
        }
        (Some(ServiceAnswer::No) | None, None) => return None,
    };
    Some(Step::ok(
        "service",
        format!("{text}. The steps below follow {end}"),
    ))
}

/// `10.96.0.1:80 is the Service default/web (iptables-save, table nat, chain KUBE-SVC-1)`.
fn named(facts: &Snapshot, service: &Service) -> String {
    let at = SocketAddr::new(facts.question.destination, service.port);
    let name = service
        .name
        .as_ref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    format!("{at} is the Service{name} ({})", service.rule)
}

fn translated(facts: &Snapshot, service: &Service, learned: Option<SocketAddr>) -> String {
    let choice = match (learned, service.endpoints.len()) {
        (Some(end), _) => format!("; the kernel sent packets of the known flow to {end}"),
        (None, 1) => String::new(),
        (None, _) => "; the kernel chooses one for each connection".to_owned(),
    };
    format!(
        "{}, translated to {}{choice}",
        named(facts, service),
        first(&service.endpoints, LISTED)
    )
}

/// The step about masquerade; none if the packet stays in the cluster.
pub(super) fn masquerade(facts: &Snapshot) -> Option<Step> {
    let (source, device) = (
        facts.question.source,
        facts.route_device.as_deref().unwrap_or("its device"),
    );
    let text = match facts.masquerade.as_ref()? {
        MasqueradeAnswer::Yes { rule } if rule.contains("-j SNAT") => {
            format!("its source {source} is translated ({rule})")
        }
        MasqueradeAnswer::Yes { rule } => {
            format!("it leaves with the address of {device} in place of {source} ({rule})")
        }
        MasqueradeAnswer::No if facts.status.is_none() && facts.masquerades => {
            let text = format!(
                "no rule translates the source {source}, although subnet.env says \
                 FLANNEL_IPMASQ=true: answers are \
                 lost unless --ip-masq-exclude names the destination. A running agent restores its \
                 rules"
            );
            return Some(Step::unknown("masquerade", text));
        }
        MasqueradeAnswer::No => {
            format!(
                "no rule translates the source: it leaves with {source}, and answers need a route \
                 back to that"
            )
        }
        MasqueradeAnswer::Unknown(why) => {
            return Some(Step::warn(
                "masquerade",
                format!("not known if the source is translated: {why}"),
            ));
        }
    };
    Some(Step::ok("masquerade", text))
}
