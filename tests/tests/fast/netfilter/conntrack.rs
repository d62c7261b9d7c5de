//! The conntrack state of a connection, and its lifetime: the same as in mode `kernel`.

use std::{
    io::{ErrorKind, Read as _},
    net::SocketAddr,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use flannel_tests::{
    Node, eventually,
    fast::{Family, FastLab},
    kernel::conntrack::{self, Connection},
    load::{datagrams::Datagrams, rr::Protocol},
    no_agent::Talk,
    service_rules::{Backend, Service, ServiceRules},
    throughout,
};
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

fn find(node: &Node, client: SocketAddr, server: SocketAddr) -> Result<Option<Connection>> {
    Ok(conntrack::table(node)?
        .into_iter()
        .find(|connection| connection.is_between(client, server)))
}

fn set(lab: &FastLab, key: &str, value: u32) -> Result<()> {
    let key = format!("net.netfilter.nf_conntrack_{key}={value}");
    lab.agents
        .iter()
        .try_for_each(|agent| agent.node().sh(&format!("sysctl -qw {key}")).map(drop))
}

/// A connection that has been talked on, in mode `fast` until it was replayed, and then closed or
/// reset.
fn ended(lab: &FastLab, mode: &str, family: Family, by_reset: bool) -> Result<[SocketAddr; 2]> {
    let mut talk = Talk::open(&lab.near, &lab.far, family.end(&lab.far)?, None)?;
    lab.until_replayed_on([mode == "fast"; 2], |messages| talk.exchange(messages))?;
    if by_reset {
        setsockopt(
            &talk.client,
            sockopt::Linger,
            &libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        )?;
    }
    talk.ends()
}

/// Closed, a connection is in the state for that; reset, it has the timeout for that at least. In
/// mode `fast` conntrack does not know the numbers a reset comes with, which it takes for a sign
/// that the peer may object, and leaves the state as it was. Either is forgotten when its time is
/// over.
pub(crate) fn ends(lab: &FastLab, mode: &str, family: Family) -> Result<()> {
    for (by_reset, state, timeout) in [
        (false, "TIME_WAIT", "tcp_timeout_time_wait"),
        (true, "CLOSE", "tcp_timeout_close"),
    ] {
        set(lab, timeout, 120)?;
        let [client, server] = ended(lab, mode, family, by_reset)?;
        on_both(
            lab,
            "the end of a connection",
            client,
            server,
            |connection| {
                let is_in_state = connection.and_then(|of| of.state.as_deref()) == Some(state);
                is_in_state
                    || mode == "fast" && by_reset && connection.is_some_and(|of| of.timeout <= 120)
            },
        )?;
        set(lab, timeout, 1)?;
        let [client, server] = ended(lab, mode, family, by_reset)?;
        on_both(
            lab,
            "a forgotten connection",
            client,
            server,
            |connection| connection.is_none(),
        )?;
    }
    Ok(())
}

/// A reset arrives, however far the connection went on since conntrack last knew its numbers: here
/// by more than half of them, past rules that drop what conntrack calls invalid.
pub(crate) fn late_reset(lab: &FastLab, family: Family) -> Result<()> {
    for node in [&lab.nodes.a, &lab.nodes.b] {
        ServiceRules::install(node, Backend::Nftables, family.pods())?;
    }
    let mut talk = Talk::open(&lab.near, &lab.far, family.end(&lab.far)?, None)?;
    lab.until_replayed(|messages| talk.exchange(messages))?;
    let mut talk = talk.skip(&lab.near, &lab.far, (1 << 31) + (1 << 28))?;
    lab.until_replayed(|messages| talk.exchange(messages))
        .context("as if two gigabytes later")?;
    setsockopt(
        &talk.client,
        sockopt::Linger,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    )?;
    // A reset is sent once, and nothing asks for it again.
    talk.server
        .set_read_timeout(Some(Duration::from_secs(10)))?;
    drop(talk.client);
    match talk.server.read(&mut [0; 4]) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        other => bail!("instead of a reset: {other:?}"),
    }
}

/// Waits until conntrack of both nodes says of a connection what it should.
fn on_both(
    lab: &FastLab,
    what: &str,
    client: SocketAddr,
    server: SocketAddr,
    is_right: impl Fn(Option<&Connection>) -> bool,
) -> Result<()> {
    [&lab.nodes.a, &lab.nodes.b]
        .into_iter()
        .try_for_each(|node| {
            eventually(what, Duration::from_secs(10), || {
                let connection = find(node, client, server)?;
                ensure!(is_right(connection.as_ref()), "{connection:?}");
                Ok(())
            })
        })
}

/// Datagrams through a Service, with a timeout of two seconds and the margin: while they flow,
/// conntrack keeps their entry; when they paused, it has none, and who answers late is not
/// translated by what was learned while it had one. On one node: of what crosses the tunnel now and
/// then one shows the path, and keeps the entry as well.
pub(crate) fn pauses(lab: &FastLab, mode: &str, family: Family) -> Result<()> {
    let (pod, by) = (&lab.beside, [mode == "fast", false]);
    let backend = family.end(pod)?;
    let service = Service::new(family.service(1), Protocol::Udp, [backend]);
    let rules = ServiceRules::install(&lab.nodes.a, Backend::Nftables, family.pods())?;
    rules.set(std::slice::from_ref(&service))?;
    let mut talk = Datagrams::open(&lab.near, pod, backend, Some(service.at))?;
    let client = talk.client.local_addr()?;
    lab.until_replayed_on(by, |messages| talk.exchange(messages))?;
    throughout(
        "conntrack's entry of a flow",
        Duration::from_secs(if mode == "fast" { 5 } else { 1 }),
        || {
            talk.exchange(5)?;
            find(&lab.nodes.a, client, service.at)?
                .context("forgotten while it is used")
                .map(drop)
        },
    )?;
    eventually("a forgotten flow", Duration::from_secs(10), || {
        let connection = find(&lab.nodes.a, client, service.at)?;
        ensure!(connection.is_none(), "{connection:?}");
        Ok(())
    })?;
    talk.server.send_to(&u32::MAX.to_be_bytes(), client)?;
    match talk.client.recv(&mut [0; 4]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => bail!("a late answer: {other:?}"),
    }
    lab.until_replayed_on(by, |messages| talk.exchange(messages))
        .context("resumed")
}

/// Makes conntrack forget flows of datagrams after two seconds, and waits until the agents have
/// added their margin.
pub(crate) fn short_timeouts(lab: &FastLab) -> Result<()> {
    const NAMES: [&str; 2] = ["udp_timeout", "udp_timeout_stream"];
    NAMES.iter().try_for_each(|name| set(lab, name, 2))?;
    lab.agents.iter().try_for_each(|agent| {
        eventually("the margin", Duration::from_secs(15), || {
            for name in NAMES {
                let now = agent
                    .node()
                    .sh(&format!("sysctl -n net.netfilter.nf_conntrack_{name}"))?
                    .stdout;
                ensure!(now == "5\n", "{name} is {now}");
            }
            Ok(())
        })
    })
}
