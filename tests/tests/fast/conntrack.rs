//! Mode `fast` and conntrack: conntrack sees every packet it has to see, and flows that it does not
//! confirm are not learned.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{fast::FastConfig, program::Program, reason::Reason};
use flannel_tests::{
    eventually,
    no_agent::{BareNode, BarePair, Key, Talk},
    packet::{Packet, wire::inject},
    throughout,
};
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(4);

/// Returns true if a key has the ports of a connection between these ends, in either direction.
fn is_of(key: &Key, ends: [SocketAddr; 2]) -> bool {
    let [a, b] = ends.map(|end| end.port());
    let ports = key.port_numbers();
    ports == [a, b] || ports == [b, a]
}

/// Returns how many directions of a connection have a current flow, independent of each other.
fn current_of(node: &BareNode, ends: [SocketAddr; 2]) -> Result<usize> {
    Ok(node
        .current_flows()?
        .iter()
        .filter(|(key, _)| is_of(key, ends))
        .count())
}

fn conntrack_state(node: &BareNode, ends: [SocketAddr; 2]) -> Result<String> {
    let port = format!("sport={} ", ends[0].port());
    let table = node.conntrack()?;
    let line = table
        .iter()
        .find(|line| line.contains(&port))
        .with_context(|| format!("{table:#?}"))?;
    let state = line
        .split_ascii_whitespace()
        .find(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    state.map(str::to_owned).with_context(|| line.clone())
}

#[test]
fn a_close_ends_the_flows_and_conntrack_sees_it() -> Result<()> {
    let pair = BarePair::new("fastclose")?;
    for _ in 0..4 {
        let mut talk = pair.talk()?;
        pair.talk_until_replayed(&mut talk, 500)?;
        let ends = talk.ends()?;
        drop(talk);
        for node in pair.nodes() {
            eventually("a closed connection", Duration::from_secs(5), || {
                let state = conntrack_state(node, ends)?;
                ensure!(state == "TIME_WAIT" || state == "CLOSE", "{state}");
                Ok(())
            })?;
            ensure!(
                current_of(node, ends)? == 0,
                "flows outlive their connection: {:#?}",
                node.current_flows()?
            );
        }
        throughout(
            "no flow of it comes back",
            Duration::from_millis(200),
            || {
                let [a, b] = pair.nodes();
                let current = current_of(a, ends)? + current_of(b, ends)?;
                ensure!(current == 0, "{current} flows");
                Ok(())
            },
        )?;
    }
    Ok(())
}

#[test]
fn a_port_that_is_used_again_is_another_connection() -> Result<()> {
    let pair = BarePair::new("fastreuse")?;
    let source = SocketAddr::new(pair.near.ip(), 45_678);
    for port in [8080, 8081, 8080] {
        let mut talk = Talk::open_from(
            &pair.near,
            source,
            &pair.far,
            SocketAddr::new(pair.far.ip(), port),
            None,
        )?;
        pair.talk_until_replayed(&mut talk, 500)?;
        // Closed by the other end, so that the client's port is free at once.
        drop(talk.server);
        let mut rest = Vec::new();
        talk.client.read_to_end(&mut rest)?;
    }
    Ok(())
}

#[test]
fn a_reset_after_three_gigabytes_arrives() -> Result<()> {
    let pair = BarePair::new("fastreset")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let mut server = talk.server.try_clone()?;
    let reader = thread::spawn(move || -> std::io::Result<u64> {
        let (mut buffer, mut sum) = (vec![0; 1 << 20], 0);
        loop {
            match server.read(&mut buffer)? {
                0 => return Ok(sum),
                length => sum += length as u64,
            }
        }
    });
    let chunk = vec![0x5a; 1 << 20];
    for _ in 0..3 << 10 {
        talk.client.write_all(&chunk)?;
    }
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&talk.client, sockopt::Linger, &reset)?;
    drop(talk.client);
    let end = reader.join().expect("no panic");
    let error = end.err().context("the end looked like a close")?;
    ensure!(
        error.kind() == std::io::ErrorKind::ConnectionReset,
        "{error}"
    );
    Ok(())
}

#[test]
fn a_rule_that_drops_cuts_a_flow_within_the_interval() -> Result<()> {
    let pair = BarePair::new("fastdrop")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    pair.b.nft(&format!(
        "insert rule ip cluster forward ip saddr {} drop",
        pair.near.ip()
    ))?;
    eventually("a flow that is cut", INTERVAL, || {
        ensure!(talk.exchange(50).is_err(), "packets still pass");
        Ok(())
    })?;
    Ok(())
}

#[test]
fn what_conntrack_calls_invalid_teaches_nothing() -> Result<()> {
    let pair = BarePair::new("fastinvalid")?;
    for node in pair.nodes() {
        node.nft("flush chain ip cluster forward")?;
    }
    let (from, to) = (pair.near.ip(), pair.far.ip());
    for id in 1..400 {
        let mut packet = Packet::udp(from, to, id, 64);
        packet.payload[6] ^= 0x5a;
        inject(&pair.near, &packet)?;
    }
    ensure!(
        pair.a.counted(Program::ToTunnel, Reason::Untracked)? > 0,
        "{:#?}",
        pair.a.counts()?
    );
    ensure!(pair.a.flows()?.is_empty(), "{:#?}", pair.a.flows()?);
    for id in 1..400 {
        inject(&pair.near, &Packet::udp(from, to, id, 64))?;
    }
    ensure!(
        !pair.a.flows()?.is_empty(),
        "valid ones are learned: {:#?}",
        pair.a.counts()?
    );
    Ok(())
}

#[test]
fn tcp_is_left_alone_where_conntrack_tracks_windows() -> Result<()> {
    let mut pair = BarePair::new("faststrict")?;
    for node in [&mut pair.a, &mut pair.b] {
        node.node
            .sh("sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0")?;
        node.set_fast(|fast| fast.flags &= !FastConfig::TCP)?;
    }
    let mut talk = pair.talk()?;
    talk.exchange(2000)?;
    for node in pair.nodes() {
        ensure!(
            node.replayed()? == 0 && node.flows()?.is_empty(),
            "{:#?}",
            node.counts()?
        );
    }
    Ok(())
}

#[test]
fn untracked_packets_are_learned_unchanged() -> Result<()> {
    let pair = BarePair::new("fastnotrack")?;
    for node in pair.nodes() {
        node.nft(
            "table ip raw { chain pre { type filter hook prerouting priority -300; notrack\n}\n}",
        )?;
    }
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    ensure!(
        !pair
            .a
            .conntrack()?
            .iter()
            .any(|line| line.contains(&pair.far.ip().to_string()))
    );
    Ok(())
}

/// Without a rule that needs it, conntrack tracks nothing: packets have no entry, like those that
/// conntrack calls invalid.
#[test]
fn where_nothing_asks_for_conntrack_flows_are_learned() -> Result<()> {
    let pair = BarePair::new("fastnoct")?;
    for node in pair.nodes() {
        node.nft("flush ruleset")?;
    }
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    ensure!(
        pair.a.counted(Program::ToTunnel, Reason::Untracked)? == 0,
        "{:#?}",
        pair.a.counts()?
    );
    let of_the_pod = |line: &String| line.contains(&pair.far.ip().to_string());
    ensure!(
        !pair.a.conntrack()?.iter().any(of_the_pod),
        "conntrack is at work: {:#?}",
        pair.a.conntrack()?
    );
    // IPv6 may be tracked where IPv4 is not.
    pair.a.nft(
        "table ip6 other \
        { chain c { type filter hook forward priority 0; ct state established accept\n}\n}",
    )?;
    let refreshed = pair.a.counted(Program::FromPod, Reason::Refreshing)?;
    eventually("a flow that was seen anew", INTERVAL, || {
        talk.exchange(50)?;
        ensure!(
            pair.a.counted(Program::FromPod, Reason::Refreshing)? > refreshed,
            "{:#?}",
            pair.a.counts()?
        );
        Ok(())
    })?;
    pair.talk_until_replayed(&mut talk, 500)
}

#[test]
fn the_mark_at_the_exit_goes_with_the_flow() -> Result<()> {
    let pair = BarePair::new("fastmark")?;
    pair.a
        .nft("add rule ip cluster forward meta mark set 0x42")?;
    pair.a
        .nft("add rule ip cluster forward meta priority set 0x10007")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    // It may be due for its refresh just now.
    let (_, flow) = eventually(
        "a usable flow into the tunnel",
        Duration::from_secs(20),
        || {
            talk.exchange(1)?;
            let mut flows = pair.a.usable_flows()?.into_iter();
            flows
                .find(|(_, flow)| flow.action.egress == flannel_common::flow::Egress::TUNNEL)
                .context("none")
        },
    )?;
    ensure!(
        (flow.action.mark, flow.action.priority) == (0x42, 0x1_0007),
        "{flow:?}"
    );
    Ok(())
}
