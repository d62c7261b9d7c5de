//! A Service's backend goes while flows lead to it, and the node forgets their connections, as
//! kube-proxy makes it.

use std::{
    io::{self, ErrorKind, Read as _},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use flannel_tests::{
    eventually,
    fast::Family,
    kernel::conntrack,
    load::{
        datagrams::{self, Datagrams},
        rr::Protocol,
    },
    no_agent::Talk,
    service_rules::Service,
};

use super::service_lab::ServiceLab;

/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(5);

/// Datagrams continue at the new backend. A connection ends there: the new backend does not know
/// it.
pub(crate) fn moved(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let (old, new) = (family.end(&lab.far)?, family.end(&lab.other)?);
    let services = |backend| {
        [(1, Protocol::Tcp), (2, Protocol::Udp)]
            .map(|(number, protocol)| Service::new(family.service(number), protocol, [backend]))
    };
    let [tcp, udp] = services(old);
    lab.set_services(family, &[tcp.clone(), udp.clone()])?;
    let mut talk = Talk::open(&lab.near, &lab.far, old, Some(tcp.at))?;
    let mut datagrams = Datagrams::open(&lab.near, &lab.far, old, Some(udp.at))?;
    lab.carried(mode, [true; 2], |messages| {
        talk.exchange(messages)?;
        datagrams.exchange(messages)
    })
    .context("before")?;

    lab.set_services(family, &services(new))?;
    // A client's port may have been another's before, towards something else.
    let meant = [
        (talk.client.local_addr()?, tcp.at),
        (datagrams.client.local_addr()?, udp.at),
    ];
    let forgotten = conntrack::forget(&lab.nodes.a, |connection| {
        meant.contains(&(connection.original.source, connection.original.destination))
    })?;
    ensure!(forgotten == 2, "{forgotten} connections were known");
    datagrams.server = datagrams::server(&lab.other, new)?;
    // Until the flow is refreshed, a packet of it takes the new way only if it is the one that
    // probes the path.
    eventually("datagrams at the new backend", INTERVAL, || {
        datagrams.exchange(20)
    })?;
    eventually("the end of the connection", INTERVAL, || reset(&mut talk))?;
    lab.carried(mode, [true; 2], |messages| datagrams.exchange(messages))
        .context("after")
}

/// Succeeds if the client of a connection received a reset.
fn reset(talk: &mut Talk) -> Result<()> {
    let Err(lost) = talk.exchange(20) else {
        bail!("messages still come through")
    };
    let is_reset = |error: &io::Error| error.kind() == ErrorKind::ConnectionReset;
    let was_reset = lost.downcast_ref().is_some_and(is_reset)
        || talk.client.read(&mut [0; 4]).is_err_and(|e| is_reset(&e));
    if was_reset { Ok(()) } else { Err(lost) }
}
