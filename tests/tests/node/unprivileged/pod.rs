//! Attempts of a pod against its node and the others, all refused: each attempt is printed with its
//! answer.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::packet::addr::Mac;
use flannel_tests::{
    Agent, Host, Pod, TwoNodes,
    cluster::VXLAN,
    eventually,
    fast::{Family, FastLab},
    load::datagrams::Datagrams,
    packet::{Packet, vxlan, wire::inject_frame, with_priority_tags},
};

const NODE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 11);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 12);
/// A group that every host is in.
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const HEALTH: u16 = 8081;
const METRICS: u16 = 8082;
const TUNNEL: u16 = 8472;
/// The UDP port on which pods receive packets.
const EAR: u16 = 7000;
const FORGED: &[u8] = b"forged";
const GENUINE: &[u8] = b"genuine";
const TIMES: usize = 20;
const LIMIT: Duration = Duration::from_secs(5);
/// After this long without a packet behind the genuine one, what was forged does not come.
const QUIET: Duration = Duration::from_millis(300);

/// A tunnel packet's payload as a node would make it: from a pod to a pod, for the VTEP with this
/// MAC.
fn tunnelled(vtep: Mac, from: &Pod, to: &Pod) -> Vec<u8> {
    vxlan(
        &Packet::datagram((from.ip(), 1).into(), (to.ip(), EAR).into(), 1, FORGED)
            .framed(vtep.0, [2; 6]),
    )
}

/// Returns how many of the forged packets that a pod sends to `at` reach another pod, before and
/// shortly after a genuine one.
fn heard(from: &Pod, by: &Pod, at: SocketAddr, payload: &[u8]) -> Result<usize> {
    heard_after(from, by, || {
        from.enter(|| -> Result<()> {
            let mouth = UdpSocket::bind("0.0.0.0:0")?;
            for _ in 0..TIMES {
                mouth.send_to(payload, at)?;
            }
            Ok(())
        })?
    })
}

/// The same of whatever else sends forged packets.
fn heard_after(from: &Pod, by: &Pod, forge: impl FnOnce() -> Result<()>) -> Result<usize> {
    let ear = by.enter(|| UdpSocket::bind((by.ip4()?, EAR)).context("an ear"))??;
    let goal = ear.local_addr()?;
    forge()?;
    from.enter(|| -> Result<()> {
        UdpSocket::bind("0.0.0.0:0")?.send_to(GENUINE, goal)?;
        Ok(())
    })??;
    let (mut forged, mut message) = (0, [0; 64]);
    ear.set_read_timeout(Some(LIMIT))?;
    loop {
        match ear.recv(&mut message) {
            Ok(length) if &message[..length] == GENUINE => ear.set_read_timeout(Some(QUIET))?,
            Ok(_) => forged += 1,
            Err(error) if ear.read_timeout()? == Some(QUIET) => {
                ensure!(error.kind() == ErrorKind::WouldBlock, "{error}");
                return Ok(forged);
            }
            Err(error) => return Err(error).context("the genuine packet"),
        }
    }
}

type Frames = Vec<Vec<u8>>;

/// One tunnel packet of a pod to its node in each form in which the kernel takes it, as the frames
/// it is made of.
fn in_disguise(node: &Host, from: &Pod, payload: &[u8]) -> Result<Vec<(&'static str, Frames)>> {
    let link = node.sh("ip -brief link show dev cni0")?.stdout;
    let bridge: Mac = link
        .split_ascii_whitespace()
        .nth(2)
        .with_context(|| link.clone())?
        .parse()?;
    let frame = |packet: &Packet| packet.framed(bridge.0, [2, 0, 0, 0, 9, 9]);
    let plain = Packet::datagram((from.ip(), 4242).into(), (NODE, TUNNEL).into(), 7, payload);
    let with_options = Packet {
        has_options: true,
        ..plain.clone()
    };
    // The first fragment is as short as possible: it shows the port, but no byte of VXLAN.
    let fragments = plain.fragments(8).map(|fragment| frame(&fragment));
    let whole = frame(&plain);
    Ok(vec![
        ("behind a priority tag", vec![with_priority_tags(&whole, 1)]),
        (
            "behind two priority tags",
            vec![with_priority_tags(&whole, 2)],
        ),
        (
            "behind three priority tags",
            vec![with_priority_tags(&whole, 3)],
        ),
        ("behind IP options", vec![frame(&with_options)]),
        ("in fragments", fragments.into()),
        ("as it is", vec![whole]),
    ])
}

/// Returns the first line of the answer to a request, or the error of the connection attempt.
fn asked(pod: &Pod, at: SocketAddr, path: &str) -> Result<String> {
    pod.enter(|| -> Result<String> {
        let mut stream = match TcpStream::connect_timeout(&at, LIMIT) {
            Ok(stream) => stream,
            Err(error) => return Ok(error.kind().to_string()),
        };
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    })?
}

/// Returns the commands of docs/concepts/security.md that keep pods from the tunnel port of the
/// local node.
fn rules_of_the_page() -> Result<Vec<&'static str>> {
    let lines: Vec<_> = include_str!("../../../../docs/concepts/security.md")
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("nft add ") && line.contains("pods-tunnel"))
        .collect();
    ensure!(lines.len() == 3, "{lines:#?}");
    Ok(lines)
}

/// Sets the guards, and waits until the agents have seen to it.
fn set_guard(agents: &[&Agent], mode: &str) -> Result<()> {
    for agent in agents {
        agent.cli(&["guard", "set", mode])?;
        eventually("the guard", LIMIT, || {
            let shown = agent.cli(&["guard", "show"])?.stdout;
            ensure!(
                shown.starts_with(&format!("outer   {mode} (chosen at run time), 0")),
                "{shown}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

fn mac(agent: &Agent) -> Result<Mac> {
    let status = agent.status()?;
    Ok(status["device"]["mac"]
        .as_str()
        .with_context(|| status.to_string())?
        .parse()?)
}

/// Two nodes, and their pods: `near` tries things, next to a second pod of its node, with `far` on
/// the other.
struct Site {
    near: Pod,
    second: Pod,
    far: Pod,
    /// The address of the bridge of `near`.
    bridge: Ipv4Addr,
    agent: Agent,
    other: Agent,
    // Dropped last, as all others run in it.
    nodes: TwoNodes,
}

fn site() -> Result<Site> {
    let nodes = TwoNodes::new("hostile-pod", VXLAN)?;
    let ports = [
        format!("--healthz-port={HEALTH}"),
        format!("--metrics-port={METRICS}"),
    ];
    let listening = [&ports[..], &["--metrics-ip=0.0.0.0".to_owned()]].concat();
    let options = listening.iter().fold(
        nodes.options()?.flag("--healthz-ip=127.0.0.1"),
        |all, flag| all.flag(flag),
    );
    let (agent, other) = (nodes.a.agent(options)?, nodes.b.agent(nodes.options()?)?);
    for agent in [&agent, &other] {
        agent.wait_ready()?;
        agent.wait_peers(1)?;
    }
    let (near, second, far) = (
        nodes.a.add_pod("p1")?,
        nodes.a.add_pod("p2")?,
        nodes.b.add_pod("p1")?,
    );
    near.ping(far.ip())?;
    agent.wait_pod(&near, true, true)?;
    let bridge = Ipv4Addr::from(u32::from(near.ip4()?) & !0xff | 1);
    Ok(Site {
        near,
        second,
        far,
        bridge,
        agent,
        other,
        nodes,
    })
}

/// Health checks are only for the node, and the port of metrics has no other pages.
fn ask_for_pages(site: &Site) -> Result<()> {
    let Site { near, bridge, .. } = site;
    for address in [NODE, *bridge] {
        let answer = asked(near, (address, HEALTH).into(), "/healthz")?;
        println!("health checks at {address}: {answer}");
        ensure!(answer == "connection refused", "{answer}");
    }
    for path in ["/healthz", "/readyz", "/../etc/passwd", "/debug/pprof"] {
        let answer = asked(near, (NODE, METRICS).into(), path)?;
        println!("{path} at the port of metrics: {answer}");
        ensure!(
            answer.contains(" 404 ") || answer.contains(" 400 "),
            "{answer}"
        );
    }
    Ok(())
}

/// Sends tunnel packets from the first pod to an address, of which the second one has to get
/// exactly so many.
fn try_tunnel(
    what: &str,
    [from, by]: [&Pod; 2],
    address: Ipv4Addr,
    payload: &[u8],
    expected: usize,
) -> Result<()> {
    let at = SocketAddr::new(IpAddr::V4(address), TUNNEL);
    let forged = heard(from, by, at, payload)?;
    println!("tunnel packets to {address}, {what}: {forged} of {TIMES} heard");
    ensure!(
        forged == expected,
        "{what}: {forged} of {TIMES} packets to {address} heard, not {expected}"
    );
    Ok(())
}

impl Site {
    /// The addresses at which the node of `near` takes tunnel packets.
    fn own(&self) -> [Ipv4Addr; 3] {
        [NODE, self.bridge, ALL_HOSTS]
    }

    /// Tunnel packets to each of these, for the second pod.
    fn try_own(&self, what: &str, payload: &[u8], expected: usize) -> Result<()> {
        let pods = [&self.near, &self.second];
        for address in self.own() {
            try_tunnel(what, pods, address, payload, expected)?;
        }
        Ok(())
    }

    /// A tunnel packet to the own node in each of its disguises.
    fn try_disguises(&self, payload: &[u8]) -> Result<()> {
        let Self { near, second, .. } = self;
        for (how, frames) in in_disguise(&self.nodes.a, near, payload)? {
            for (guard, expected) in [("off", 1), ("enforce", 0)] {
                set_guard(&[&self.agent], guard)?;
                let send = || {
                    frames
                        .iter()
                        .try_for_each(|frame| inject_frame(near, "eth0", frame))
                };
                let forged = heard_after(near, second, send)?;
                println!("a tunnel packet {how}, guard {guard}: {forged} of 1 heard");
                ensure!(
                    forged == expected,
                    "{how}, guard {guard}: {forged} heard, not {expected}"
                );
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_pod_tries_against_a_node_is_refused() -> Result<()> {
    let site = site()?;
    ask_for_pages(&site)?;

    // As the other node would send to a second pod of this node, and as this node would send to a
    // pod of the other.
    let (agent, far) = (&site.agent, &site.far);
    let [ours, theirs] = [mac(agent)?, mac(&site.other)?];
    let to_us = tunnelled(ours, far, &site.second);
    let to_them = tunnelled(theirs, &site.near, far);
    for (guard, expected) in [("off", TIMES), ("enforce", 0)] {
        set_guard(&[agent, &site.other], guard)?;
        let pods = [&site.near, far];
        try_tunnel(&format!("guard {guard}"), pods, OTHER, &to_them, expected)?;
    }
    for (guard, expected) in [("off", TIMES), ("enforce", 0)] {
        set_guard(&[agent], guard)?;
        site.try_own(&format!("mode fast, guard {guard}"), &to_us, expected)?;
    }
    site.try_disguises(&to_us)?;
    // Without mode fast no program sees what pods send. The rule of docs/concepts/security.md does,
    // whatever the guard says.
    set_guard(&[agent], "off")?;
    for line in rules_of_the_page()? {
        site.nodes.a.run(line.split(' '))?;
    }
    site.try_own("with the rule of security.md", &to_us, 0)?;
    site.near.ping(far.ip())?;
    eventually("the count of what was refused", LIMIT, || {
        for (program, most) in [
            ("to_underlay", TIMES),
            ("from_pod", site.own().len() * TIMES),
        ] {
            let refused = agent.counted(program, "refused_pod_tunnel")?;
            ensure!(refused >= most as u64, "{program}: {refused} of {most}");
        }
        Ok(())
    })
}

/// A program at the external interface recognises the packets that the programs redirect to it. A
/// pod's packet behind them is none of these, even if the kernel keeps it at the same place of its
/// memory.
#[test]
fn a_forged_packet_behind_a_replayed_one_is_refused() -> Result<()> {
    const ROUNDS: u64 = 200;
    let lab = FastLab::new("hostile-flow", &[])?;
    let [agent, other] = &lab.agents;
    set_guard(&[agent], "enforce")?;
    let mut talk = Datagrams::open(&lab.near, &lab.far, Family::V4.end(&lab.far)?, None)?;
    lab.until_replayed(|messages| talk.exchange(messages))?;
    let forged = tunnelled(mac(other)?, &lab.near, &lab.far);
    let mouth = lab.near.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    let refused = || agent.counted("to_underlay", "refused_pod_tunnel");
    let (refused_before, replayed_before) = (refused()?, lab.replayed()?[0]);
    for _ in 0..ROUNDS {
        talk.client.send(GENUINE)?;
        // Frees the memory of the packet, which the next one gets.
        talk.server.recv(&mut [0; 64])?;
        mouth.send_to(&forged, (OTHER, TUNNEL))?;
    }
    eventually("the count of what was refused", LIMIT, || {
        let refused = refused()? - refused_before;
        ensure!(
            refused == ROUNDS,
            "{refused} of {ROUNDS} forged packets were refused"
        );
        Ok(())
    })?;
    let replayed = lab.replayed()?[0] - replayed_before;
    ensure!(
        replayed >= ROUNDS / 2,
        "the flow was not replayed: {replayed} packets"
    );
    Ok(())
}
