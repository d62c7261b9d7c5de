//! Third parties that forge the packets which close a connection. Its ends ignore them, because
//! their numbers lie outside of the window, and so must conntrack: an entry that a forger closed is
//! forgotten after ten seconds, and a connection that was silent for as long is lost.
//!
//! The agent ends conntrack's checks of windows for the connections that are replayed, so there the
//! programs refuse a forged close.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use etherparse::TcpHeader;
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Host, eventually,
    fast::{Family, FastLab, PORT},
    kernel::conntrack,
    load::rr::Protocol,
    no_agent::Talk,
    packet::{Packet, wire::inject},
    service_rules::{Backend, Service, ServiceRules},
};

/// Sequence numbers of forged packets, far from each other: of two neighbours at most one is near a
/// window.
const NUMBERS: u32 = 16;
/// The fewest seconds for which an established connection is remembered. A close leaves 120 at
/// most.
const REMEMBERED: u64 = 1000;

/// Programs that see forged packets enter.
const ENTRANCES: [Program; 3] = [Program::FromPod, Program::FromTunnel, Program::FromUnderlay];

/// Conntrack's entry of the client's connection on a host.
fn entry(host: &Host, client: SocketAddr) -> Result<conntrack::Connection> {
    let known = conntrack::table(host)?;
    let is_it = |known: &conntrack::Connection| known.original.source == client;
    known
        .iter()
        .find(|known| is_it(known))
        .cloned()
        .with_context(|| format!("{client} is not in {known:#?}"))
}

fn ensure_remembered(host: &Host, client: SocketAddr) -> Result<()> {
    let found = entry(host, client)?;
    ensure!(
        found.state.as_deref() == Some("ESTABLISHED") && found.timeout > REMEMBERED,
        "{found:?}"
    );
    Ok(())
}

/// Sends FIN and RST in the name of each end, as they enter this host, with numbers from anywhere.
fn forge(from: &Host, known: &conntrack::Connection) -> Result<()> {
    let closes: [fn(&mut TcpHeader); 3] = [
        |tcp| tcp.fin = true,
        |tcp| (tcp.ack, tcp.rst) = (false, true),
        |tcp| tcp.rst = true,
    ];
    for (id, number) in (1..).zip((0..NUMBERS).map(|place| place * (u32::MAX / NUMBERS))) {
        for tuple in [known.original, known.reply] {
            for close in closes {
                let ends = [tuple.source, tuple.destination];
                inject(
                    from,
                    &Packet::tcp(ends, id, &[], |tcp| {
                        tcp.sequence_number = number;
                        close(tcp);
                    }),
                )?;
            }
        }
    }
    Ok(())
}

fn refused(lab: &FastLab, node: usize) -> Result<u64> {
    ENTRANCES
        .iter()
        .map(|from| {
            Ok(lab.maps[node]
                .stats
                .get(*from, Reason::ForgedClose)?
                .packets)
        })
        .sum()
}

/// The numbers of both ends are random, so some forged packets may lie within a window: the chance
/// is that of the kernel, and one of a thousand at most here.
fn outlives_forgers(
    lab: &FastLab,
    talk: &mut Talk,
    client: SocketAddr,
    nodes: &[usize],
    forgers: &[(usize, &Host)],
) -> Result<()> {
    let hosts: [&Host; 2] = [&lab.nodes.a, &lab.nodes.b];
    for (node, forger) in forgers {
        let before = refused(lab, *node)?;
        forge(forger, &entry(hosts[*node], client)?)?;
        // A busy machine handles them later.
        eventually("refused packets", Duration::from_secs(10), || {
            let more = refused(lab, *node)? - before;
            ensure!(
                more > u64::from(NUMBERS),
                "{more} were refused on node {node}"
            );
            Ok(())
        })?;
        for node in nodes {
            ensure_remembered(hosts[*node], client)
                .with_context(|| format!("node {node}, by {}", forger.name()))?;
        }
        talk.exchange(10)?;
    }
    Ok(())
}

/// A genuine close ends the connection on both nodes, where the forged ones did not.
fn ends(lab: &FastLab, talk: Talk, client: SocketAddr, nodes: &[usize]) -> Result<()> {
    drop(talk);
    let hosts: [&Host; 2] = [&lab.nodes.a, &lab.nodes.b];
    eventually("a closed connection", Duration::from_secs(10), || {
        for node in nodes {
            let found = entry(hosts[*node], client)
                .ok()
                .filter(|found| found.state.as_deref() == Some("ESTABLISHED"));
            ensure!(found.is_none(), "node {node}: {found:?}");
        }
        Ok(())
    })
}

fn client_of(talk: &Talk) -> Result<SocketAddr> {
    let [client, _] = talk.ends()?;
    Ok(client)
}

#[test]
fn pods_do_not_close_connections_of_others() -> Result<()> {
    let lab = FastLab::new("forge-pods", &[])?;
    for family in Family::ALL {
        let at = family.end(&lab.far)?;
        let service = Service::new(family.service(1), Protocol::Tcp, [at]);
        ServiceRules::install(&lab.nodes.a, Backend::Nftables, family.pods())?.set(&[service])?;
        for to in [None, Some(family.service(1))] {
            let mut talk = Talk::open(&lab.near, &lab.far, at, to)?;
            lab.until_replayed(|messages| talk.exchange(messages))?;
            let client = client_of(&talk)?;
            outlives_forgers(
                &lab,
                &mut talk,
                client,
                &[0, 1],
                &[(0, &lab.beside), (1, &lab.other), (0, &lab.near)],
            )
            .with_context(|| format!("{family:?} to {to:?}"))?;
            lab.until_replayed(|messages| talk.exchange(messages))?;
            ends(&lab, talk, client, &[0, 1])?;
        }
    }
    Ok(())
}

#[test]
fn hosts_outside_do_not_close_masqueraded_connections() -> Result<()> {
    let lab = FastLab::new("forge-outside", &[])?;
    let host: &Host = &lab.nodes.b;
    for family in Family::ALL {
        let at = SocketAddr::new(family.host(12), PORT);
        let mut talk = Talk::open(&lab.near, host, at, None)?;
        lab.until_replayed_on([true, false], |messages| talk.exchange(messages))?;
        let client = client_of(&talk)?;
        outlives_forgers(
            &lab,
            &mut talk,
            client,
            &[0],
            &[(0, host), (0, &lab.beside)],
        )
        .with_context(|| format!("{family:?}"))?;
        ends(&lab, talk, client, &[0])?;
    }
    Ok(())
}
