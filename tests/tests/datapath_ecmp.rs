//! Routes with several next hops, over two cables to two routers: each flow takes the leg the kernel would give it, and what the host does
//! on one leg concerns that leg.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair, eventually,
    load::{UdpReport, datagrams::Datagrams},
    packet::{is_encapsulated_by_us, total_length},
    throughout,
    topology::{LeafSpine, Stack},
    wire::Capture,
};
use serde_json::Value;

/// The public address of the receiving node.
const C: &str = "10.255.0.13";
/// Offsets in a tunnel frame: its UDP header, and the IP and UDP headers inside.
const UDP: usize = 34;
const INNER_IP: usize = 64;
const INNER_UDP: usize = 84;

/// Tunnel frames as they come to both routers from the sending node.
struct Legs([Capture; 2]);

/// What was seen of one flow.
#[derive(Debug, Default)]
struct Seen {
    legs: BTreeSet<usize>,
    source_ports: BTreeSet<u16>,
    by_us: usize,
}

impl Seen {
    /// The one leg it takes.
    fn leg(&self) -> Result<usize> {
        ensure!(self.legs.len() == 1 && self.source_ports.len() == 1, "{self:?}");
        self.legs.first().copied().context("no leg")
    }
}

fn port_at(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

impl Legs {
    fn of(pair: &Pair<LeafSpine>) -> Result<Self> {
        Ok(Self([Capture::tunnel(&pair.net.r1, "eth-a")?, Capture::tunnel(&pair.net.r2, "eth-a")?]))
    }

    fn clear(&self) {
        self.0.iter().for_each(Capture::clear);
    }

    /// Frames with UDP packets inside, by the source port inside.
    fn flows(&self) -> BTreeMap<u16, Seen> {
        let mut flows = BTreeMap::<u16, Seen>::new();
        for (leg, capture) in self.0.iter().enumerate() {
            for frame in
                capture.frames().iter().filter(|frame| frame.len() > INNER_UDP + 8 && frame[INNER_IP + 9] == 17)
            {
                let flow = flows.entry(port_at(frame, INNER_UDP)).or_default();
                flow.legs.insert(leg);
                flow.source_ports.insert(port_at(frame, UDP));
                flow.by_us += usize::from(is_encapsulated_by_us(frame));
            }
        }
        flows
    }
}

/// So many flows from pod to pod.
fn flows(pair: &Pair<LeafSpine>, count: usize) -> Result<Vec<Datagrams>> {
    let at = SocketAddr::new(pair.far.ip(), 0);
    (0..count).map(|_| Datagrams::open(&pair.near, &pair.far, at, None)).collect()
}

fn exchange(flows: &mut [Datagrams], messages: u32) -> Result<()> {
    flows.iter_mut().try_for_each(|flow| flow.exchange(messages))
}

fn port(flow: &Datagrams) -> Result<u16> {
    Ok(flow.client.local_addr()?.port())
}

/// The leg of every flow, each of which is seen to be sent by the programs too.
fn legs_of(legs: &Legs, flows: &mut [Datagrams]) -> Result<BTreeMap<u16, usize>> {
    legs.clear();
    let wanted: BTreeSet<u16> = flows.iter().map(port).collect::<Result<_>>()?;
    let seen = eventually("packets of every flow by the programs", Duration::from_secs(10), || {
        exchange(flows, 4)?;
        let seen = legs.flows();
        let ready = seen.iter().filter(|(_, seen)| seen.by_us > 0).map(|(port, _)| *port).collect::<BTreeSet<_>>();
        ensure!(ready == wanted, "{seen:?}");
        Ok(seen)
    })?;
    seen.iter().map(|(port, seen)| Ok((*port, seen.leg()?))).collect()
}

/// The leg by which the kernel's own packets of a tunnel flow leave.
fn kernels_choice(pair: &Pair<LeafSpine>, source_port: u16) -> Result<usize> {
    let line = format!("ip route get {C} from 10.255.0.11 ipproto udp sport {source_port} dport 8472");
    let text = pair.net.a.sh(&line)?.stdout;
    ["dev eth0 ", "dev eth1 "].iter().position(|device| text.contains(device)).with_context(|| text.clone())
}

fn wait_legs(pair: &Pair<LeafSpine>, count: usize) -> Result<Value> {
    eventually(&format!("{count} legs"), Duration::from_secs(10), || {
        let entry = pair.sender.peer_entry(C)?;
        let legs = entry["legs"].as_array().map_or(0, Vec::len);
        ensure!(legs == count, "{entry}");
        Ok(entry)
    })
}

#[test]
fn each_flow_takes_the_leg_the_kernel_would_give_it() -> Result<()> {
    let pair = Pair::with_two_cables("ecmp", Stack::V4)?;
    let entry = wait_legs(&pair, 2)?;
    assert_eq!((&entry["oif"], &entry["next_hop"]), (&Value::from(0), &Value::from("-")));
    let peer = pair.sender.peer_status(C)?;
    let why = peer["reason"].as_str().unwrap_or_default();
    assert!(peer["way"] == "tunnel" && why.contains("eth0, eth1"), "{peer}");
    let legs = Legs::of(&pair)?;
    let mut flows = flows(&pair, 16)?;
    let of_programs = legs_of(&legs, &mut flows)?;
    assert_eq!(of_programs.values().copied().collect::<BTreeSet<_>>(), [0, 1].into(), "spread over both");
    for (flow, seen) in legs.flows() {
        let source_port = seen.source_ports.first().copied().context("a port")?;
        assert_eq!(seen.leg()?, kernels_choice(&pair, source_port)?, "flow {flow}: {seen:?}");
    }
    // The tunnel device takes the route it remembers, but for packets with a mark.
    pair.set_mode("kernel")?;
    pair.net.a.sh("iptables -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 0x1")?;
    legs.clear();
    exchange(&mut flows, 2)?;
    // The capture reads what has passed a moment later.
    let seen = eventually("packets of every flow", Duration::from_secs(10), || {
        let seen = legs.flows();
        ensure!(seen.keys().eq(of_programs.keys()), "{seen:?}");
        Ok(seen)
    })?;
    let of_kernel: BTreeMap<u16, usize> =
        seen.iter().map(|(port, seen)| Ok((*port, seen.leg()?))).collect::<Result<_>>()?;
    assert!(seen.values().all(|seen| seen.by_us == 0), "{seen:?}");
    assert_eq!(of_kernel, of_programs);
    Ok(())
}

#[test]
fn known_flows_of_mode_fast_keep_to_their_legs() -> Result<()> {
    let pair = Pair::with_two_cables("ecmpfast", Stack::V4)?;
    let legs = Legs::of(&pair)?;
    let mut flows = flows(&pair, 8)?;
    let in_encap = legs_of(&legs, &mut flows)?;
    pair.set_mode("fast")?;
    let before = pair.sender.counted("from_pod", "replayed")?;
    legs.clear();
    eventually("replayed packets", Duration::from_secs(20), || {
        exchange(&mut flows, 20)?;
        let now = pair.sender.counted("from_pod", "replayed")? - before;
        ensure!(now >= 500, "{now}");
        Ok(())
    })?;
    let seen = legs.flows();
    let in_fast: BTreeMap<u16, usize> =
        seen.iter().map(|(port, seen)| Ok((*port, seen.leg()?))).collect::<Result<_>>()?;
    assert_eq!(in_fast, in_encap);
    Ok(())
}

/// A flow for each leg.
fn one_for_each(legs: &Legs, flows: Vec<Datagrams>) -> Result<[Datagrams; 2]> {
    let mut flows = flows;
    let of = legs_of(legs, &mut flows)?;
    let mut by_leg: [Vec<Datagrams>; 2] = [Vec::new(), Vec::new()];
    for flow in flows {
        by_leg[of[&port(&flow)?]].push(flow);
    }
    let [first, second] = by_leg.map(|mut flows| flows.pop());
    Ok([first.context("a flow by eth0")?, second.context("a flow by eth1")?])
}

#[test]
fn a_rule_for_one_leg_is_that_legs_alone() -> Result<()> {
    let pair = Pair::with_two_cables("ecmpdrop", Stack::V4)?;
    let legs = Legs::of(&pair)?;
    let [mut free, mut stopped] = one_for_each(&legs, flows(&pair, 12)?)?;
    let rule = "OUTPUT -o eth1 -p udp --dport 8472 -j DROP";
    pair.net.a.sh(&format!("iptables -A {rule}"))?;
    eventually("silence by eth1", Duration::from_secs(5), || {
        free.exchange(1)?;
        ensure!(stopped.exchange(1).is_err(), "still there");
        Ok(())
    })?;
    legs.clear();
    throughout("silence by eth1, and none by eth0", Duration::from_secs(3), || {
        free.exchange(20)?;
        ensure!(stopped.exchange(1).is_err(), "a packet passed");
        Ok(())
    })?;
    let seen = legs.flows();
    assert!(!seen.contains_key(&port(&stopped)?), "{seen:?}");
    assert!(seen.get(&port(&free)?).is_some_and(|seen| seen.by_us > 0), "the other leg goes on: {seen:?}");
    pair.net.a.sh(&format!("iptables -D {rule}"))?;
    legs.clear();
    eventually("both legs", Duration::from_secs(5), || {
        stopped.exchange(5)?;
        let seen = legs.flows();
        let by_us = seen.get(&port(&stopped)?).map_or(0, |seen| seen.by_us);
        ensure!(by_us > 0, "{seen:?}");
        Ok(())
    })
}

/// What a router forwarded so far.
fn forwarded(pair: &Pair<LeafSpine>) -> Result<[u64; 2]> {
    Ok([pair.net.r1.counter("Ip", "ForwDatagrams")?, pair.net.r2.counter("Ip", "ForwDatagrams")?])
}

/// Waits for so many packets by a router.
fn wait_forwarded(pair: &Pair<LeafSpine>, leg: usize, packets: u64) -> Result<()> {
    let before = forwarded(pair)?[leg];
    eventually(&format!("packets by leg {leg}"), Duration::from_secs(10), || {
        let now = forwarded(pair)?[leg] - before;
        ensure!(now >= packets, "{now}");
        Ok(())
    })
}

/// The leg of a stream is withdrawn, comes back, and goes down.
fn lost_leg(mode: &str) -> Result<UdpReport> {
    let pair = Pair::with_two_cables(&format!("ecmplost-{mode}"), Stack::V4)?;
    pair.set_mode(mode)?;
    let run = pair.stream(2_000, Duration::from_mins(1))?;
    pair.wait_received(2_000)?;
    let before = forwarded(&pair)?;
    pair.wait_received(2_000)?;
    let now = forwarded(&pair)?;
    let leg = usize::from(now[1] - before[1] > now[0] - before[0]);
    pair.net.lead(&pair.net.a, &[1 - leg])?;
    wait_forwarded(&pair, 1 - leg, 2_000)?;
    if mode == "encap" {
        wait_legs(&pair, 0)?;
        assert_eq!(pair.sender.peer_status(C)?["way"], "tunnel");
        pair.wait_encapsulated(1_000)?;
    }
    pair.net.lead(&pair.net.a, &[0, 1])?;
    wait_forwarded(&pair, leg, 2_000)?;
    pair.net.a.sh(&format!("ip link set eth{leg} down"))?;
    wait_forwarded(&pair, 1 - leg, 2_000)?;
    if mode == "encap" {
        wait_legs(&pair, 1)?;
        pair.wait_encapsulated(1_000)?;
    }
    run.stop()
}

#[test]
fn a_leg_that_goes_away_under_load_hands_its_flows_over_as_in_mode_kernel() -> Result<()> {
    let (kernel, encap) = (lost_leg("kernel")?, lost_leg("encap")?);
    println!("lost: kernel {}, encap {}", kernel.lost_count(), encap.lost_count());
    assert!(encap.lost_count() <= kernel.lost_count(), "encap {encap:?}\nkernel {kernel:?}");
    assert_eq!((encap.duplicated, encap.receiver_drops), (0, 0), "{encap:?}");
    Ok(())
}

#[test]
fn each_leg_has_the_mtu_of_its_device() -> Result<()> {
    let pair = Pair::with_two_cables("ecmpmtu", Stack::V4)?;
    pair.net.a.sh("ip link set eth1 mtu 1300")?;
    eventually("the MTU of each leg", Duration::from_secs(10), || {
        let entry = pair.sender.peer_entry(C)?;
        let mtus: Vec<_> = entry["legs"].as_array().into_iter().flatten().map(|leg| leg["mtu"].clone()).collect();
        ensure!(mtus == [1500, 1300] && entry["mtu"] == 1300, "{entry}");
        Ok(())
    })?;
    let legs = Legs::of(&pair)?;
    let [whole, cut] = one_for_each(&legs, flows(&pair, 12)?)?;
    let largest_of_ours = |leg: usize| {
        let frames = legs.0[leg].frames();
        let ours = frames.iter().filter(|frame| is_encapsulated_by_us(frame));
        ours.map(|frame| total_length(&frame[14..])).max().unwrap_or_default()
    };
    legs.clear();
    eventually("large packets by the programs, where they fit", Duration::from_secs(10), || {
        for flow in [&whole, &cut] {
            flow.client.send(&[0; 1350])?;
            ensure!(flow.server.recv(&mut [0; 2048])? == 1350);
        }
        ensure!(largest_of_ours(0) == 1350 + 28 + 50, "{}", largest_of_ours(0));
        Ok(())
    })?;
    for _ in 0..20 {
        cut.client.send(&[0; 1350])?;
        assert_eq!(cut.server.recv(&mut [0; 2048])?, 1350);
    }
    assert!(largest_of_ours(1) <= 1300, "{}", largest_of_ours(1));
    Ok(())
}
