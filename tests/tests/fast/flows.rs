//! Mode `fast`: packets of known flows are replayed, also those of Services, and only the timing
//! shows it.

use std::{net::SocketAddr, sync::mpsc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Pod,
    host::joined,
    load::{
        iperf::tcp_stream,
        rr::{Protocol, RrReport, measure, rr, serve},
        segmented::{self, Segmented},
        span::Span,
    },
    no_agent::{BareNode, BarePair, Talk},
    service_rules::Backend,
};

const LENGTH: Duration = Duration::from_secs(3);

/// Packets replayed by a node, and packets that waited for a confirmation.
type Handled = [u64; 2];

fn handled(node: &BareNode) -> Result<Handled> {
    Ok([node.replayed()?, node.unconfirmed()?])
}

fn handled_by_both(pair: &BarePair) -> Result<[Handled; 2]> {
    Ok([handled(&pair.a)?, handled(&pair.b)?])
}

/// Checks that a confirmed flow was replayed, except its first packets and two for each refresh.
fn most_of_it_replayed(node: &BareNode, before: Handled, report: &RrReport) -> Result<()> {
    let now = handled(node)?;
    let [replayed, unconfirmed] = [now[0] - before[0], now[1] - before[1]];
    let packets = report.transactions * 2;
    let most = (replayed + unconfirmed) * 100 >= packets * 98 && replayed > unconfirmed;
    ensure!(
        most,
        "{replayed} of {packets} packets, {unconfirmed} unconfirmed: {:#?}",
        node.counts()?
    );
    Ok(())
}

fn mostly_replayed(pair: &BarePair, before: [Handled; 2], report: &RrReport) -> Result<()> {
    ensure!(report.lost == 0, "{report:?}");
    for (node, before) in pair.nodes().into_iter().zip(before) {
        most_of_it_replayed(node, before, report)?;
    }
    for pod in [&pair.near, &pair.far] {
        ensure!(
            pod.checksum_errors()? == 0,
            "wrong checksums at {}",
            pod.name()
        );
    }
    Ok(())
}

/// Requests to the Service, which leads to a port of `far`.
fn rr_through_service(from: &Pod, far: &Pod, protocol: Protocol) -> Result<RrReport> {
    let (ready, started) = mpsc::channel();
    let at = SocketAddr::new(far.ip(), 8080);
    let server =
        far.thread(move || serve(protocol, at, |_| ready.send(()).context("nobody waits")))?;
    started
        .recv_timeout(Duration::from_secs(5))
        .context("the server did not start")?;
    let service = SocketAddr::new(
        flannel_tests::no_agent::SERVICE.parse()?,
        flannel_tests::no_agent::SERVICE_PORT,
    );
    let report = from.enter(|| measure(protocol, service, Span::cold(LENGTH), &mut || {}))??;
    joined(server)?;
    Ok(report)
}

#[test]
fn pod_to_pod() -> Result<()> {
    let pair = BarePair::new("fastpods")?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let before = handled_by_both(&pair)?;
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, LENGTH)?;
        mostly_replayed(&pair, before, &report).with_context(|| format!("{protocol:?}"))?;
    }
    Ok(())
}

fn service(name: &str, backend: Backend) -> Result<()> {
    let pair = BarePair::new(name)?;
    if backend == Backend::Iptables {
        pair.a.nft("delete table ip cluster")?;
        pair.a.usual_rules(backend)?;
    }
    let target = format!("{}:8080", pair.far.ip());
    for (protocol, name) in [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")] {
        pair.a.service(backend, name, &target)?;
        let before = handled_by_both(&pair)?;
        let report = rr_through_service(&pair.near, &pair.far, protocol)?;
        mostly_replayed(&pair, before, &report).with_context(|| name.to_owned())?;
        let translated = format!(
            "src={} dst={}",
            pair.near.ip(),
            flannel_tests::no_agent::SERVICE
        );
        let back = format!("src={} dst={}", pair.far.ip(), pair.near.ip());
        let table = pair.a.conntrack()?;
        let known = table
            .iter()
            .any(|line| line.contains(name) && line.contains(&translated) && line.contains(&back));
        ensure!(known, "{table:#?}");
    }
    Ok(())
}

#[test]
fn through_a_service_of_nftables() -> Result<()> {
    service("fastsvcnft", Backend::Nftables)
}

#[test]
fn through_a_service_of_iptables() -> Result<()> {
    service("fastsvcipt", Backend::Iptables)
}

#[test]
fn from_pod_to_pod_of_one_node_through_a_service() -> Result<()> {
    let mut pair = BarePair::new("fastone")?;
    let other = pair.a.add_pod("p2")?;
    // Without this the way back would be bridged, past the translation.
    pair.a
        .node
        .sh("sysctl -qw net.bridge.bridge-nf-call-iptables=1")?;
    pair.a
        .service(Backend::Nftables, "tcp", &format!("{}:8080", other.ip()))?;
    let before = handled(&pair.a)?;
    let report = rr_through_service(&pair.near, &other, Protocol::Tcp)?;
    most_of_it_replayed(&pair.a, before, &report)
}

#[test]
fn streams_both_ways_stay_whole() -> Result<()> {
    let pair = BarePair::new("faststream")?;
    for (from, to) in [(&pair.near, &pair.far), (&pair.far, &pair.near)] {
        let before = handled_by_both(&pair)?;
        let stream = tcp_stream(from, to, to.ip(), 3, None)?;
        ensure!(stream.bits_per_second > 0.0);
        for (node, before) in pair.nodes().into_iter().zip(before) {
            ensure!(node.replayed()? - before[0] > 1000, "{:#?}", node.counts()?);
        }
    }
    for pod in [&pair.near, &pair.far] {
        ensure!(
            pod.checksum_errors()? == 0,
            "wrong checksums at {}",
            pod.name()
        );
    }
    Ok(())
}

#[test]
fn segmented_datagrams_arrive() -> Result<()> {
    let pair = BarePair::new("fastsegments")?;
    let load = Segmented {
        sends: 500,
        segments: 20,
        size: 1000,
    };
    let numbers = segmented::send(&pair.near, &pair.far, pair.far.ip(), load)?;
    ensure!(
        numbers.len() == 10_000,
        "{} of 10000: {:#?}",
        numbers.len(),
        pair.b.counts()?
    );
    ensure!(
        pair.a.counted(Program::FromPod, Reason::Replayed)? > 100,
        "{:#?}",
        pair.a.counts()?
    );
    Ok(())
}

#[test]
fn a_new_generation_shows_every_flow_again() -> Result<()> {
    let mut pair = BarePair::new("fastgen")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let refreshed = |pair: &BarePair| pair.a.counted(Program::FromPod, Reason::Refreshing);
    let before = refreshed(&pair)?;
    pair.a.maps.mode.bump()?;
    talk.exchange(1)?;
    ensure!(refreshed(&pair)? > before, "{:#?}", pair.a.counts()?);
    pair.talk_until_replayed(&mut talk, 500)
}

#[test]
fn pods_that_take_no_fast_packets_get_none() -> Result<()> {
    let mut pair = BarePair::new("fastgate")?;
    let far = pair.far.clone();
    pair.b
        .write_pod(&far, flannel_common::abi::fast::PodEntry::SENDS)?;
    let mut talk = pair.talk()?;
    talk.exchange(1000)?;
    ensure!(
        pair.b.counted(Program::FromUnderlay, Reason::Replayed)? == 0,
        "{:#?}",
        pair.b.counts()?
    );
    ensure!(
        pair.b.counted(Program::ToPod, Reason::OtherReceiver)? > 0,
        "{:#?}",
        pair.b.counts()?
    );
    Ok(())
}

#[test]
fn a_connection_to_itself_through_a_service() -> Result<()> {
    let pair = BarePair::new("fasthairpin")?;
    pair.a.service(
        Backend::Nftables,
        "tcp",
        &format!("{}:8080", pair.near.ip()),
    )?;
    pair.a.nft(
        "add rule ip cluster postrouting ip saddr 10.244.1.2 ip daddr 10.244.1.2 masquerade",
    )?;
    pair.a.node.sh(&format!(
        "bridge link set dev {} hairpin on",
        pair.near.veth()
    ))?;
    let at = SocketAddr::new(pair.near.ip(), 8080);
    let service = SocketAddr::new(
        flannel_tests::no_agent::SERVICE.parse()?,
        flannel_tests::no_agent::SERVICE_PORT,
    );
    let mut talk = Talk::open(&pair.near, &pair.near, at, Some(service))?;
    talk.exchange(2000)
}
