//! `flannel-agent monitor` next to real agents: it shows what the pods sent, and leaves nothing
//! behind.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair,
    agent::{monitor::Monitor, pins::monitor_lease},
    eventually,
    fast::fast_pair,
    not_run,
};
use serde_json::Value;

const PINGS: u64 = 20;

/// Echo requests from the near pod to the far one, with this payload: all of their packets are 42
/// bytes longer.
fn pings(pair: &Pair, payload: u64) -> Result<()> {
    pair.near
        .sh(&format!(
            "ping -n -c {PINGS} -i 0.02 -W 2 -s {payload} {}",
            pair.far.ip()
        ))
        .map(drop)
}

fn is_between(packet: &Value, source: IpAddr, destination: IpAddr) -> bool {
    packet["source"] == source.to_string() && packet["destination"] == destination.to_string()
}

/// Waits until a monitor has shown `count` packets of this length.
fn shown(
    monitor: &Monitor,
    program: &str,
    reasons: &[&str],
    length: u64,
    count: u64,
) -> Result<Vec<Value>> {
    eventually(
        &format!("{count} packets of {length} bytes at {program}"),
        Duration::from_secs(5),
        || {
            let mut packets = monitor.packets()?;
            packets.retain(|packet| {
                packet["program"] == program
                    && reasons.iter().any(|reason| packet["reason"] == *reason)
                    && packet["length"] == length
            });
            ensure!(
                packets.len() as u64 == count,
                "{}: {:#?}",
                packets.len(),
                monitor.packets()?
            );
            Ok(packets)
        },
    )
}

/// Every echo request and every reply, each where it was seen, with the counters' own names.
fn shows_pings(pair: &Pair) -> Result<()> {
    pair.wait_encapsulated_while_pinging()?;
    let before = pair.encapsulated()?;
    let monitor = pair.sender.monitor(&["-o", "json"])?;
    pings(pair, 500)?;
    let (near, far) = (pair.near.ip(), pair.far.ip());
    let requests = shown(
        &monitor,
        "to_tunnel",
        &["encapsulated", "path_unseen", "too_big"],
        542,
        PINGS,
    )?;
    ensure!(
        requests
            .iter()
            .all(|packet| is_between(packet, near, far) && packet["protocol"] == "icmp"),
        "{requests:#?}"
    );
    let encapsulated = monitor.of("to_tunnel", "encapsulated")?;
    ensure!(
        encapsulated.len() as u64 == pair.encapsulated()? - before,
        "{encapsulated:#?}"
    );
    let first = encapsulated.first().context("none was encapsulated")?;
    ensure!(
        first["verdict"] == "redirect"
            && first["interface"] == "flannel.1"
            && first["direction"] == "out",
        "{first}"
    );
    ensure!(
        first["outer_source"] == "192.168.1.11" && first["outer_destination"] == "192.168.2.13",
        "{first}"
    );
    let replies = shown(&monitor, "from_underlay", &["tunnel_good"], 542, PINGS)?;
    ensure!(
        replies.iter().all(|packet| is_between(packet, far, near)),
        "{replies:#?}"
    );
    ensure!(
        replies[0]["interface"] == "eth0" && replies[0]["outer_source"] == "192.168.2.13",
        "{}",
        replies[0]
    );
    let said = monitor.interrupt()?;
    ensure!(
        said.contains("packets shown; 0 more came faster than 1000 a second (--rate), 0 found"),
        "{said}"
    );
    ensure!(
        monitor_lease(pair.sender.node())? == 0,
        "the programs go on telling"
    );
    Ok(())
}

/// Checks that tcpdump reads in a capture of packets into the tunnel what the pod sent, in order
/// and complete.
fn captures_for_tcpdump(pair: &Pair) -> Result<()> {
    if pair
        .near
        .command(["tcpdump", "--version"])
        .any_code()
        .run()?
        .code
        != 0
    {
        not_run("captures read by tcpdump", "there is no tcpdump");
        return Ok(());
    }
    let node = pair.sender.node();
    let (near, far) = (pair.near.ip(), pair.far.ip());
    let filter = [
        "--program=to_tunnel",
        "--snaplen=1500",
        "--count=20",
        &format!("--dst={far}"),
        "-w",
    ];
    let monitor = pair
        .sender
        .monitor(&[&filter[..], &["/run/monitor.pcapng"]].concat())?;
    pings(pair, 300)?;
    monitor.wait()?;
    // Its second word is the identifier; checksums are looked at because of -vv.
    let read = node.sh("tcpdump -n -t -vv -r /run/monitor.pcapng")?.stdout;
    for number in 1..=PINGS {
        let line = format!("{near} > {far}: ICMP echo request, id ");
        let end = format!(", seq {number}, length 308");
        ensure!(
            read.lines()
                .any(|text| text.contains(&line) && text.ends_with(&end)),
            "no {number}:\n{read}"
        );
    }
    ensure!(
        read.matches("echo request").count() as u64 == PINGS,
        "{read}"
    );
    ensure!(
        !read.contains("bad cksum") && !read.contains("truncated") && !read.contains("[|"),
        "{read}"
    );
    captures_into_a_pipe(pair, &filter)
}

/// The same into a pipe, which is read while it grows.
fn captures_into_a_pipe(pair: &Pair, filter: &[&str]) -> Result<()> {
    let agent = pair
        .sender
        .argv(&[&["monitor"], filter, &["-"]].concat())
        .join(" ");
    let piped = pair.sender.node().spawn(
        "piped",
        ["sh", "-c", &format!("{agent} | tcpdump -n -t -l -r -")],
    )?;
    eventually("monitoring", Duration::from_secs(10), || {
        ensure!(piped.log().contains("monitoring;"), "{}", piped.log());
        Ok(())
    })?;
    pings(pair, 200)?;
    piped.wait_success(Duration::from_secs(10))?;
    ensure!(
        piped.log().matches("length 208").count() as u64 == PINGS,
        "{}",
        piped.log()
    );
    Ok(())
}

/// Text for people, one line a packet; and what bounds it.
fn ends_as_requested(pair: &Pair) -> Result<()> {
    let (near, far) = (pair.near.ip(), pair.far.ip());
    let monitor = pair.sender.monitor(&[
        "--program=from_underlay",
        &format!("--src={far}"),
        "--count=3",
    ])?;
    pings(pair, 64)?;
    let said = monitor.wait()?;
    let line = format!(
        "from_underlay tunnel_good    eth0      In  IP {far} > {near}: ICMP echo reply, id "
    );
    ensure!(
        said.matches(&line).count() == 3 && said.contains(", tunnel 192.168.2.13 > 192.168.1.11\n"),
        "{said}"
    );

    let monitor = pair
        .sender
        .monitor(&["--duration=1", "--drops", "-o", "json"])?;
    pings(pair, 64)?;
    monitor.wait()?;
    ensure!(
        monitor.packets()?.is_empty(),
        "nothing is dropped: {:#?}",
        monitor.packets()?
    );

    let first = pair.sender.monitor(&["-o", "json"])?;
    let refused = pair
        .sender
        .node()
        .command(pair.sender.argv(&["monitor"]))
        .expect_code(2)
        .run()?;
    ensure!(
        refused.stderr.starts_with("error: a monitor already runs"),
        "{}",
        refused.stderr
    );
    first.interrupt().map(drop)
}

/// Waits until the programs report no packets any more.
fn wait_unreported(pair: &Pair) -> Result<()> {
    eventually("the end of sampling", Duration::from_secs(10), || {
        pings(pair, 64)?;
        let lease = monitor_lease(pair.sender.node())?;
        ensure!(lease == 0, "the programs go on reporting");
        Ok(())
    })
}

/// A monitor that stood still says for how long it was shown nothing.
fn says_that_it_stood_still(pair: &Pair) -> Result<()> {
    let monitor = pair.sender.monitor(&["-o", "json"])?;
    monitor.pause()?;
    wait_unreported(pair)?;
    monitor.resume()?;
    let said = monitor.interrupt()?;
    ensure!(
        said.contains("; none was reported for ") && said.contains("stood still"),
        "{said}"
    );
    Ok(())
}

/// A monitor that is killed cannot say goodbye; the programs notice. And another finds its place
/// free.
fn leaves_nothing_behind(pair: &Pair) -> Result<()> {
    let node = pair.sender.node();
    let killed = pair.sender.monitor(&["-o", "json"])?;
    killed.kill9()?;
    ensure!(monitor_lease(node)? != 0, "it was not told of anything");
    wait_unreported(pair)?;
    pair.sender.kill9()?;
    let without_agent = pair.sender.monitor(&["--count=1", "-o", "json"])?;
    pings(pair, 64)?;
    without_agent.wait()?;
    ensure!(
        without_agent.packets()?.len() == 1,
        "{:#?}",
        without_agent.packets()?
    );
    pair.sender.restart()?;
    pair.sender.wait_ready()
}

#[test]
fn in_mode_encap() -> Result<()> {
    let pair = Pair::new("monitor")?;
    shows_pings(&pair).context("shows pings")?;
    captures_for_tcpdump(&pair).context("captures for tcpdump")?;
    ends_as_requested(&pair).context("ends as told")?;
    says_that_it_stood_still(&pair).context("says that it stood still")?;
    leaves_nothing_behind(&pair).context("leaves nothing behind")
}

/// Replayed packets are shown as they are sent on: with outer headers into the tunnel, without into
/// the pod.
#[test]
fn in_mode_fast() -> Result<()> {
    let pair = fast_pair("monitorfast", &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    let (near, far) = (pair.near.ip(), pair.far.ip());
    for (program, from, to, outer) in [
        ("from_pod", near, far, Value::from("192.168.1.11")),
        ("from_underlay", far, near, Value::Null),
    ] {
        let flags = ["--reason=replayed", "--count=50", "-o", "json"];
        let monitor = pair
            .sender
            .monitor(&[&flags[..], &[&format!("--program={program}")]].concat())?;
        // For a tenth of a second after a refresh, packets of one direction may not be replayed.
        eventually("50 replayed packets", Duration::from_secs(20), || {
            talk.exchange(100)?;
            ensure!(!monitor.is_running(), "it waits for more");
            Ok(())
        })?;
        monitor.wait()?;
        let packets = monitor.of(program, "replayed")?;
        ensure!(packets.len() == 50, "{packets:#?}");
        for packet in &packets {
            ensure!(
                is_between(packet, from, to) && packet["protocol"] == "tcp",
                "{packet}"
            );
            ensure!(
                packet["verdict"] == "redirect" && packet["outer_source"] == outer,
                "{packet}"
            );
        }
        let device = if program == "from_pod" {
            pair.near.veth()
        } else {
            "eth0"
        };
        ensure!(packets[0]["interface"] == device, "{}", packets[0]);
    }
    Ok(())
}
