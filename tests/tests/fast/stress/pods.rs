//! Very many pods start at once, and each flow of each has its packets replayed a moment later.

use std::{
    collections::BTreeSet,
    iter,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Host, Pair, eventually, fast::fast_pair, harness::variable::number};
use nix::sys::socket::{setsockopt, sockopt};

/// Flows of a pod. With this many there are slots of `PROBATION` that two flows share.
const FLOWS: usize = 8;

/// As many as `FLANNEL_TEST_PODS` says.
fn count() -> Result<u8> {
    let pods = number("FLANNEL_TEST_PODS").context("1 to 250 pods")?;
    Ok(pods.unwrap_or(100))
}

/// The pods: veths into the bridge whose other ends lie in one namespace, each with its own address
/// and route.
struct Pods {
    inside: Host,
    addresses: Vec<Ipv4Addr>,
}

impl Pods {
    /// Makes all of them as fast as they can be.
    fn start(pair: &Pair, count: u8) -> Result<Self> {
        let inside: Host = (*pair.lab.node("inside")?).clone();
        // Each end answers for its own address.
        inside.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.rp_filter=0")?;
        let [a, b, c, _] = pair.near.ip4()?.octets();
        let addresses: Vec<_> = (0..count)
            .map(|number| Ipv4Addr::new(a, b, c, number + 3))
            .collect();
        let (gateway, pid) = (Ipv4Addr::new(a, b, c, 1), inside.pid());
        let outside = (0..count).flat_map(|number| {
            let veth = format!("many{number}");
            [
                format!(
                    "link add {veth} mtu 1450 type veth peer name eth{number} mtu 1450 netns {pid}"
                ),
                format!("link set {veth} master cni0 up"),
            ]
        });
        batch(pair.sender.node(), outside)?;
        let own = addresses.iter().enumerate().flat_map(|(number, address)| {
            [
                format!("address add {address}/32 dev eth{number}"),
                format!("link set eth{number} up"),
                format!(
                    "route add {gateway} dev eth{number} src {address} metric {}",
                    number + 1
                ),
                format!(
                    "route add default via {gateway} dev eth{number} src {address} metric {}",
                    number + 1
                ),
            ]
        });
        batch(&inside, own)?;
        Ok(Self { inside, addresses })
    }

    /// Sockets in each of them, connected to this address.
    fn sockets(&self, to: SocketAddr) -> Result<Vec<UdpSocket>> {
        let socket = |(number, address): (usize, &Ipv4Addr)| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((*address, 0))?;
            setsockopt(
                &socket,
                sockopt::BindToDevice,
                &format!("eth{number}").into(),
            )?;
            socket.connect(to)?;
            Ok(socket)
        };
        let pods = self.addresses.iter().enumerate();
        self.inside.enter(|| {
            pods.flat_map(|pod| iter::repeat_n(pod, FLOWS))
                .map(socket)
                .collect()
        })?
    }
}

/// Commands of ip, in one process.
fn batch(host: &Host, commands: impl Iterator<Item = String>) -> Result<()> {
    let script = commands.collect::<Vec<_>>().join("\n");
    host.command(["ip", "-batch", "-"])
        .input(&script)
        .limit(Duration::from_secs(40))
        .run()
        .map(drop)
}

/// The sources of which packets were replayed.
fn replayed(pair: &Pair) -> Result<BTreeSet<SocketAddr>> {
    let dump = pair
        .sender
        .cli_json(&["maps", "dump", "flows", "-o", "json"])?;
    let rows = dump["flows"]
        .as_array()
        .context("no flows")?
        .iter()
        .filter(|row| row["packets"] != 0);
    let source = |row: &serde_json::Value| -> Result<SocketAddr> {
        Ok(row["source"]
            .as_str()
            .with_context(|| row.to_string())?
            .parse()?)
    };
    rows.map(source).collect()
}

#[test]
fn every_pod_of_a_full_node_is_fast_a_moment_after_its_start() -> Result<()> {
    let pair = fast_pair("fl-pods", &[])?;
    let pods = Pods::start(&pair, count()?)?;
    let start = Instant::now();
    let receiver = pair.far.enter(|| UdpSocket::bind((pair.far.ip(), 0)))??;
    let sockets = pods.sockets(receiver.local_addr()?)?;
    let sources: Vec<_> = sockets
        .iter()
        .map(UdpSocket::local_addr)
        .collect::<Result<_, _>>()?;
    eventually(
        "packets of every flow to be replayed",
        Duration::from_secs(20),
        || {
            for _ in 0..10 {
                sockets
                    .iter()
                    .try_for_each(|socket| socket.send(b"to be replayed").map(drop))?;
            }
            let known = replayed(&pair)?;
            let missing: Vec<_> = sources
                .iter()
                .filter(|source| !known.contains(source))
                .collect();
            ensure!(
                missing.is_empty(),
                "not of {} of {}: {missing:?}",
                missing.len(),
                sources.len()
            );
            Ok(())
        },
    )?;
    println!(
        "{} flows {:?} after the last pod was made",
        sockets.len(),
        start.elapsed()
    );
    Ok(())
}
