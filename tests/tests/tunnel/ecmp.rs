//! Routes with several next hops, over two cables to two routers: each flow takes the ECMP path the
//! kernel would give it, and what the host does on one ECMP path concerns that ECMP path.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::Deref,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair,
    cluster::topology::{LeafSpine, Stack},
    eventually,
    fast::Family,
    load::{UdpReport, datagrams::Datagrams},
    packet::{
        frame::{self, Tunnel, is_encapsulated_by_us},
        wire::{Capture, Wanted},
    },
    throughout,
};
use serde_json::Value;

/// The packet layout of one family: a tunnel over it, and UDP packets of pods inside.
struct Shape {
    family: Family,
    /// The public addresses of the sending and of the receiving node.
    ends: [&'static str; 2],
    is_tunnel: Wanted,
    tunnel: Tunnel,
    /// Bytes of a datagram's own headers, and of those around it.
    headers: [usize; 2],
    /// A router's counter of packets it forwarded.
    forwarded: [&'static str; 2],
}

const V4: Shape = Shape {
    family: Family::V4,
    ends: ["10.255.0.11", "10.255.0.13"],
    is_tunnel: frame::is_tunnel,
    tunnel: frame::V4,
    headers: [28, 50],
    forwarded: ["Ip", "ForwDatagrams"],
};

const V6: Shape = Shape {
    family: Family::V6,
    ends: ["2001:db8:ff::11", "2001:db8:ff::13"],
    is_tunnel: frame::is_tunnel_v6,
    tunnel: frame::V6,
    headers: [48, 70],
    forwarded: ["Ip6", "OutForwDatagrams"],
};

/// The lab with one family.
struct Cables {
    pair: Pair<LeafSpine>,
    shape: &'static Shape,
}

impl Deref for Cables {
    type Target = Pair<LeafSpine>;

    fn deref(&self) -> &Self::Target {
        &self.pair
    }
}

impl Cables {
    fn new(name: &str, shape: &'static Shape) -> Result<Self> {
        let (digit, stack) = match shape.family {
            Family::V4 => ("", Stack::V4),
            Family::V6 => ("6", Stack::V6),
        };
        Ok(Self {
            pair: Pair::with_two_cables(&format!("{name}{digit}"), stack)?,
            shape,
        })
    }

    /// The public address of the receiving node.
    const fn peer(&self) -> &'static str {
        self.shape.ends[1]
    }
}

/// Over IPv4, and over IPv6.
fn over_each_family(name: &str, test: impl Fn(&Cables) -> Result<()>) -> Result<()> {
    [&V4, &V6].into_iter().try_for_each(|shape| {
        test(&Cables::new(name, shape)?).with_context(|| format!("{:?}", shape.family))
    })
}

/// Tunnel frames as they come to both routers from the sending node.
struct EcmpPaths {
    captures: [Capture; 2],
    shape: &'static Shape,
}

/// The frames captured of one flow: their ECMP paths, their outer source ports, and the number of
/// those that the programs encapsulated.
#[derive(Debug, Default)]
struct Seen {
    ecmp_paths: BTreeSet<usize>,
    source_ports: BTreeSet<u16>,
    by_us: usize,
}

impl Seen {
    /// The one ECMP path it takes.
    fn ecmp_path(&self) -> Result<usize> {
        ensure!(
            self.ecmp_paths.len() == 1 && self.source_ports.len() == 1,
            "{self:?}"
        );
        self.ecmp_paths.first().copied().context("no path")
    }
}

impl EcmpPaths {
    fn of(cables: &Cables) -> Result<Self> {
        let shape = cables.shape;
        let capture = |router| Capture::start(router, "eth-a", shape.is_tunnel);
        Ok(Self {
            captures: [capture(&cables.net.r1)?, capture(&cables.net.r2)?],
            shape,
        })
    }

    fn clear(&self) {
        self.captures.iter().for_each(Capture::clear);
    }

    /// Frames with UDP packets inside, by the source port inside.
    fn flows(&self) -> BTreeMap<u16, Seen> {
        let mut flows = BTreeMap::<u16, Seen>::new();
        for (ecmp_path, capture) in self.captures.iter().enumerate() {
            for frame in capture.frames() {
                let Some(inner) = frame::udp(&frame[self.shape.tunnel.inner - 14..]) else {
                    continue;
                };
                let flow = flows.entry(inner.source_port()).or_default();
                flow.ecmp_paths.insert(ecmp_path);
                flow.source_ports
                    .extend(frame::udp(&frame).map(|outer| outer.source_port()));
                flow.by_us += usize::from(is_encapsulated_by_us(&frame));
            }
        }
        flows
    }
    /// Packets of a flow that the programs sent.
    fn by_us(&self, flow: &Datagrams) -> Result<usize> {
        Ok(self.flows().get(&port(flow)?).map_or(0, |seen| seen.by_us))
    }
}

/// Opens `count` flows from pod to pod.
fn flows(cables: &Cables, count: usize) -> Result<Vec<Datagrams>> {
    let at = SocketAddr::new(cables.far.ip(), 0);
    (0..count)
        .map(|_| Datagrams::open(&cables.near, &cables.far, at, None))
        .collect()
}

fn exchange(flows: &mut [Datagrams], messages: u32) -> Result<()> {
    flows
        .iter_mut()
        .try_for_each(|flow| flow.exchange(messages))
}

fn port(flow: &Datagrams) -> Result<u16> {
    Ok(flow.client.local_addr()?.port())
}

/// The ECMP path of every flow, each of which is seen to be sent by the programs too.
fn ecmp_paths_of(ecmp_paths: &EcmpPaths, flows: &mut [Datagrams]) -> Result<BTreeMap<u16, usize>> {
    ecmp_paths.clear();
    let wanted: BTreeSet<u16> = flows.iter().map(port).collect::<Result<_>>()?;
    let seen = eventually(
        "packets of every flow by the programs",
        Duration::from_secs(10),
        || {
            exchange(flows, 4)?;
            let seen = ecmp_paths.flows();
            let ready = seen
                .iter()
                .filter(|(_, seen)| seen.by_us > 0)
                .map(|(port, _)| *port)
                .collect::<BTreeSet<_>>();
            ensure!(ready == wanted, "{seen:?}");
            Ok(seen)
        },
    )?;
    seen.iter()
        .map(|(port, seen)| Ok((*port, seen.ecmp_path()?)))
        .collect()
}

/// The ECMP path by which the kernel's own packets of a tunnel flow leave.
fn kernels_choice(cables: &Cables, source_port: u16) -> Result<usize> {
    let [from, to] = cables.shape.ends;
    let line = format!("ip route get {to} from {from} ipproto udp sport {source_port} dport 8472");
    let text = cables.net.a.sh(&line)?.stdout;
    ["dev eth0 ", "dev eth1 "]
        .iter()
        .position(|device| text.contains(device))
        .with_context(|| text.clone())
}

fn wait_ecmp_paths(cables: &Cables, count: usize) -> Result<Value> {
    eventually(
        &format!("{count} ecmp_paths"),
        Duration::from_secs(10),
        || {
            let entry = cables.sender.peer_entry(cables.peer())?;
            let ecmp_paths = entry["ecmp_paths"].as_array().map_or(0, Vec::len);
            ensure!(ecmp_paths == count, "{entry}");
            Ok(entry)
        },
    )
}

#[test]
fn each_flow_takes_the_path_the_kernel_would_give_it() -> Result<()> {
    over_each_family("ecmp", chosen_as_by_the_kernel)
}

fn chosen_as_by_the_kernel(cables: &Cables) -> Result<()> {
    let entry = wait_ecmp_paths(cables, 2)?;
    assert_eq!(
        (&entry["oif"], &entry["next_hop"]),
        (&Value::from(0), &Value::from("-"))
    );
    let peer = cables.sender.peer_status(cables.peer())?;
    let why = peer["reason"].as_str().unwrap_or_default();
    assert!(
        peer["way"] == "tunnel" && why.contains("eth0, eth1"),
        "{peer}"
    );
    let ecmp_paths = EcmpPaths::of(cables)?;
    let mut flows = flows(cables, 16)?;
    let of_programs = ecmp_paths_of(&ecmp_paths, &mut flows)?;
    assert_eq!(
        of_programs.values().copied().collect::<BTreeSet<_>>(),
        [0, 1].into(),
        "spread over both"
    );
    for (flow, seen) in ecmp_paths.flows() {
        let source_port = seen.source_ports.first().copied().context("a port")?;
        assert_eq!(
            seen.ecmp_path()?,
            kernels_choice(cables, source_port)?,
            "flow {flow}: {seen:?}"
        );
    }
    // The tunnel device takes the route it remembers, but for packets with a mark.
    cables.set_mode("kernel")?;
    let iptables = cables.shape.family.iptables();
    cables.net.a.sh(&format!(
        "{iptables} -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 0x1"
    ))?;
    ecmp_paths.clear();
    exchange(&mut flows, 2)?;
    // The capture reads what has passed a moment later.
    let seen = eventually("packets of every flow", Duration::from_secs(10), || {
        let seen = ecmp_paths.flows();
        ensure!(seen.keys().eq(of_programs.keys()), "{seen:?}");
        Ok(seen)
    })?;
    let of_kernel: BTreeMap<u16, usize> = seen
        .iter()
        .map(|(port, seen)| Ok((*port, seen.ecmp_path()?)))
        .collect::<Result<_>>()?;
    assert!(seen.values().all(|seen| seen.by_us == 0), "{seen:?}");
    assert_eq!(of_kernel, of_programs);
    Ok(())
}

#[test]
fn known_flows_of_mode_fast_keep_to_their_ecmp_paths() -> Result<()> {
    over_each_family("ecmpfast", known_flows_keep_to_their_ecmp_paths)
}

fn known_flows_keep_to_their_ecmp_paths(cables: &Cables) -> Result<()> {
    let ecmp_paths = EcmpPaths::of(cables)?;
    let mut flows = flows(cables, 8)?;
    let in_encap = ecmp_paths_of(&ecmp_paths, &mut flows)?;
    cables.set_mode("fast")?;
    let before = cables.sender.counted("from_pod", "replayed")?;
    ecmp_paths.clear();
    eventually("replayed packets", Duration::from_secs(20), || {
        exchange(&mut flows, 20)?;
        let now = cables.sender.counted("from_pod", "replayed")? - before;
        ensure!(now >= 500, "{now}");
        Ok(())
    })?;
    let seen = ecmp_paths.flows();
    let in_fast: BTreeMap<u16, usize> = seen
        .iter()
        .map(|(port, seen)| Ok((*port, seen.ecmp_path()?)))
        .collect::<Result<_>>()?;
    assert_eq!(in_fast, in_encap);
    Ok(())
}

/// A flow for each ECMP path.
fn one_for_each(ecmp_paths: &EcmpPaths, flows: Vec<Datagrams>) -> Result<[Datagrams; 2]> {
    let mut flows = flows;
    let of = ecmp_paths_of(ecmp_paths, &mut flows)?;
    let mut by_path: [Vec<Datagrams>; 2] = [Vec::new(), Vec::new()];
    for flow in flows {
        by_path[of[&port(&flow)?]].push(flow);
    }
    let [first, second] = by_path.map(|mut flows| flows.pop());
    Ok([
        first.context("a flow by eth0")?,
        second.context("a flow by eth1")?,
    ])
}

#[test]
fn a_rule_for_one_path_concerns_that_path_alone() -> Result<()> {
    over_each_family("ecmpdrop", a_rule_for_one_ecmp_path)
}

fn a_rule_for_one_ecmp_path(cables: &Cables) -> Result<()> {
    let ecmp_paths = EcmpPaths::of(cables)?;
    let [mut free, mut stopped] = one_for_each(&ecmp_paths, flows(cables, 12)?)?;
    let (iptables, rule) = (
        cables.shape.family.iptables(),
        "OUTPUT -o eth1 -p udp --dport 8472 -j DROP",
    );
    cables.net.a.sh(&format!("{iptables} -A {rule}"))?;
    eventually("silence by eth1", Duration::from_secs(5), || {
        free.exchange(1)?;
        ensure!(stopped.exchange(1).is_err(), "still there");
        Ok(())
    })?;
    ecmp_paths.clear();
    throughout(
        "silence by eth1, and none by eth0",
        Duration::from_secs(3),
        || {
            free.exchange(20)?;
            ensure!(stopped.exchange(1).is_err(), "a packet passed");
            Ok(())
        },
    )?;
    let seen = ecmp_paths.flows();
    assert!(!seen.contains_key(&port(&stopped)?), "{seen:?}");
    assert!(
        ecmp_paths.by_us(&free)? > 0,
        "the other ecmp_path goes on: {seen:?}"
    );
    cables.net.a.sh(&format!("{iptables} -D {rule}"))?;
    wait_by_us(&ecmp_paths, &mut stopped)
}

/// Waits until packets of a flow are the programs' again.
fn wait_by_us(ecmp_paths: &EcmpPaths, flow: &mut Datagrams) -> Result<()> {
    ecmp_paths.clear();
    eventually("packets by the programs", Duration::from_secs(5), || {
        flow.exchange(5)?;
        ensure!(ecmp_paths.by_us(flow)? > 0, "{:?}", ecmp_paths.flows());
        Ok(())
    })
}

/// A policy may be for one device. The way of its packets is the kernel's, which may know of
/// another ECMP path for them.
#[test]
fn an_ipsec_policy_for_one_path_concerns_that_path_alone() -> Result<()> {
    over_each_family("ecmpipsec", a_policy_for_one_ecmp_path)
}

fn a_policy_for_one_ecmp_path(cables: &Cables) -> Result<()> {
    let ecmp_paths = EcmpPaths::of(cables)?;
    let [mut free, mut covered] = one_for_each(&ecmp_paths, flows(cables, 12)?)?;
    let [from, to] = cables.shape.ends;
    let policy = format!("src {from} dst {to} proto udp dport 8472 dev eth1 dir out");
    cables
        .net
        .a
        .sh(&format!("ip xfrm policy add {policy} action block"))?;
    wait_ecmp_paths(cables, 1)?;
    assert_eq!(cables.sender.peer_status(cables.peer())?["way"], "tunnel");
    wait_by_us(&ecmp_paths, &mut free)?;
    ecmp_paths.clear();
    throughout("the programs by eth0 alone", Duration::from_secs(3), || {
        free.exchange(20)?;
        // The kernel decides if it arrives.
        let _ = covered.exchange(1);
        ensure!(ecmp_paths.by_us(&covered)? == 0, "{:?}", ecmp_paths.flows());
        Ok(())
    })?;
    assert!(
        ecmp_paths.by_us(&free)? > 0,
        "the other ecmp_path goes on: {:?}",
        ecmp_paths.flows()
    );
    cables
        .net
        .a
        .sh(&format!("ip xfrm policy delete {policy}"))?;
    wait_ecmp_paths(cables, 2)?;
    wait_by_us(&ecmp_paths, &mut covered)
}

/// Returns the number of packets that each of the two routers has forwarded so far.
fn forwarded(cables: &Cables) -> Result<[u64; 2]> {
    let [group, name] = cables.shape.forwarded;
    Ok([
        cables.net.r1.counter(group, name)?,
        cables.net.r2.counter(group, name)?,
    ])
}

/// Waits until a router has forwarded `packets` more packets.
fn wait_forwarded(cables: &Cables, ecmp_path: usize, packets: u64) -> Result<()> {
    let before = forwarded(cables)?[ecmp_path];
    eventually(
        &format!("packets by ecmp_path {ecmp_path}"),
        Duration::from_secs(10),
        || {
            let now = forwarded(cables)?[ecmp_path] - before;
            ensure!(now >= packets, "{now}");
            Ok(())
        },
    )
}

/// The ECMP path of a stream is withdrawn, comes back, and goes down. Returns the report, and the
/// number of packets that the device dropped while it went down.
///
/// The kernel closes a device before it withdraws its routes. What is sent in between is lost in
/// every mode, and the device counts it.
fn lost_ecmp_path(mode: &str, shape: &'static Shape) -> Result<(UdpReport, u64)> {
    let cables = &Cables::new(&format!("ecmplost-{mode}"), shape)?;
    cables.set_mode(mode)?;
    // A host that has to resolve a neighbour first may drop packets until then, in every mode.
    for ecmp_path in [0, 1] {
        cables.net.lead(&cables.net.a, &[ecmp_path])?;
        cables.near.ping(cables.far.ip())?;
    }
    cables.net.lead(&cables.net.a, &[0, 1])?;
    let run = cables.stream(2_000, Duration::from_mins(1))?;
    cables.wait_received(2_000)?;
    let before = forwarded(cables)?;
    cables.wait_received(2_000)?;
    let now = forwarded(cables)?;
    let ecmp_path = usize::from(now[1] - before[1] > now[0] - before[0]);
    cables.net.lead(&cables.net.a, &[1 - ecmp_path])?;
    wait_forwarded(cables, 1 - ecmp_path, 2_000)?;
    if mode == "encap" {
        wait_ecmp_paths(cables, 0)?;
        assert_eq!(cables.sender.peer_status(cables.peer())?["way"], "tunnel");
        cables.wait_encapsulated(1_000)?;
    }
    cables.net.lead(&cables.net.a, &[0, 1])?;
    wait_forwarded(cables, ecmp_path, 2_000)?;
    let device = format!("eth{ecmp_path}");
    let dropped = || cables.net.a.device_counter(&device, "tx_dropped");
    let before = dropped()?;
    cables.net.a.sh(&format!("ip link set {device} down"))?;
    let dropped = dropped()? - before;
    wait_forwarded(cables, 1 - ecmp_path, 2_000)?;
    if mode == "encap" {
        wait_ecmp_paths(cables, 1)?;
        cables.wait_encapsulated(1_000)?;
    }
    Ok((run.stop()?, dropped))
}

#[test]
fn a_path_that_goes_away_under_load_hands_its_flows_over_as_in_mode_kernel() -> Result<()> {
    for shape in [&V4, &V6] {
        for mode in ["kernel", "encap"] {
            let (report, dropped) = lost_ecmp_path(mode, shape)?;
            let lost = report.lost_count();
            println!(
                "{:?} {mode}: lost {lost}, {dropped} of them by the device that went down",
                shape.family
            );
            assert!(
                lost <= dropped,
                "{mode}: {dropped} dropped by the device, {report:?}"
            );
            assert_eq!(
                (report.duplicated, report.receiver_drops),
                (0, 0),
                "{mode}: {report:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn each_path_has_the_mtu_of_its_device() -> Result<()> {
    over_each_family("ecmpmtu", ecmp_paths_of_different_mtu)
}

fn ecmp_paths_of_different_mtu(cables: &Cables) -> Result<()> {
    // Not less: a packet of 1280 bytes, the least MTU of IPv6, has to fit into the tunnel.
    cables.net.a.sh("ip link set eth1 mtu 1400")?;
    eventually("the MTU of each ecmp_path", Duration::from_secs(10), || {
        let entry = cables.sender.peer_entry(cables.peer())?;
        let mtus: Vec<_> = entry["ecmp_paths"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|ecmp_path| ecmp_path["mtu"].clone())
            .collect();
        ensure!(mtus == [1500, 1400] && entry["mtu"] == 1400, "{entry}");
        Ok(())
    })?;
    let ecmp_paths = EcmpPaths::of(cables)?;
    let [whole, cut] = one_for_each(&ecmp_paths, flows(cables, 12)?)?;
    let largest_of_ours = |ecmp_path: usize| {
        let frames = ecmp_paths.captures[ecmp_path].frames();
        frames
            .iter()
            .filter(|frame| is_encapsulated_by_us(frame))
            .map(|frame| frame.len() - 14)
            .max()
            .unwrap_or_default()
    };
    let arrives = |flow: &Datagrams| {
        flow.client.send(&[0; 1350])?;
        ensure!(flow.server.recv(&mut [0; 2048])? == 1350);
        Ok(())
    };
    ecmp_paths.clear();
    // First the flow that fits: over IPv6 the kernel reports the smaller MTU to the pod, and from
    // then on the pod fragments the packets of both flows.
    let whole_size = 1350 + ecmp_paths.shape.headers.iter().sum::<usize>();
    eventually(
        "large packets by the programs, where they fit",
        Duration::from_secs(10),
        || {
            arrives(&whole)?;
            ensure!(largest_of_ours(0) == whole_size, "{}", largest_of_ours(0));
            Ok(())
        },
    )?;
    eventually(
        "large packets where they do not fit",
        Duration::from_secs(10),
        || arrives(&cut),
    )?;
    for _ in 0..20 {
        arrives(&cut)?;
    }
    assert!(largest_of_ours(1) <= 1400, "{}", largest_of_ours(1));
    Ok(())
}
