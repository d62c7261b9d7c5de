//! Sums: packets and bytes by peer, pod and flow are those of the interfaces, in every mode and for
//! datagrams and streams alike.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Host, Pair, Pod,
    cluster::topology::Stack,
    eventually,
    fast::{fast_pair, fast_pair_of},
    load::{UdpLoad, UdpRun, bulk::transfer},
};
use serde_json::Value;

const PPS: u32 = 2000;
const SECONDS: u64 = 3;
const PAYLOAD: usize = 1000;
/// Bytes of an Ethernet header.
const ETHERNET: i64 = 14;
/// Blocks of a stream each way: 8 MB.
const BLOCKS: u64 = 128;

/// Packets and bytes. They are signed because counters that did not begin at the same time are
/// subtracted: a device counts from its creation, a program from its attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    packets: i64,
    bytes: i64,
}

impl Sum {
    const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
        }
    }

    /// Fails unless both are equal within one percent.
    fn expect(self, other: Self, what: &str) -> Result<()> {
        let near = |a: i64, b: i64| (a - b).abs() * 100 <= a.max(b);
        let is_equal = near(self.packets, other.packets) && near(self.bytes, other.bytes);
        ensure!(
            is_equal && self.packets > 0,
            "{what}: counted {self:?}, and the interfaces have {other:?}"
        );
        Ok(())
    }
}

/// The counters of a device, `rx` or `tx`.
fn device(host: &Host, name: &str, direction: &str) -> Result<Sum> {
    let links: Value = host.json(&["ip", "-s", "-j", "link", "show", "dev", name])?;
    let counters = &links[0]["stats64"][direction];
    let number = |key: &str| {
        counters[key]
            .as_i64()
            .with_context(|| format!("{name}: {links}"))
    };
    Ok(Sum {
        packets: number("packets")?,
        bytes: number("bytes")?,
    })
}

/// The counters of a row of `maps dump`.
fn counted(row: &Value, direction: &str) -> Result<Sum> {
    let number = |what: &str| {
        row[format!("{direction}_{what}")]
            .as_i64()
            .with_context(|| row.to_string())
    };
    Ok(Sum {
        packets: number("packets")?,
        bytes: number("bytes")?,
    })
}

/// All rows of a map.
fn rows(agent: &Agent, map: &str) -> Result<Vec<Value>> {
    let dump = agent.cli_json(&["maps", "dump", map, "-o", "json"])?;
    dump[map]
        .as_array()
        .cloned()
        .with_context(|| dump.to_string())
}

/// Packets to or from all peers.
fn peers(agent: &Agent, direction: &str) -> Result<Sum> {
    rows(agent, "peers")?
        .iter()
        .try_fold(Sum::default(), |sum, row| {
            Ok(sum.plus(counted(row, direction)?))
        })
}

/// Packets to or from a pod, as its node counts them.
fn pod(agent: &Agent, pod: &Pod, direction: &str) -> Result<Sum> {
    let rows = rows(agent, "pods")?;
    let row = rows
        .iter()
        .find(|row| row["veth"] == pod.veth())
        .with_context(|| format!("{rows:?}"))?;
    counted(row, direction)
}

/// Frames that came out of the tunnel devices of a node, or went into the pod past its veth: what
/// peers sent to it. The kernel's counters of a tunnel device leave the Ethernet header out.
fn received(agent: &Agent, far: &Pod) -> Result<Sum> {
    let mut sum = Sum::default();
    for tunnel in ["flannel.1", "flannel-v6.1"] {
        let out = device(agent.node(), tunnel, "rx")?;
        sum = sum.plus(Sum {
            bytes: out.bytes + ETHERNET * out.packets,
            ..out
        });
    }
    let stats = rows(agent, "stats")?;
    let decapsulated = stats.iter().filter(|row| row["reason"] == "decapsulated");
    for row in decapsulated {
        let number = |key: &str| row[key].as_i64().with_context(|| row.to_string());
        sum = sum.plus(Sum {
            packets: number("packets")?,
            bytes: number("bytes")?,
        });
    }
    if rows(agent, "pods")?.is_empty() {
        return Ok(sum);
    }
    let past_veth = pod(agent, far, "to")?.since(device(agent.node(), far.veth(), "tx")?);
    Ok(sum.plus(past_veth))
}

/// Packets so far: what the programs counted of the peer, and what the interfaces did.
struct Sums {
    to_peer: Sum,
    sent_by_pod: Sum,
    from_peer: Sum,
    received: Sum,
}

impl Sums {
    fn of(pair: &Pair) -> Result<Self> {
        Ok(Self {
            to_peer: peers(&pair.sender, "to")?,
            sent_by_pod: device(&pair.near, "eth0", "tx")?,
            from_peer: peers(&pair.receiver, "from")?,
            received: received(&pair.receiver, &pair.far)?,
        })
    }
}

/// Sends datagrams from one pod to the other, and a stream each way. Returns the datagrams.
fn load(pair: &Pair, at: IpAddr) -> Result<u64> {
    let load = UdpLoad {
        pps: PPS,
        duration: Duration::from_secs(SECONDS),
        payload: PAYLOAD,
    };
    let report = UdpRun::start(&pair.near, &pair.far, at, load)?.wait()?;
    ensure!(report.sent > u64::from(PPS), "{report:?}");
    let [there, back] = transfer(&pair.near, &pair.far, (at, 0).into(), BLOCKS)?;
    ensure!(
        (there.blocks, back.blocks) == (BLOCKS, BLOCKS),
        "{there:?} {back:?}"
    );
    Ok(report.sent)
}

/// The same; what was counted by peer is what the interfaces have. Returns the datagrams.
fn load_with_sums(pair: &Pair, at: IpAddr) -> Result<u64> {
    let before = Sums::of(pair)?;
    let datagrams = load(pair, at)?;
    let now = Sums::of(pair)?;
    now.to_peer
        .since(before.to_peer)
        .expect(now.sent_by_pod.since(before.sent_by_pod), "to the peer")?;
    now.from_peer
        .since(before.from_peer)
        .expect(now.received.since(before.received), "from the peer")?;
    Ok(datagrams)
}

#[test]
fn peers_have_the_sums_of_interfaces_in_modes_kernel_and_encap() -> Result<()> {
    let pair = Pair::with("ft-sums", Stack::Dual, &[])?;
    for mode in ["kernel", "encap"] {
        pair.set_mode(mode)?;
        for at in pair.far.addresses() {
            load_with_sums(&pair, *at).with_context(|| format!("mode {mode}, {at}"))?;
        }
    }
    Ok(())
}

#[test]
fn peers_pods_and_flows_have_the_sums_of_interfaces_in_mode_fast() -> Result<()> {
    let pair = fast_pair_of("ft-sums-fast", Stack::Dual, &[])?;
    let sums = || -> Result<[[Sum; 2]; 2]> {
        let to = [
            pod(&pair.receiver, &pair.far, "to")?,
            device(&pair.far, "eth0", "rx")?,
        ];
        Ok([
            to,
            [
                pod(&pair.sender, &pair.near, "from")?,
                device(&pair.near, "eth0", "tx")?,
            ],
        ])
    };
    for at in pair.far.addresses() {
        let before = sums()?;
        let datagrams = load_with_sums(&pair, *at).with_context(|| at.to_string())?;
        for ((what, now), before) in ["to the pod", "from the pod"]
            .into_iter()
            .zip(sums()?)
            .zip(before)
        {
            now[0]
                .since(before[0])
                .expect(now[1].since(before[1]), what)?;
        }
        flow_has_the_sum(&pair, *at, datagrams)?;
    }
    Ok(())
}

/// The flow of the datagrams has nearly all of them, since its first packet and up to its last.
fn flow_has_the_sum(pair: &Pair, at: IpAddr, datagrams: u64) -> Result<()> {
    let headers = ETHERNET.unsigned_abs() + if at.is_ipv4() { 20 } else { 40 } + 8;
    let frame = headers + PAYLOAD as u64;
    let flows = rows(&pair.sender, "flows")?;
    let is_ours = |row: &&Value| {
        let ends =
            [&row["source"], &row["destination"]].map(|end| end.as_str().unwrap_or_default());
        let ips = ends.map(|end| end.parse::<SocketAddr>().ok().map(|end| end.ip()));
        row["protocol"] == "udp" && row["way"] == "tunnel" && ips[1] == Some(at)
    };
    let flow = flows
        .iter()
        .find(is_ours)
        .with_context(|| format!("{flows:#?}"))?;
    let number = |key: &str| {
        flow[key]
            .as_i64()
            .map(i64::unsigned_abs)
            .with_context(|| flow.to_string())
    };
    let (packets, bytes) = (number("packets")?, number("bytes")?);
    ensure!(
        bytes == packets * frame,
        "{packets} datagrams of {frame}: {flow}"
    );
    ensure!(
        packets <= datagrams && packets * 10 >= datagrams * 9,
        "{datagrams} datagrams: {flow}"
    );
    let [first, last] = [number("first_seen_ms")?, number("last_seen_ms")?];
    ensure!(
        first >= last + SECONDS * 900,
        "a stream of {SECONDS} s: {flow}"
    );
    Ok(())
}

/// A scrape has what the maps have.
#[test]
fn the_metrics_have_the_traffic_of_peers_and_pods() -> Result<()> {
    let pair = fast_pair(
        "ft-metrics",
        &["--healthz-port=9099", "--metrics-pods=true"],
    )?;
    pair.near.ping(pair.far.ip())?;
    eventually("the metrics of one time", Duration::from_secs(10), || {
        let [to, veth] = [
            peers(&pair.sender, "to")?,
            pod(&pair.sender, &pair.near, "from")?,
        ];
        let page = pair
            .sender
            .node()
            .sh("curl -s http://127.0.0.1:9099/metrics")?
            .stdout;
        let value = |start: &str, end: &str| {
            let line = page
                .lines()
                .find(|line| line.starts_with(start) && line.contains(end));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<i64>().ok())
                .with_context(|| format!("no {start}"))
        };
        let bytes = value("flannel_peer_bytes_total{", "direction=\"to\"")?;
        let packets = value("flannel_peer_packets_total{", "direction=\"to\"")?;
        let of_pod = value(
            &format!("flannel_pod_bytes_total{{veth=\"{}\"", pair.near.veth()),
            "\"from\"",
        )?;
        ensure!(
            (packets, bytes) == (to.packets, to.bytes),
            "{packets} and {bytes}, not {to:?}"
        );
        ensure!(of_pod == veth.bytes, "{of_pod}, not {veth:?}");
        Ok(())
    })
}
