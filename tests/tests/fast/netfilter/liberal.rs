//! Long transfers past rules that drop what conntrack calls invalid: with the switches mode `fast`
//! sets, and without leave to set them.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    fast::{Family, FastLab},
    harness::wait::patient,
    kernel::conntrack,
    load::rr::Protocol,
    no_agent::Talk,
    service_rules::{Backend, Service, ServiceRules},
};

/// Bytes that are sent, and received, at once.
const CHUNK: usize = 4 << 20;
/// Bytes that may still arrive when the sender stops: a chunk, and the buffers of both ends.
const MOST_IN_FLIGHT: usize = 64 << 20;
/// The number of times that all flows are discarded and learned again during a transfer.
const REFRESHES: usize = 10;

/// Transfers data through a Service to `far` while all flows are discarded repeatedly; then closes
/// the connection in order.
fn transfer(lab: &FastLab, family: Family, replays: bool) -> Result<()> {
    let backend = family.end(&lab.far)?;
    let service = Service::new(family.service(1), Protocol::Tcp, [backend]);
    for node in [&lab.nodes.a, &lab.nodes.b] {
        ServiceRules::install(node, Backend::Iptables, family.pods())?
            .set(std::slice::from_ref(&service))?;
    }
    let Talk {
        mut client,
        mut server,
        ..
    } = Talk::open(&lab.near, &lab.far, backend, Some(service.at))?;
    let source = client.local_addr()?;
    server.set_read_timeout(Some(patient(Duration::from_secs(10))))?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| send(&mut client, &stop));
        let received =
            (0..REFRESHES).try_for_each(|_| receive_until_replayed(lab, &mut server, replays));
        stop.store(true, Ordering::Relaxed);
        received?;
        let rest = server
            .read_to_end(&mut Vec::new())
            .context("the close did not arrive")?;
        ensure!(rest < MOST_IN_FLIGHT, "{rest} bytes after the end");
        sender.join().expect("no panic")
    })?;
    drop(server);
    for node in [&lab.nodes.a, &lab.nodes.b] {
        eventually("the end of the connection", Duration::from_secs(10), || {
            let table = conntrack::table(node)?;
            let connection = table
                .iter()
                .find(|connection| connection.original.source == source);
            ensure!(
                connection.is_some_and(|of| of.state.as_deref() == Some("TIME_WAIT")),
                "{connection:?}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// Discards all flows, and receives until packets are replayed on both nodes again, or a chunk
/// where none are.
fn receive_until_replayed(lab: &FastLab, server: &mut TcpStream, replays: bool) -> Result<()> {
    lab.agents
        .iter()
        .try_for_each(|agent| agent.cli(&["flows", "flush"]).map(drop))?;
    let mut chunk = vec![0; CHUNK];
    lab.until_replayed_on([replays; 2], |_| {
        server
            .read_exact(&mut chunk)
            .context("the transfer stalled")?;
        ensure!(
            chunk.iter().all(|byte| *byte == 0x5a),
            "other bytes arrived"
        );
        Ok(())
    })
}

fn send(client: &mut TcpStream, stop: &AtomicBool) -> Result<()> {
    let chunk = vec![0x5a; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        client.write_all(&chunk)?;
    }
    Ok(client.shutdown(Shutdown::Both)?)
}

/// Over both families, replayed or not.
pub(crate) fn transfers(lab: &FastLab, replays: bool) -> Result<()> {
    for family in Family::ALL {
        let before = lab.replayed()?;
        transfer(lab, family, replays).with_context(|| format!("{family:?}"))?;
        let after = lab.replayed()?;
        for node in 0..2 {
            let replayed = after[node] - before[node];
            ensure!(
                if replays {
                    replayed > 1000
                } else {
                    replayed == 0
                },
                "{family:?}: {replayed} packets replayed"
            );
        }
    }
    Ok(())
}
