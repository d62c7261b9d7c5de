//! Pods that use Services.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Pod, eventually,
    fast::{Conversation, Family},
    load::rr::Protocol,
    no_agent::Talk,
    service_rules::Service,
};

use super::service_lab::ServiceLab;

/// A pod of the other node, one of the own node, and the client itself, each through a Service of
/// its own.
pub(crate) fn each_backend(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let backends: [&Pod; 3] = [&lab.far, &lab.beside, &lab.near];
        let service = |(number, pod): (u16, &Pod)| {
            Ok(Service::new(
                family.service(number),
                protocol,
                [family.end(pod)?],
            ))
        };
        let services: Vec<_> = (1..).zip(backends).map(service).collect::<Result<_>>()?;
        lab.set_services(family, &services)?;
        let by = [[true; 2], [true, false], [true, false]];
        for ((pod, service), by) in backends.into_iter().zip(&services).zip(by) {
            let mut talk = Conversation::open(
                protocol,
                &lab.near,
                pod,
                service.backends[0],
                Some(service.at),
            )?;
            lab.carried(mode, by, |messages| talk.exchange(messages))?;
        }
    }
    Ok(())
}

/// The same pod and port through a Service and directly, from one port of the client.
pub(crate) fn same_ports(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let backend = family.end(&lab.far)?;
    let service = Service::new(family.service(1), Protocol::Tcp, [backend]);
    lab.set_services(family, std::slice::from_ref(&service))?;
    let source = SocketAddr::new(family.of(&lab.near)?, 0);
    let mut through = Talk::open_from(&lab.near, source, &lab.far, backend, Some(service.at))?;
    let source = through.client.local_addr()?;
    let mut direct = Talk::open_from(&lab.near, source, &lab.far, backend, None)?;
    ensure!(direct.client.local_addr()? == source, "another port");
    lab.carried(mode, [true; 2], |messages| {
        through.exchange(messages / 2)?;
        direct.exchange(messages / 2)
    })
}

/// Two Services that lead to one pod, and one that leads to two.
pub(crate) fn shared_backends(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let [far, other] = [family.end(&lab.far)?, family.end(&lab.other)?];
    let service = |number, backends: &[SocketAddr]| {
        Service::new(
            family.service(number),
            Protocol::Tcp,
            backends.iter().copied(),
        )
    };
    let services = [
        service(1, &[far]),
        service(2, &[far]),
        service(3, &[far, other]),
    ];
    lab.set_services(family, &services)?;
    let mut talks = Vec::new();
    for (number, pod) in [(0, &lab.far), (1, &lab.far), (2, &lab.far), (2, &lab.other)] {
        // Of two backends the rules choose either: the one that does not listen refuses.
        let (at, to) = (family.end(pod)?, services[number].at);
        talks.push(eventually(
            "a connection to this backend",
            Duration::from_secs(10),
            || Talk::open(&lab.near, pod, at, Some(to)),
        )?);
    }
    lab.carried(mode, [true; 2], |messages| {
        talks
            .iter_mut()
            .try_for_each(|talk| talk.exchange(messages / 4))
    })
}
