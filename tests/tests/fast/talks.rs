//! Conversations of every kind that is replayed.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use flannel_tests::{
    fast::{Conversation, Family, FastLab},
    load::rr::Protocol,
    service_rules::{Backend, Service, ServiceRules},
};

/// Conversations of `near` with `far` that are replayed on both nodes: by either protocol, over
/// either family, and each through a Service too.
pub(crate) fn talks(lab: &FastLab) -> Result<Vec<(Family, Conversation)>> {
    let mut talks = Vec::new();
    for family in Family::ALL {
        let rules = ServiceRules::install(&lab.nodes.a, Backend::Nftables, family.pods())?;
        for (number, protocol) in [(1, Protocol::Tcp), (2, Protocol::Udp)] {
            let end = family.end(&lab.far)?;
            let service = Service::new(family.service(number), protocol, [end]);
            rules.set(std::slice::from_ref(&service))?;
            for (at, through) in [
                (SocketAddr::new(end.ip(), 0), None),
                (end, Some(service.at)),
            ] {
                let mut talk = Conversation::open(protocol, &lab.near, &lab.far, at, through)?;
                lab.until_replayed(|messages| talk.exchange(messages))
                    .with_context(|| format!("{protocol:?} to {at}, through {through:?}"))?;
                talks.push((family, talk));
            }
        }
    }
    Ok(talks)
}
