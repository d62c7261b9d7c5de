//! Idle connections to a node's listeners, as many as a pod can open: health checks, scrapes and
//! `status` go on.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Host, TwoNodes, cluster::VXLAN, judged, load::idle::IdleConnections};

const HEALTH: u16 = 8081;
const METRICS: u16 = 8082;
/// Of the node with the agent, on the cable.
const NODE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 11);
/// The number of connections that one pod opens at a time.
const SOCKETS: usize = 1000;
/// Enough to fill every queue on the way: more than the agent and the kernel hold for one port.
const MADE: usize = 200;
const PROBES: usize = 25;
/// A kubelet's, unless a probe says otherwise.
const LIMIT: Duration = Duration::from_secs(1);
/// Between two probes, so that they meet the flood in all its states.
const PACE: Duration = Duration::from_millis(100);
/// The maximum number of connections that the agent may have open for one listener: 32 of its node
/// and 128 of others, and as many again while it accepts.
const HELD: usize = 320;

const fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(ip), port)
}

/// One request as a kubelet makes it: connected, asked and answered within the limit.
fn request(host: &Host, to: SocketAddr, path: &str) -> Result<Duration> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    host.enter(|| {
        let begun = Instant::now();
        let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
        stream.set_read_timeout(Some(
            LIMIT
                .saturating_sub(begun.elapsed())
                .max(Duration::from_millis(1)),
        ))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        ensure!(
            answer.starts_with(b"HTTP/1.1 200 "),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        ensure!(begun.elapsed() <= LIMIT, "{:?}", begun.elapsed());
        Ok(begun.elapsed())
    })?
}

/// All probes have to be answered. What they saw is printed.
fn probe(what: &str, host: &Host, to: SocketAddr, path: &str) -> Result<()> {
    judged(what, || probe_once(what, host, to, path))
}

fn probe_once(what: &str, host: &Host, to: SocketAddr, path: &str) -> Result<()> {
    let (mut answered, mut slowest, mut failures) =
        (0, Duration::ZERO, BTreeMap::<String, usize>::new());
    for _ in 0..PROBES {
        match request(host, to, path) {
            Ok(time) => (answered, slowest) = (answered + 1, slowest.max(time)),
            Err(error) => *failures.entry(format!("{error:#}")).or_default() += 1,
        }
        thread::sleep(PACE);
    }
    println!("{what}: {to}{path}: {answered} of {PROBES} answered, the slowest after {slowest:?}");
    ensure!(
        answered == PROBES,
        "{what}: {to}{path}: {answered} of {PROBES}: {failures:?}"
    );
    Ok(())
}

fn descriptors(agent: &Agent) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", agent.child().pid()))?.count())
}

/// Returns how many connections to the port the kernel of a host keeps in the states FIN-WAIT and
/// TIME-WAIT.
fn remains(host: &Host, port: u16) -> Result<usize> {
    let sockets = host.sh("ss -Htan")?.stdout;
    let is_over = |line: &&str| {
        let mut fields = line.split_ascii_whitespace();
        let state = fields
            .next()
            .is_some_and(|state| state.starts_with("FIN-") || state == "TIME-WAIT");
        state
            && fields
                .nth(2)
                .is_some_and(|own| own.ends_with(&format!(":{port}")))
    };
    Ok(sockets.lines().filter(is_over).count())
}

fn displaced(agent: &Agent, port: u16, listener: &str) -> Result<u64> {
    let (_, text) = agent.node().http_get(port, "/metrics")?;
    let sample = format!("flannel_connections_displaced_total{{listener=\"{listener}\"}} ");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&sample))
        .context(sample.clone())?;
    Ok(value.parse()?)
}

/// The flags of stock flannel: one port for everybody. Only one source floods it.
#[test]
fn a_pod_that_holds_connections_to_a_port_for_all_keeps_no_probe_out() -> Result<()> {
    let pair = TwoNodes::new("idle", VXLAN)?;
    let agent = pair
        .a
        .agent(pair.options()?.flag(&format!("--healthz-port={HEALTH}")))?;
    agent.wait_ready()?;
    let pod = pair.a.add_pod("p1")?;
    let before = descriptors(&agent)?;
    let flood = IdleConnections::tcp(&pod, vec![at(NODE, HEALTH)], SOCKETS)?;
    flood.wait_made(MADE)?;
    let during = descriptors(&agent)?;
    let probes = [
        (
            "from the node, loopback",
            &pair.a,
            Ipv4Addr::LOCALHOST,
            "/healthz",
        ),
        ("from the node, its address", &pair.a, NODE, "/healthz"),
        ("from the node, its address", &pair.a, NODE, "/readyz"),
        ("from another node", &pair.b, NODE, "/healthz"),
        ("from another node", &pair.b, NODE, "/metrics"),
    ];
    for (what, host, ip, path) in &probes {
        probe(what, host, at(*ip, HEALTH), path)?;
    }
    let during = during.max(descriptors(&agent)?);
    let (made, displaced) = (flood.end()?, displaced(&agent, HEALTH, "health")?);
    let left = remains(&pair.a, HEALTH)?;
    println!(
        "{SOCKETS} sockets of one pod: {displaced} connections displaced, {made} made; descriptors \
         of the agent: {before}, then {during}; {left} connections linger"
    );
    ensure!(
        during <= before + HELD,
        "descriptors: {before}, then {during}"
    );
    ensure!(displaced > 0, "the flood was not one");
    // Those that were answered, once each, and none of the flood's.
    ensure!(
        left <= probes.len() * PROBES + 1,
        "{left} connections linger, of {made}"
    );
    Ok(())
}

/// The manifest's flags: health checks on loopback, metrics for everybody. The pod floods what it
/// can reach, and loopback too once the kernel lets it (`route_localnet`, which kube-proxy sets on
/// many nodes).
#[test]
fn a_pod_reaches_no_health_check_on_loopback_and_floods_it_in_vain_where_it_does() -> Result<()> {
    let pair = TwoNodes::new("idlelo", VXLAN)?;
    let flags = [
        "--healthz-ip=127.0.0.1",
        &format!("--healthz-port={HEALTH}"),
        "--metrics-ip=0.0.0.0",
        &format!("--metrics-port={METRICS}"),
    ];
    let _agent = pair.a.ready_agent(pair.options()?.flags(&flags))?;
    let pod = pair.a.add_pod("p1")?;
    let refused = request(&pod, at(NODE, HEALTH), "/healthz").map_err(|error| format!("{error:#}"));
    ensure!(
        refused
            .as_ref()
            .is_err_and(|error| error.contains("refused")),
        "a pod at the health port: {refused:?}"
    );
    let flood = IdleConnections::tcp(&pod, vec![at(NODE, HEALTH), at(NODE, METRICS)], SOCKETS)?;
    flood.wait_made(MADE)?;
    probe(
        "health port not reachable",
        &pair.a,
        at(Ipv4Addr::LOCALHOST, HEALTH),
        "/healthz",
    )?;
    probe("from another node", &pair.b, at(NODE, METRICS), "/metrics")?;
    let made = flood.end()?;
    println!("{SOCKETS} sockets of one pod made {made} connections to the metrics port");

    // The pod sends what is meant for its own loopback to the node, as one with CAP_NET_RAW can.
    pair.a.sh("sysctl -qw net.ipv4.conf.all.route_localnet=1")?;
    pod.sh("sysctl -qw net.ipv4.conf.all.route_localnet=1")?;
    pod.sh("ip address flush dev lo")?;
    let route = pod.sh("ip route show default")?.stdout;
    let gateway = route.split(' ').nth(2).with_context(|| route.clone())?;
    pod.sh(&format!(
        "ip route add 127.0.0.0/8 via {gateway} dev eth0 src {}",
        pod.ip()
    ))?;
    let flood = IdleConnections::tcp(&pod, vec![at(Ipv4Addr::LOCALHOST, HEALTH)], SOCKETS)?;
    flood.wait_made(MADE)?;
    probe(
        "flooded by route_localnet",
        &pair.a,
        at(Ipv4Addr::LOCALHOST, HEALTH),
        "/healthz",
    )?;
    let made = flood.end()?;
    println!(
        "{SOCKETS} sockets of one pod made {made} connections to the node's loopback by \
         route_localnet"
    );
    Ok(())
}

/// Root's own: the socket has mode 0600.
#[test]
fn silent_clients_of_the_status_socket_cost_few_descriptors() -> Result<()> {
    const CLIENTS: usize = 1500;
    let pair = TwoNodes::new("idlesock", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let before = descriptors(&agent)?;
    let flood = IdleConnections::unix(&pair.a, "/run/flannel/agent.sock".into(), CLIENTS)?;
    flood.wait_made(CLIENTS)?;
    let during = descriptors(&agent)?;
    let begun = Instant::now();
    agent.status()?;
    let answered = begun.elapsed();
    let made = flood.end()?;
    println!(
        "{CLIENTS} silent clients, {made} connections: descriptors of the agent: {before}, then \
         {during}; status after {answered:?}"
    );
    // 32 connections, and the one just accepted.
    ensure!(
        during <= before + 33,
        "descriptors: {before}, then {during}"
    );
    Ok(())
}
