//! Connections and flows of UDP that are silent for a while: conntrack keeps replayed ones as long
//! as others.
//!
//! By default the timeout that matters is shortened, and so is the silence. `FLANNEL_IDLE_SECONDS`
//! chooses how long the silence is with the timeouts of a fresh namespace: 330 is more than the 300
//! s after which conntrack forgets data that is not acknowledged.

use std::{
    net::{SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, eventually,
    fast::{FLAGS, Family, fast_pair},
    harness::{variable::number, wait::patient},
    kernel::conntrack,
    load::{datagrams::Datagrams, rr::Protocol},
    no_agent::Talk,
    service_rules::{Backend, Service, ServiceRules},
};

/// Address and port of the Service.
const SERVICE: &str = "10.96.0.77:80";
/// Time for which connections are busy: several intervals after which a flow is refreshed.
const BUSY: Duration = Duration::from_secs(6);
/// Seconds in which a busy connection's entry may have aged.
const AGED: u64 = 120;
/// The shortened timeout, and the silence that goes with it, in seconds.
const SHORT: (u64, u64) = (4, 10);

const ESTABLISHED: &str = "nf_conntrack_tcp_timeout_established";
const UNACKNOWLEDGED: &str = "nf_conntrack_tcp_timeout_unacknowledged";

/// Two nodes and a Service with two backends, of which each connection gets one at random: a
/// connection conntrack has forgotten goes to the wrong one every other time, which resets it.
struct IdleLab {
    listeners: [TcpListener; 2],
    pair: Pair,
}

impl IdleLab {
    fn new(pair: Pair) -> Result<Self> {
        let listen = || {
            pair.far
                .bound(SocketAddr::new(pair.far.ip(), 0), TcpListener::bind)
        };
        let listeners = [listen()?, listen()?];
        let backends: Vec<SocketAddr> = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<std::io::Result<_>>()?;
        for agent in [&pair.sender, &pair.receiver] {
            let rules = ServiceRules::install(agent.node(), Backend::Nftables, Family::V4.pods())?;
            rules.set(&[Service::new(
                SERVICE.parse()?,
                Protocol::Tcp,
                backends.clone(),
            )])?;
        }
        Ok(Self { listeners, pair })
    }

    fn agents(&self) -> [&Agent; 2] {
        [&self.pair.sender, &self.pair.receiver]
    }

    /// Connections that have been busy for a while.
    fn connections(&self, count: usize) -> Result<Vec<Talk>> {
        let open = |_| Talk::open_to_any(&self.pair.near, SERVICE.parse()?, &self.listeners);
        let mut talks: Vec<Talk> = (0..count).map(open).collect::<Result<_>>()?;
        let begun = Instant::now();
        while begun.elapsed() < BUSY {
            talks.iter_mut().try_for_each(|talk| talk.exchange(20))?;
        }
        Ok(talks)
    }

    /// The timeouts conntrack has for these connections on a node, sorted.
    fn timeouts(agent: &Agent, talks: &[Talk]) -> Result<Vec<u64>> {
        let table = conntrack::table(agent.node())?;
        let timeout = |talk: &Talk| -> Result<u64> {
            let [client, server] = [talk.client.local_addr()?, talk.server.local_addr()?];
            let entry = table.iter().find(|entry| entry.is_between(client, server));
            Ok(entry
                .with_context(|| format!("{client} is not in {table:#?}"))?
                .timeout)
        };
        let mut timeouts: Vec<u64> = talks.iter().map(timeout).collect::<Result<_>>()?;
        timeouts.sort_unstable();
        Ok(timeouts)
    }
}

/// Waits until conntrack has the timeout of established connections for all of these. The last
/// message of each is acknowledged a moment after it was read.
fn expect_established(agent: &Agent, talks: &[Talk]) -> Result<()> {
    let established = sysctl(agent, ESTABLISHED)?;
    let name = agent.node().name();
    let timeouts = eventually(
        &format!("timeouts on {name}"),
        Duration::from_secs(2),
        || {
            let timeouts = IdleLab::timeouts(agent, talks)?;
            let short = timeouts
                .iter()
                .filter(|timeout| **timeout + AGED < established)
                .count();
            ensure!(
                short == 0,
                "{short} of {} are kept for less than {established} s: {timeouts:?}",
                timeouts.len()
            );
            Ok(timeouts)
        },
    )?;
    println!("on {name}, of {established} s are left: {timeouts:?}");
    Ok(())
}

fn sysctl(agent: &Agent, name: &str) -> Result<u64> {
    Ok(agent
        .node()
        .sh(&format!("sysctl -n net.netfilter.{name}"))?
        .stdout
        .trim()
        .parse()?)
}

#[test]
fn conntrack_keeps_replayed_connections_as_long_as_others() -> Result<()> {
    let lab = IdleLab::new(fast_pair("idle-kept", &[])?)?;
    for mode in ["kernel", "fast"] {
        lab.pair.set_mode(mode)?;
        let before = lab.pair.replayed()?;
        let talks = lab.connections(20)?;
        if mode == "fast" {
            lab.pair.have_replayed(before, 2000)?;
        }
        for agent in lab.agents() {
            expect_established(agent, &talks).with_context(|| format!("mode {mode}"))?;
        }
    }
    Ok(())
}

/// Connections, silence, and a word on each: how it went, and how often so.
fn one_word_after_silence(lab: &IdleLab, mode: &str) -> Result<()> {
    let asked: Option<u64> = number("FLANNEL_IDLE_SECONDS")?;
    let seconds = asked.unwrap_or(SHORT.1);
    if asked.is_none() {
        for agent in lab.agents() {
            agent.node().sh(&format!(
                "sysctl -qw net.netfilter.{UNACKNOWLEDGED}={}",
                SHORT.0
            ))?;
        }
    }
    let mut talks = lab.connections(30)?;
    // The silence itself is under test, so the test sleeps.
    thread::sleep(Duration::from_secs(seconds));
    let (mut alive, mut reset, mut other) = (0, 0, Vec::new());
    for talk in &mut talks {
        for end in [&talk.client, &talk.server] {
            end.set_read_timeout(Some(patient(Duration::from_secs(3))))?;
        }
        match talk.exchange(1) {
            Ok(()) => alive += 1,
            // Only the client's socket reports the reset; the server's receives nothing.
            Err(_) if talk.client.take_error()?.is_some() => reset += 1,
            Err(error) => other.push(format!("{error:#}")),
        }
    }
    println!(
        "mode {mode}, {seconds} s of silence: {alive} of {} alive, {reset} reset, {other:?}",
        talks.len()
    );
    ensure!(
        alive == talks.len(),
        "mode {mode}: {reset} of {} were reset, {other:?}",
        talks.len()
    );
    Ok(())
}

#[test]
fn silent_connections_live_on_in_mode_kernel() -> Result<()> {
    let lab = IdleLab::new(Pair::with_flags(
        "idle-kern",
        &["--datapath=kernel", FLAGS[1]],
    )?)?;
    one_word_after_silence(&lab, "kernel")
}

#[test]
fn silent_connections_live_on_in_mode_fast() -> Result<()> {
    let lab = IdleLab::new(fast_pair("idle-fast", &[])?)?;
    let before = lab.pair.replayed()?;
    one_word_after_silence(&lab, "fast")?;
    lab.pair.have_replayed(before, 2000)
}

/// Conntrack counts the timeout of a flow of UDP from the last packet that it sees, and replayed
/// ones follow that. The timeout is of flows with several packets in both directions.
#[test]
fn replayed_flows_of_udp_keep_the_hosts_timeout() -> Result<()> {
    const TIMEOUT: u64 = 120;
    const FLOWS: usize = 10;
    let pair = fast_pair("idle-udp", &[])?;
    let open = |_| {
        Datagrams::open(
            &pair.near,
            &pair.far,
            SocketAddr::new(pair.far.ip(), 0),
            None,
        )
    };
    let mut talks: Vec<Datagrams> = (0..FLOWS).map(open).collect::<Result<_>>()?;
    let (before, begun) = (pair.replayed()?, Instant::now());
    let mut last = begun;
    while begun.elapsed() < BUSY {
        last = Instant::now();
        talks.iter_mut().try_for_each(|talk| talk.exchange(5))?;
    }
    pair.have_replayed(before, 1000)?;
    for agent in [&pair.sender, &pair.receiver] {
        let table = conntrack::table(agent.node())?;
        let passed = last.elapsed().as_secs() + 1;
        let of_pod = table
            .iter()
            .filter(|entry| entry.original.source.ip() == pair.near.ip());
        let left: Vec<u64> = of_pod
            .filter(|entry| entry.original.protocol == Protocol::Udp)
            .map(|entry| entry.timeout)
            .collect();
        let name = agent.node().name();
        ensure!(left.len() == FLOWS, "{name}: {table:#?}");
        ensure!(
            left.iter().all(|left| left + passed >= TIMEOUT),
            "{name}, {passed} s later: {left:?}"
        );
    }
    Ok(())
}
