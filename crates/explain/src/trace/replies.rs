//! The packets to trace: those of the question, and the replies to them.
//!
//! Replies begin their way with the addresses that their sender knows: behind a Service, those of
//! an endpoint; of a masqueraded flow, that of this node.

use std::net::{IpAddr, SocketAddr};

use flannel_flows::rows::FlowRow;
use flannel_netfilter::{TracedFlow, TracedTuple};

use crate::{nat::ServiceAnswer, question::Question};

/// Kinds of replies that are traced. Each is a rule.
const REPLIES: usize = 8;

/// The flow to trace, as the rules of kube-proxy and the flows of mode `fast` have it.
pub(super) fn flow(
    question: &Question,
    service: Option<&ServiceAnswer>,
    rows: &[FlowRow],
) -> TracedFlow {
    let Question {
        source,
        destination,
        sport,
        dport,
        ..
    } = *question;
    let original = TracedTuple {
        source,
        destination,
        source_port: sport,
        destination_port: dport,
    };
    let endpoints = match service {
        Some(ServiceAnswer::Translated(service)) => service.endpoints.as_slice(),
        _ => &[],
    };
    let from_endpoint = |end: &SocketAddr| TracedTuple {
        destination: end.ip(),
        destination_port: Some(end.port()),
        ..original
    };
    let learned = rows
        .iter()
        .filter(|row| is_original(row, question))
        .map(|row| TracedTuple {
            source: row.out_source.ip(),
            source_port: Some(row.out_source.port()),
            destination: row.out_destination.ip(),
            destination_port: Some(row.out_destination.port()),
        });
    let mut replies = vec![original.reversed()];
    for reply in endpoints
        .iter()
        .map(from_endpoint)
        .chain(learned)
        .map(TracedTuple::reversed)
    {
        let is_known = replies.iter().any(|known| covers(known, &reply));
        if !is_known && replies.len() < REPLIES {
            replies.push(reply);
        }
    }
    TracedFlow {
        protocol: question.protocol(),
        original,
        replies,
    }
}

/// True for a flow of mode `fast` that has the packets of the question.
pub(super) fn is_original(row: &FlowRow, question: &Question) -> bool {
    let Question {
        source,
        destination,
        sport,
        dport,
        transport,
    } = *question;
    row.protocol == transport.name()
        && is_end(row.source, source, sport)
        && is_end(row.destination, destination, dport)
}

/// True for a flow of mode `fast` that has replies of the traced flow.
pub(super) fn is_reply(row: &FlowRow, question: &Question, flow: &TracedFlow) -> bool {
    let fits = |tuple: &TracedTuple| {
        is_end(row.source, tuple.source, tuple.source_port)
            && is_end(row.destination, tuple.destination, tuple.destination_port)
    };
    row.protocol == question.transport.name() && flow.replies.iter().any(fits)
}

fn is_end(end: SocketAddr, address: IpAddr, port: Option<u16>) -> bool {
    end.ip() == address && port.is_none_or(|port| port == end.port())
}

/// True if each packet of a tuple is one of the other.
fn covers(wide: &TracedTuple, narrow: &TracedTuple) -> bool {
    let has_port = |wide: Option<u16>, narrow: Option<u16>| wide.is_none() || wide == narrow;
    (wide.source, wide.destination) == (narrow.source, narrow.destination)
        && has_port(wide.source_port, narrow.source_port)
        && has_port(wide.destination_port, narrow.destination_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Transport, nat::Service};

    fn question(dport: Option<u16>) -> Question {
        let [source, destination] =
            ["10.244.1.2", "10.96.0.1"].map(|text| text.parse().expect("an address"));
        Question {
            source,
            destination,
            transport: Transport::Tcp,
            sport: None,
            dport,
        }
    }

    #[test]
    fn replies_come_from_the_destination_and_from_each_endpoint() {
        let endpoints =
            ["10.244.2.2:8080", "10.244.3.2:8080"].map(|text| text.parse().expect("an endpoint"));
        let service = Service {
            rule: String::new(),
            name: None,
            port: 80,
            endpoints: endpoints.to_vec(),
        };
        let traced = flow(
            &question(Some(80)),
            Some(&ServiceAnswer::Translated(service)),
            &[],
        );
        assert_eq!(
            (traced.protocol, traced.original.destination_port),
            (6, Some(80))
        );
        let from: Vec<_> = traced
            .replies
            .iter()
            .map(|reply| (reply.source.to_string(), reply.source_port))
            .collect();
        let expected = [
            ("10.96.0.1", 80),
            ("10.244.2.2", 8080),
            ("10.244.3.2", 8080),
        ];
        assert_eq!(
            from,
            expected.map(|(address, port)| (address.to_owned(), Some(port)))
        );
        assert!(
            traced
                .replies
                .iter()
                .all(|reply| reply.destination == traced.original.source)
        );
    }

    #[test]
    fn the_kinds_of_replies_are_bounded() {
        let endpoints = (1..100)
            .map(|host| SocketAddr::new([10, 244, 2, host].into(), 8080))
            .collect();
        let service = Service {
            rule: String::new(),
            name: None,
            port: 80,
            endpoints,
        };
        assert_eq!(
            flow(
                &question(None),
                Some(&ServiceAnswer::Translated(service)),
                &[]
            )
            .replies
            .len(),
            REPLIES
        );
    }
}
