//! Filters and programs of others on the external interface see every packet: those on its ingress
//! because the programs then deliver no packet from there to pods, those on its egress because all
//! packets leave through it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::programs::{LinkOrder, SchedClassifier, links::FdLink, tc::TcAttachOptions};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Agent, Pair,
    cluster::topology::Stack,
    eventually,
    fast::{Counters, fast_pair},
    kernel::hooks::{self, Side},
    load::UdpLoad,
};

/// The load of one stream.
const LOAD: UdpLoad = UdpLoad {
    pps: 1_000,
    duration: Duration::from_secs(3),
    payload: 64,
};
/// The number of packets that others may send during the stream, for example neighbour requests and
/// answers.
const STRAY: u64 = 100;
/// Filters are announced, TCX programs are looked for every five seconds.
const FOUND: Duration = Duration::from_secs(10);

/// Waits until `status` of an agent gives these reasons for leaving packets from other nodes to the
/// kernel.
fn wait_reasons(agent: &Agent, reasons: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    eventually(&format!("{reasons:?}"), FOUND, || {
        let shown = agent.status()?["fast"]["underlay_reasons"].clone();
        ensure!(shown == serde_json::json!(reasons), "{shown}");
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// The reason is in all that an operator reads.
fn is_named(agent: &Agent, reason: &str) -> Result<()> {
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains(&format!(
            "what comes from other nodes takes the kernel's path: {reason}"
        )),
        "{text}"
    );
    let findings = agent.cli_json(&["check", "-o", "json"])?;
    let findings = findings["findings"].as_array().context("findings")?.clone();
    let finding = findings
        .iter()
        .find(|finding| finding["topic"] == "ingress")
        .context("no finding")?;
    ensure!(
        finding["level"] == "warn"
            && finding["text"]
                .as_str()
                .is_some_and(|text| text.contains(reason)),
        "{finding}"
    );
    Ok(())
}

/// Sends a stream and expects that `seen` has grown by as many packets.
fn sees_all(pair: &Pair, seen: impl Fn() -> Result<u64>) -> Result<()> {
    let before = seen()?;
    let report = pair.stream(LOAD.pps, LOAD.duration)?.wait()?;
    report.expect_complete()?;
    let counted = seen()? - before;
    println!("{counted} of {} packets seen", report.sent);
    ensure!(
        (report.sent..report.sent + STRAY).contains(&counted),
        "{counted} of {} packets seen",
        report.sent
    );
    Ok(())
}

/// Streams until packets are replayed on the receiving node.
fn until_replayed(pair: &Pair) -> Result<()> {
    let run = pair.stream(LOAD.pps, Duration::from_secs(30))?;
    let replayed = || pair.receiver.counted("from_underlay", "replayed");
    let before = replayed()?;
    eventually("packets put into the pod", Duration::from_secs(15), || {
        let now = replayed()? - before;
        ensure!(now > 500, "{now}");
        Ok(())
    })?;
    run.stop().map(drop)
}

/// Adds a filter that copies every tunnel packet on one side of `eth0`, behind a clsact qdisc.
fn add_mirror(agent: &Agent, side: Side) -> Result<()> {
    let node = agent.node();
    node.sh("ip link add copy type veth peer name copy-end")?;
    node.sh("ip link set copy up")?;
    node.sh("ip link set copy-end up")?;
    node.sh("tc qdisc add dev eth0 clsact")?;
    let tunnel = "u32 match ip protocol 17 0xff match ip dport 8472 0xffff";
    let mirror = "action mirred egress mirror dev copy continue";
    node.sh(&format!(
        "tc filter add dev eth0 {side} prio 10 protocol ip {tunnel} {mirror}"
    ))
    .map(drop)
}

fn mirrored(agent: &Agent) -> Result<u64> {
    agent.node().device_counter("copy", "tx_packets")
}

/// Attaches one of the agent's programs where the agent never attaches it, behind the agent's own.
fn attach_stranger(agent: &Agent, program: &str, side: Side) -> Result<FdLink> {
    agent.node().enter(|| -> Result<FdLink> {
        let mut program =
            SchedClassifier::from_pin(format!("/sys/fs/bpf/flannel/v2/programs/{program}"))?;
        let last = TcAttachOptions::TcxOrder(LinkOrder::last());
        let id = program.attach_with_options("eth0", side.attach_type(), last)?;
        Ok(program.take_link(id)?.try_into()?)
    })?
}

/// Packets a program has seen, whatever it made of them.
fn runs(agent: &Agent, program: Program) -> Result<u64> {
    let counters = Counters::of(agent)?;
    Reason::ALL
        .into_iter()
        .map(|reason| counters.packets(program, reason))
        .sum()
}

#[test]
fn filters_on_the_ingress_of_the_external_interface_see_every_packet() -> Result<()> {
    let pair = fast_pair("fa-ingress", &[])?;
    until_replayed(&pair)?;
    let generation = pair.receiver.generation()?;
    add_mirror(&pair.receiver, Side::Ingress)?;
    let reason = "tc filters are on the ingress of eth0";
    println!("found after {:?}", wait_reasons(&pair.receiver, &[reason])?);
    is_named(&pair.receiver, reason)?;
    ensure!(
        pair.receiver.generation()? > generation,
        "what was known is discarded"
    );
    let replayed = || {
        Ok::<_, anyhow::Error>([
            pair.sender.counted("from_pod", "replayed")?,
            pair.replayed()?[1],
        ])
    };
    let before = replayed()?;
    sees_all(&pair, || mirrored(&pair.receiver))?;
    let now = replayed()?;
    ensure!(
        now[0] > before[0] + 1_000 && now[1] == before[1],
        "what is sent is replayed: {before:?}, {now:?}"
    );
    for mode in ["encap", "kernel"] {
        pair.set_mode(mode)?;
        sees_all(&pair, || mirrored(&pair.receiver))?;
    }
    pair.set_mode("fast")?;
    pair.receiver.node().sh("tc qdisc delete dev eth0 clsact")?;
    println!("gone after {:?}", wait_reasons(&pair.receiver, &[])?);
    until_replayed(&pair)
}

/// The filter exists before the agent, on a qdisc of the older kind.
#[test]
fn filters_that_are_there_before_the_agent_see_every_packet() -> Result<()> {
    let pair = fast_pair("fa-before", &[])?;
    pair.receiver.sigterm_and_wait()?;
    let node = pair.receiver.node();
    node.sh("tc qdisc add dev eth0 ingress")?;
    node.sh(
        "tc filter add dev eth0 parent ffff: prio 10 protocol ip u32 match u32 0 0 flowid 1:1",
    )?;
    pair.receiver.restart()?;
    pair.receiver.wait_ready()?;
    wait_reasons(&pair.receiver, &["tc filters are on the ingress of eth0"])?;
    let before = pair.receiver.counted("from_underlay", "replayed")?;
    pair.stream(LOAD.pps, LOAD.duration)?
        .wait()?
        .expect_complete()?;
    assert_eq!(pair.receiver.counted("from_underlay", "replayed")?, before);
    node.sh("tc qdisc delete dev eth0 ingress")?;
    wait_reasons(&pair.receiver, &[])?;
    until_replayed(&pair)
}

/// The kernel decrypts a packet and takes it in once more, by the same device, so what it does to
/// that packet must not be done to one that came in the clear. With `level use` it lets both pass.
#[test]
fn packets_that_an_ipsec_policy_covers_take_the_kernels_path() -> Result<()> {
    let pair = fast_pair("fa-ipsec", &[])?;
    until_replayed(&pair)?;
    let node = pair.receiver.node();
    let of_pods = "src 10.244.0.0/16 dst 10.244.0.0/16 dir fwd";
    node.sh(&format!(
        "ip xfrm policy add {of_pods} index 26 tmpl proto esp mode transport level use"
    ))?;
    let reason = "IPsec policy 26 may cover packets of pods";
    println!("found after {:?}", wait_reasons(&pair.receiver, &[reason])?);
    is_named(&pair.receiver, reason)?;
    let before = pair.receiver.counted("from_underlay", "replayed")?;
    pair.stream(LOAD.pps, LOAD.duration)?
        .wait()?
        .expect_complete()?;
    assert_eq!(pair.receiver.counted("from_underlay", "replayed")?, before);
    node.sh(&format!("ip xfrm policy delete {of_pods}"))?;
    wait_reasons(&pair.receiver, &[])?;
    until_replayed(&pair)
}

/// A block of filters that several devices share is announced without a device.
#[test]
fn filters_of_a_shared_block_are_found() -> Result<()> {
    let pair = fast_pair("fa-block", &[])?;
    let node = pair.receiver.node();
    node.sh("tc qdisc add dev eth0 ingress_block 7 clsact")?;
    node.sh("tc filter add block 7 prio 10 protocol ip u32 match u32 0 0 flowid 1:1")?;
    println!(
        "found after {:?}",
        wait_reasons(&pair.receiver, &["tc filters are on the ingress of eth0"])?
    );
    node.sh("tc filter delete block 7 prio 10")?;
    wait_reasons(&pair.receiver, &[]).map(drop)
}

#[test]
fn tcx_programs_on_the_ingress_of_the_external_interface_see_every_packet() -> Result<()> {
    if hooks::lacks_tcx("TCX programs of others on the underlay") {
        return Ok(());
    }
    let pair = fast_pair("fa-ingresstcx", &["--attach=tcx"])?;
    until_replayed(&pair)?;
    let link = attach_stranger(&pair.receiver, "to_tunnel", Side::Ingress)?;
    let reason = "TCX programs of others are on the ingress of eth0";
    println!("found after {:?}", wait_reasons(&pair.receiver, &[reason])?);
    is_named(&pair.receiver, reason)?;
    sees_all(&pair, || runs(&pair.receiver, Program::ToTunnel))?;
    drop(link);
    wait_reasons(&pair.receiver, &[])?;
    until_replayed(&pair)
}

/// No gate: every packet passes the egress, whatever made it.
#[test]
fn filters_and_programs_on_the_egress_of_the_external_interface_see_every_packet() -> Result<()> {
    if hooks::lacks_tcx("filters and TCX programs of others on the way to the underlay") {
        return Ok(());
    }
    let pair = fast_pair("fa-egress", &["--attach=tcx"])?;
    add_mirror(&pair.sender, Side::Egress)?;
    let _link = attach_stranger(&pair.sender, "to_pod", Side::Egress)?;
    for mode in ["kernel", "encap", "fast"] {
        pair.set_mode(mode)?;
        println!("mode {mode}");
        if mode == "fast" {
            until_replayed(&pair)?;
        }
        let made = || {
            Ok::<_, anyhow::Error>(
                pair.sender.counted("from_pod", "replayed")? + pair.encapsulated()?,
            )
        };
        let before = made()?;
        sees_all(&pair, || mirrored(&pair.sender))?;
        sees_all(&pair, || runs(&pair.sender, Program::ToPod))?;
        let made = made()? - before;
        ensure!(
            (made > 2_000) == (mode != "kernel"),
            "{made} made by the programs"
        );
    }
    wait_reasons(&pair.sender, &[]).map(drop)
}

/// Packets of a flow may arrive by any of them.
#[test]
fn filters_on_another_device_of_the_routes_to_peers_count_too() -> Result<()> {
    let pair = Pair::with_two_cables("fa-outlet", Stack::V4)?;
    pair.set_mode("fast")?;
    wait_reasons(&pair.receiver, &[])?;
    pair.receiver.node().sh("tc qdisc add dev eth1 clsact")?;
    pair.receiver
        .node()
        .sh("tc filter add dev eth1 ingress prio 10 protocol ip u32 match u32 0 0 flowid 1:1")?;
    wait_reasons(&pair.receiver, &["tc filters are on the ingress of eth1"])?;
    pair.receiver.node().sh("tc qdisc delete dev eth1 clsact")?;
    wait_reasons(&pair.receiver, &[]).map(drop)
}
