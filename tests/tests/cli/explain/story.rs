//! The report of `explain`, in each mode and with each part of a packet's path broken, compared
//! with what happens to real packets.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, Pod, TwoNodes,
    cluster::{self, topology::Stack},
    eventually,
    fast::fast_pair_of,
};
use serde_json::Value;

/// The addresses and names of one family in the labs.
struct Names {
    stack: Stack,
    /// Ends the names of labs.
    digit: &'static str,
    /// Addresses of the sending node, of its neighbour, of the node behind the router, and of the
    /// router.
    own: &'static str,
    neighbour: &'static str,
    far: &'static str,
    router: &'static str,
    /// Addresses outside the cluster, in a subnet without a lease, and of the other family.
    outside: &'static str,
    unleased: &'static str,
    other: &'static str,
    /// The tunnel device.
    device: &'static str,
    /// The sysctl that has to be 1 for a host to forward.
    forwarding: &'static str,
}

const V4: Names = Names {
    stack: Stack::V4,
    digit: "",
    own: "192.168.1.11",
    neighbour: "192.168.1.12",
    far: "192.168.2.13",
    router: "192.168.1.1",
    outside: "198.51.100.1",
    unleased: "10.244.255.9",
    other: "fd00::1",
    device: "flannel.1",
    forwarding: "net.ipv4.ip_forward",
};

const V6: Names = Names {
    stack: Stack::V6,
    digit: "6",
    own: "2001:db8:1::11",
    neighbour: "2001:db8:1::12",
    far: "2001:db8:2::13",
    router: "fe80::1",
    outside: "2001:db8:99::1",
    unleased: "fd00:10:244:ffff::9",
    other: "10.244.0.1",
    device: "flannel-v6.1",
    forwarding: "net.ipv6.conf.all.forwarding",
};

/// Over IPv4, and over IPv6.
fn over_each_family(test: impl Fn(&Names) -> Result<()>) -> Result<()> {
    [&V4, &V6]
        .into_iter()
        .try_for_each(|names| test(names).with_context(|| format!("{:?}", names.stack)))
}

/// The story of a packet, and the exit status.
fn explained(agent: &Agent, source: IpAddr, destination: IpAddr) -> Result<(Value, i32)> {
    let ends = [source.to_string(), destination.to_string()];
    let output = agent.cli_any(&["explain", &ends[0], &ends[1], "--proto=udp", "-o", "json"])?;
    let story =
        serde_json::from_str(&output.stdout).with_context(|| format!("{ends:?}: {output:?}"))?;
    Ok((story, output.code))
}

/// The packet arrives, by this way.
fn reaches(agent: &Agent, source: IpAddr, destination: IpAddr, way: &str) -> Result<Value> {
    let (story, code) = explained(agent, source, destination)?;
    ensure!(
        code == 0 && story["verdict"]["reaches"] == true && story["verdict"]["way"] == way,
        "{way}: {story:#}"
    );
    Ok(story)
}

/// The packet does not arrive, because of the first step of this topic, which says this.
fn breaks(
    agent: &Agent,
    source: IpAddr,
    destination: IpAddr,
    topic: &str,
    text: &str,
) -> Result<()> {
    let (story, code) = explained(agent, source, destination)?;
    let steps = story["steps"].as_array().context("no steps")?;
    let step = steps
        .iter()
        .find(|step| step["state"] == "fail")
        .with_context(|| format!("{story:#}"))?;
    let said = step["text"].as_str().unwrap_or_default();
    ensure!(
        code == 1 && story["verdict"]["reaches"] == false,
        "{code}: {story:#}"
    );
    ensure!(
        step["topic"] == topic && said.contains(text),
        "{topic}, {text:?}: {story:#}"
    );
    Ok(())
}

fn answers(pod: &Pod, to: IpAddr) -> Result<bool> {
    Ok(pod
        .command(["ping", "-n", "-c", "1", "-W", "1", &to.to_string()])
        .any_code()
        .run()?
        .code
        == 0)
}

/// Counters of the programs' work, and the packets of known flows.
fn traces(agent: &Agent) -> Result<String> {
    let count = |program, reason| agent.counted(program, reason);
    let flows = agent.cli_json(&["maps", "dump", "flows", "-o", "json"])?;
    let rows = flows["flows"].as_array().context("flows")?;
    let packets: Vec<_> = rows
        .iter()
        .map(|row| (row["source"].to_string(), row["packets"].to_string()))
        .collect();
    let pins = agent.node().sh("find /sys/fs/bpf/flannel")?.stdout;
    let replayed = [
        count("from_pod", "replayed")?,
        count("from_pod", "refreshing")?,
        count("from_underlay", "replayed")?,
    ];
    Ok(format!(
        "{replayed:?} {} {packets:?}\n{pins}",
        count("to_tunnel", "encapsulated")?
    ))
}

#[test]
fn each_mode_is_explained_as_packets_fare_in_it() -> Result<()> {
    over_each_family(every_mode)
}

fn every_mode(names: &Names) -> Result<()> {
    let pair = fast_pair_of(&format!("ex-modes{}", names.digit), names.stack, &[])?;
    let (near, far) = (pair.near.ip(), pair.far.ip());
    // The question takes its time, and a flow without packets is forgotten.
    let flow = || pair.stream(100, Duration::from_mins(2));
    let stream = flow()?;
    // One packet in two seconds is the kernel's, and the question may come just then.
    for (agent, program) in [
        (&pair.sender, "from_pod"),
        (&pair.receiver, "from_underlay"),
    ] {
        eventually("a story of mode fast", Duration::from_secs(40), || {
            let story = reaches(agent, near, far, "fast")?;
            let last = story["programs"]
                .as_array()
                .and_then(|all| all.last())
                .cloned()
                .unwrap_or_default();
            ensure!(
                last["program"] == program && last["reasons"] == serde_json::json!(["replayed"]),
                "{story:#}"
            );
            Ok(())
        })?;
    }
    stream.stop()?;

    let before = traces(&pair.sender)?;
    explained(&pair.sender, near, far)?;
    explained(&pair.sender, far, near)?;
    assert_eq!(
        traces(&pair.sender)?,
        before,
        "an explanation leaves no trace"
    );

    pair.set_mode("encap")?;
    let stream = flow()?;
    eventually("a story of mode encap", Duration::from_secs(40), || {
        let before = pair.encapsulated()?;
        let story = reaches(&pair.sender, near, far, "encap")?;
        ensure!(
            pair.encapsulated()? > before,
            "packets disagree with {story:#}"
        );
        Ok(())
    })?;
    stream.stop()?;

    pair.set_mode("kernel")?;
    let before = pair.encapsulated()?;
    pair.near.ping(far)?;
    reaches(&pair.sender, near, far, "kernel")?;
    reaches(&pair.receiver, near, far, "kernel")?;
    assert_eq!(pair.encapsulated()?, before);
    Ok(())
}

#[test]
fn every_end_is_known_and_every_broken_part_is_named() -> Result<()> {
    over_each_family(every_part)
}

/// A command that breaks a part of the path, the one that repairs it, and the topic and text of the
/// step that names the part.
type Damage = (String, String, &'static str, String);

/// The damages on the way to `far`, a pod of the peer with this VTEP and this gateway.
fn damages(names: &Names, far: IpAddr, mac: &str, gateway: &str) -> [Damage; 6] {
    let Names {
        far: peer,
        device,
        router,
        forwarding,
        ..
    } = names;
    [
        (
            format!("bridge fdb del {mac} dev {device} dst {peer}"),
            format!("bridge fdb add {mac} dev {device} dst {peer}"),
            "fdb",
            "there is no entry for".to_owned(),
        ),
        (
            format!(
                "ip neigh replace {gateway} lladdr 02:00:00:00:00:77 nud permanent dev {device}"
            ),
            format!("ip neigh replace {gateway} lladdr {mac} nud permanent dev {device}"),
            "neighbour",
            "the peer's VTEP is".to_owned(),
        ),
        (
            format!("ip route add blackhole {far}"),
            format!("ip route del blackhole {far}"),
            "route",
            String::new(),
        ),
        (
            format!("ip route add {far} via {router} dev eth0"),
            format!("ip route del {far} via {router} dev eth0"),
            "route",
            format!("not by {device}"),
        ),
        (
            format!("sysctl -qw {forwarding}=0"),
            format!("sysctl -qw {forwarding}=1"),
            "route",
            (*forwarding).to_owned(),
        ),
        (
            format!("ip link set {device} down"),
            "true".to_owned(),
            "route",
            String::new(),
        ),
    ]
}

fn every_part(names: &Names) -> Result<()> {
    let pair = Pair::with(&format!("ex-broken{}", names.digit), names.stack, &[])?;
    let (node, near, far) = (pair.sender.node(), pair.near.ip(), pair.far.ip());
    let second = node.add_pod("p2")?;
    second.wait_ping(near)?;
    places(&pair, &second, names)?;
    pair.set_mode("kernel")?;
    // A running agent would repair the damage.
    pair.sender.kill9()?;
    reaches(&pair.sender, near, far, "kernel")?;
    let entry = pair.sender.peer_entry(names.far)?;
    let (mac, subnet) = (
        entry["vtep_mac"].as_str().context("a MAC")?,
        entry["subnet"].as_str().context("a subnet")?,
    );
    let gateway = subnet.split('/').next().context("a gateway")?;
    for (damage, repair, topic, text) in damages(names, far, mac, gateway) {
        node.sh(&damage)?;
        breaks(&pair.sender, near, far, topic, &text).context(damage.clone())?;
        ensure!(
            !answers(&pair.near, far)?,
            "packets pass in spite of: {damage}"
        );
        node.sh(&repair)?;
        if repair != "true" {
            reaches(&pair.sender, near, far, "kernel").context(repair)?;
            pair.near.wait_ping(far)?;
        }
    }
    Ok(())
}

/// Ends of every kind, and questions that are none.
fn places(pair: &Pair, second: &Pod, names: &Names) -> Result<()> {
    let (agent, near) = (&pair.sender, pair.near.ip());
    let address = |text: &str| text.parse::<IpAddr>().context("an address");
    reaches(agent, near, second.ip(), "local")?;
    reaches(agent, near, address(names.own)?, "local")?;
    reaches(agent, near, address(names.outside)?, "outside")?;
    let story = reaches(&pair.receiver, near, pair.far.ip(), "kernel")?;
    ensure!(
        story["programs"][0]["reasons"] == serde_json::json!(["tunnel_good"]),
        "{story:#}"
    );
    let unleased = address(names.unleased)?;
    breaks(
        agent,
        near,
        unleased,
        "destination",
        "no node is known to have that subnet",
    )?;
    ensure!(!answers(&pair.near, unleased)?);
    let near = near.to_string();
    let gone = address(&format!(
        "{}99",
        near.trim_end_matches(|digit: char| digit.is_ascii_hexdigit())
    ))?;
    breaks(agent, gone, pair.far.ip(), "source", "no pod here has it")?;
    let mixed = agent.cli_any(&["explain", &near, names.other])?;
    ensure!(
        mixed.code == 64 && mixed.stderr.contains("of different families"),
        "{mixed:?}"
    );
    Ok(())
}

/// A peer on our own segment, by a plain route, both ways; with the route broken, not.
#[test]
fn a_direct_peer_is_explained_without_a_tunnel() -> Result<()> {
    over_each_family(direct_peer)
}

fn direct_peer(names: &Names) -> Result<()> {
    let config = cluster::config(names.stack, r#"{"Type":"vxlan","DirectRouting":true}"#);
    let pair = TwoNodes::with(&format!("ex-direct{}", names.digit), names.stack, &config)?;
    let [a, b] = pair.agents()?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    reaches(&a, near.ip(), far.ip(), "direct")?;
    reaches(&b, near.ip(), far.ip(), "direct")?;
    a.kill9()?;
    let subnet = a.peer_entry(names.neighbour)?["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();
    pair.a.sh(&format!("ip route del {subnet}"))?;
    breaks(&a, near.ip(), far.ip(), "route", "")?;
    ensure!(!answers(&near, far.ip())?);
    Ok(())
}
