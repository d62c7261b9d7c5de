//! Mode `fast` and what pods and their devices are up to: bandwidth limits, XDP in a pod, flooded
//! frames, forged addresses.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::{
    abi::{program::Program, reason::Reason},
    packet::addr::Mac,
};
use flannel_tests::{
    Pair, Pod,
    cluster::topology::Stack,
    eventually,
    fast::{Counters, Family, fast_pair_of},
    kernel::{hooks::ifindex, xdp},
    load::{
        bulk::{BLOCK, Bulk, BulkLoad},
        rr::{Protocol, rr},
    },
    no_agent::Talk,
    packet::{
        Packet,
        wire::{Capture, inject, inject_frame},
    },
    throughout,
};

/// Bytes a second, and at once.
const RATE: u128 = 1_000_000;
const BURST: u128 = 64 << 10;
const SHAPER: &str = "tbf rate 8mbit burst 64k latency 400ms";

/// Expects of one direction of a connection that from now on it carries no more than the limit
/// allows.
fn expect_limited(connection: &Bulk, way: usize) -> Result<()> {
    let (start, before) = (Instant::now(), connection.arrived()[way]);
    eventually("some limited data", Duration::from_secs(30), || {
        let blocks = connection.arrived()[way] - before;
        ensure!(blocks >= 3_000_000 / BLOCK as u64, "{blocks} blocks");
        Ok(())
    })?;
    let (bytes, time) = (
        u128::from(connection.arrived()[way] - before) * BLOCK as u128,
        start.elapsed(),
    );
    println!("{bytes} bytes in {time:?}");
    // A block of which the first bytes were there before counts whole.
    let allowed = RATE * time.as_micros() / 1_000_000 + BURST + BLOCK as u128;
    ensure!(
        bytes <= allowed,
        "{bytes} bytes in {time:?}, {allowed} are allowed"
    );
    Ok(())
}

/// A limit on one way of the near pod: what sets it, what takes it away, and the way (0 is what the
/// pod sends).
struct Limit {
    set: Vec<String>,
    undo: String,
    way: usize,
}

impl Limit {
    /// A connection whose packets are replayed by then is held to it, and its packets are replayed
    /// again without it.
    fn holds(&self, pair: &Pair, at: IpAddr) -> Result<()> {
        let (node, way) = (pair.sender.node(), self.way);
        let connection = Bulk::start(
            &pair.near,
            &pair.far,
            (at, 0).into(),
            None,
            BulkLoad::steady(64),
        )?;
        pair.wait_replayed(200)?;
        for command in &self.set {
            node.run(command.split(' ').map(|word| word.replace('~', " ")))?;
        }
        pair.sender.wait_pod(&pair.near, way == 1, way == 0)?;
        expect_limited(&connection, way)?;
        node.sh(&self.undo)?;
        pair.sender.wait_pod(&pair.near, true, true)?;
        pair.wait_replayed(200)?;
        connection.stop().map(drop)
    }
}

/// As the bandwidth plugin of CNI limits a pod: what it receives by a qdisc on its veth, what it
/// sends by one on a device its packets are sent to instead. And a limit for all pods of the node.
#[test]
fn a_limited_pod_stays_limited() -> Result<()> {
    let pair = fast_pair_of("fd-limit", Stack::Dual, &[])?;
    let (node, veth) = (pair.sender.node(), pair.near.veth());
    for command in [
        "ip link add ifb0 type ifb",
        "ip link set ifb0 up",
        &format!("tc qdisc add dev ifb0 root {SHAPER}"),
    ] {
        node.sh(command)?;
    }
    let redirect = format!(
        "tc filter add dev {veth} parent ffff: bpf bytecode 1,6~0~0~4294967295, action mirred \
         egress redirect dev ifb0"
    );
    let receives = |device: &str| Limit {
        set: vec![format!("tc qdisc add dev {device} root {SHAPER}")],
        undo: format!("tc qdisc delete dev {device} root"),
        way: 1,
    };
    let sends = Limit {
        set: vec![format!("tc qdisc add dev {veth} ingress"), redirect],
        undo: format!("tc qdisc delete dev {veth} ingress"),
        way: 0,
    };
    for limit in [receives(veth), receives("cni0"), sends] {
        for at in pair.far.addresses() {
            limit
                .holds(&pair, *at)
                .with_context(|| format!("{at}: {}", limit.set.join("; ")))?;
        }
    }
    Ok(())
}

/// A packet that a pod's own XDP program drops never reaches the pod, regardless of whether the
/// program or the flow was there first.
#[test]
fn xdp_in_a_pod_sees_every_packet() -> Result<()> {
    let pair = fast_pair_of("fd-xdp", Stack::Dual, &[])?;
    Family::ALL.into_iter().try_for_each(|family| {
        drops_every_packet(&pair, family).with_context(|| format!("{family:?}"))
    })
}

fn drops_every_packet(pair: &Pair, family: Family) -> Result<()> {
    let (near, far) = (family.of(&pair.near)?, family.of(&pair.far)?);
    let mut talk = replayed_talk(pair, far)?;
    xdp::attach_drop(&pair.near, "eth0")?;
    eventually("a cut flow", Duration::from_secs(15), || {
        ensure!(talk.exchange(1).is_err(), "messages still come through");
        Ok(())
    })?;
    pair.sender.wait_pod(&pair.near, true, false)?;
    let counters = Counters::of(&pair.sender)?;
    let replayed = || counters.packets(Program::FromUnderlay, Reason::Replayed);
    let before = replayed()?;
    // A single lost packet that takes the kernel's path also fails an exchange, so the test checks
    // several exchanges.
    throughout("silence", Duration::from_secs(3), || {
        ensure!(talk.exchange(1).is_err(), "a message comes through");
        Ok(())
    })?;
    ensure!(
        Talk::open(&pair.far, &pair.near, (near, 0).into(), None).is_err(),
        "a connection came about"
    );
    ensure!(
        replayed()? == before,
        "something is replayed past the program"
    );
    xdp::detach(&pair.near, "eth0")?;
    pair.sender.wait_pod(&pair.near, true, true)?;
    replayed_talk(pair, far).map(drop)
}

/// Returns the interface indices by which the receiving node's flows deliver packets to a pod.
fn exits(pair: &Pair, to: &Pod) -> Result<BTreeSet<u64>> {
    let dump = pair
        .receiver
        .cli_json(&["maps", "dump", "flows", "-o", "json"])?;
    let is_to = |row: &&serde_json::Value| {
        let destination = row["destination"]
            .as_str()
            .and_then(|text| text.parse::<SocketAddr>().ok());
        row["way"] == "pod" && destination.is_some_and(|at| to.addresses().contains(&at.ip()))
    };
    let rows = dump["flows"]
        .as_array()
        .context("no flows")?
        .iter()
        .filter(is_to);
    rows.map(|row| row["out"].as_u64().with_context(|| row.to_string()))
        .collect()
}

/// A bridge that has forgotten where a pod is sends to every port; one that steers packets hands
/// them to another CPU.
#[test]
fn flooded_and_steered_packets_lead_to_the_pod_they_are_for() -> Result<()> {
    let pair = fast_pair_of("fd-flood", Stack::Dual, &[])?;
    // The oldest port gets the packet itself, the others copies: so the pod meant is not the
    // oldest.
    let meant = pair.net.c.add_pod("p2")?;
    pair.receiver.wait_pod(&meant, true, true)?;
    let node = pair.receiver.node();
    let requests = || -> Result<()> {
        for at in meant.addresses() {
            pair.near.wait_ping(*at)?;
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let report = rr(&pair.near, &meant, *at, protocol, Duration::from_secs(1))?;
                ensure!(report.lost == 0, "{at}, {protocol:?}: {report:?}");
            }
        }
        Ok(())
    };
    node.sh(&format!(
        "bridge link set dev {} learning off flood on",
        meant.veth()
    ))?;
    node.sh("ip link set cni0 type bridge fdb_flush")?;
    requests()?;
    let flooded = pair.receiver.counted("to_pod", "other_receiver")?;
    ensure!(flooded > 0, "nothing was flooded");
    let veth = BTreeSet::from([u64::from(ifindex(node, meant.veth())?)]);
    ensure!(
        exits(&pair, &meant)?.is_subset(&veth),
        "{:?}",
        exits(&pair, &meant)?
    );
    fs::write(
        node.outside_path("/sys/class/net/cni0/queues/rx-0/rps_cpus"),
        "3",
    )?;
    pair.receiver.cli(&["flows", "flush"])?;
    let stale = || pair.receiver.counted("to_pod", "record_stale");
    let before = stale()?;
    requests()?;
    ensure!(stale()? > before, "no packet changed the CPU");
    ensure!(
        exits(&pair, &meant)?.is_subset(&veth),
        "{:?}",
        exits(&pair, &meant)?
    );
    Ok(())
}

/// A TCP segment in the middle of a connection, with something to know it by.
fn segment(talk: &Talk) -> Result<Packet> {
    Ok(Packet::tcp(talk.ends()?, 7, b"forged", |_| ()))
}

/// The same with numbers of which one is within half a gibibyte of the connection's: of others the
/// programs do not look at the frame, because the flow needs a refresh.
fn segments_near(talk: &Talk) -> Result<Vec<Packet>> {
    let ends = talk.ends()?;
    let at = |quarter: u32| {
        Packet::tcp(ends, 7, b"forged", |tcp| {
            tcp.sequence_number = quarter << 30;
        })
    };
    Ok((0..4).map(at).collect())
}

fn is_forged(frame: &[u8]) -> bool {
    frame.ends_with(b"forged")
}

/// A connection to this address of the far pod, of which packets are replayed.
fn replayed_talk(pair: &Pair, at: IpAddr) -> Result<Talk> {
    let mut talk = Talk::open(&pair.near, &pair.far, (at, 0).into(), None)?;
    pair.talk_until_replayed(&mut talk, 100)?;
    Ok(talk)
}

/// Another pod sends what could be of a flow that is replayed, and a rule that looks at the port of
/// the bridge forbids it.
#[test]
fn a_rule_on_a_pod_s_port_holds_for_its_forged_packets() -> Result<()> {
    let pair = fast_pair_of("fd-forged", Stack::Dual, &[])?;
    let thief = pair.net.a.add_pod("thief")?;
    pair.sender.wait_pod(&thief, true, true)?;
    let node = pair.sender.node();
    node.sh(
        "sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1",
    )?;
    let capture = Capture::start(&pair.far, "eth0", is_forged)?;
    for (at, own) in pair.far.addresses().iter().zip(thief.addresses()) {
        let mut talk = replayed_talk(&pair, *at)?;
        let forged = segment(&talk)?;
        let send = || inject(&thief, &forged);
        capture.clear();
        eventually(
            "a forged packet that nobody forbids",
            Duration::from_secs(5),
            || {
                send()?;
                ensure!(!capture.is_empty(), "none");
                Ok(())
            },
        )?;
        let tool = if at.is_ipv4() {
            "iptables-legacy"
        } else {
            "ip6tables-legacy"
        };
        node.sh(&format!(
            "{tool} -I FORWARD -m physdev --physdev-in {} ! -s {own} -j DROP",
            thief.veth()
        ))?;
        pair.sender.cli(&["flows", "flush"])?;
        capture.clear();
        for _ in 0..100 {
            send()?;
            talk.exchange(1)?;
        }
        throughout(
            "no forged packet arrives",
            Duration::from_millis(200),
            || {
                ensure!(capture.is_empty(), "{} to {at} did", capture.len());
                Ok(())
            },
        )?;
        pair.talk_until_replayed(&mut talk, 100)?;
    }
    Ok(())
}

/// A frame with another source address than the flow's is not the flow's: the bridge has it, and
/// learns from it.
#[test]
fn frames_from_a_forged_address_are_the_bridges() -> Result<()> {
    let pair = fast_pair_of("fd-mac", Stack::Dual, &[])?;
    let text = fs::read_to_string(
        pair.sender
            .node()
            .outside_path("/sys/class/net/cni0/address"),
    )?;
    let bridge: Mac = text.trim().parse().context(text)?;
    let counters = Counters::of(&pair.sender)?;
    let differs = || counters.packets(Program::FromPod, Reason::FrameDiffers);
    let capture = Capture::start(&pair.far, "eth0", is_forged)?;
    for at in pair.far.addresses() {
        let mut talk = replayed_talk(&pair, *at)?;
        let frame = |packet: &Packet| packet.framed(bridge.0, [0x02, 0, 0, 0, 0, 0x99]);
        let frames: Vec<_> = segments_near(&talk)?.iter().map(frame).collect();
        capture.clear();
        eventually("frames that differ", Duration::from_secs(5), || {
            talk.exchange(20)?;
            let before = differs()?;
            frames
                .iter()
                .try_for_each(|frame| inject_frame(&pair.near, "eth0", frame))?;
            ensure!(differs()? > before, "they were the flow's");
            Ok(())
        })?;
        eventually("the frame's packet", Duration::from_secs(5), || {
            (!capture.is_empty()).then_some(())
        })?;
        pair.talk_until_replayed(&mut talk, 100)?;
    }
    Ok(())
}
