//! Foreign objects on the path of a pod's packets are not bypassed: the direction they affect is
//! left to the kernel, and `status` gives the reason.

use std::time::Duration;

use anyhow::{Result, ensure};
use aya::programs::{LinkOrder, SchedClassifier, links::FdLink, tc::TcAttachOptions};
use flannel_tests::{
    Pair,
    cluster::topology::Stack,
    eventually,
    fast::{FLAGS, fast_pair},
    kernel::hooks::{self, Side, tcx},
};

/// A filter that lets everything pass.
const FILTER: [&str; 4] = ["bpf", "da", "bytecode", "1,6 0 0 4294967295,"];

/// Puts a filter on one side of a device of the node of `near`, which has a clsact qdisc.
fn add_filter(pair: &Pair, device: &str, side: &str) -> Result<()> {
    let argv = ["tc", "filter", "add", "dev", device, side]
        .into_iter()
        .chain(FILTER);
    pair.sender.node().command(argv).run().map(drop)
}

/// Expects that after `action` only these ways are left, for this reason, and all are there again
/// after `undo`.
fn gate(
    pair: &Pair,
    action: impl FnOnce() -> Result<()>,
    undo: &str,
    ways: (bool, bool),
    reason: &str,
) -> Result<()> {
    action()?;
    pair.sender.wait_pod(&pair.near, ways.0, ways.1)?;
    let status = pair.sender.pod_status(&pair.near)?;
    assert_eq!(status["reasons"], serde_json::json!([reason]));
    let text = pair.sender.cli_any(&["status"])?.stdout;
    assert!(text.contains(reason), "{text}");
    pair.sender.node().sh(undo)?;
    pair.sender.wait_pod(&pair.near, true, true)
}

/// A qdisc that shapes, far above what is sent here.
fn shape(pair: &Pair, device: &str, ways: (bool, bool)) -> Result<()> {
    let add = format!("tc qdisc add dev {device} root tbf rate 1gbit burst 1m latency 10ms");
    let undo = format!("tc qdisc delete dev {device} root");
    let action = || pair.sender.node().sh(&add).map(drop);
    gate(
        pair,
        action,
        &undo,
        ways,
        &format!("a tbf qdisc is on {device}"),
    )
}

#[test]
fn qdiscs_and_filters_of_others_forbid_the_way_they_are_on() -> Result<()> {
    let pair = fast_pair("fa-gates", &[])?;
    for device in ["vethp1", "cni0"] {
        shape(&pair, device, (true, false))?;
        for (side, ways) in [("ingress", (false, true)), ("egress", (true, false))] {
            let action = || {
                pair.sender
                    .node()
                    .sh(&format!("tc qdisc add dev {device} clsact"))?;
                add_filter(&pair, device, side)
            };
            let undo = format!("tc qdisc delete dev {device} clsact");
            gate(
                &pair,
                action,
                &undo,
                ways,
                &format!("tc filters are on the {side} of {device}"),
            )?;
        }
    }
    shape(&pair, "flannel.1", (false, true))
}

/// With both ways left to the kernel no program is there at all.
#[test]
fn a_pod_with_others_on_both_ways_is_left_alone_and_its_packets_flow() -> Result<()> {
    let pair = fast_pair("fa-alone", &[])?;
    pair.sender.node().sh("tc qdisc add dev vethp1 clsact")?;
    add_filter(&pair, "vethp1", "ingress")?;
    add_filter(&pair, "vethp1", "egress")?;
    pair.sender.wait_pod(&pair.near, false, false)?;
    eventually("no program on the veth", Duration::from_secs(5), || {
        for side in [Side::Ingress, Side::Egress] {
            let names = tcx(pair.sender.node(), "vethp1", side)?;
            ensure!(names.is_empty(), "{names:?}");
        }
        Ok(())
    })?;
    let before = pair.sender.replayed()?;
    pair.talk()?.exchange(1_000)?;
    assert_eq!(pair.sender.replayed()?, before);
    Ok(())
}

/// Also one that is made later, whose address comes after its link.
#[test]
fn pods_the_operator_names_are_left_alone_and_their_packets_flow() -> Result<()> {
    let flags = [&FLAGS[..], &["--fast-exclude=10.244.0.0/16"]].concat();
    let pair = Pair::with("fa-exclude", Stack::V4, &flags)?;
    let late = pair.net.a.add_pod("p2")?;
    for pod in [&pair.near, &late] {
        eventually(
            &format!("{} to be left alone", pod.veth()),
            Duration::from_secs(15),
            || {
                let row = pair.sender.pod_status(pod)?;
                let alone = row["sends"] == false && row["receives"] == false;
                ensure!(
                    alone
                        && row["reasons"]
                            == serde_json::json!(["--fast-exclude=10.244.0.0/16 says so"]),
                    "{row}"
                );
                Ok(())
            },
        )?;
    }
    let before = pair.replayed()?;
    pair.talk()?.exchange(1_000)?;
    assert_eq!(pair.replayed()?, before);
    Ok(())
}

/// No event announces TCX programs; the agent finds them within seconds. The test attaches one of
/// the agent's programs where the agent never attaches it.
#[test]
fn tcx_programs_of_others_forbid_the_way_they_are_on() -> Result<()> {
    if hooks::lacks_tcx("TCX programs of others") {
        return Ok(());
    }
    let pair = fast_pair("fa-beside", &["--attach=tcx"])?;
    for (side, ways) in [
        (Side::Ingress, (false, true)),
        (Side::Egress, (true, false)),
    ] {
        let link = pair.sender.node().enter(|| -> Result<FdLink> {
            let mut program =
                SchedClassifier::from_pin("/sys/fs/bpf/flannel/v2/programs/from_underlay")?;
            let first = TcAttachOptions::TcxOrder(LinkOrder::first());
            let id = program.attach_with_options("vethp1", side.attach_type(), first)?;
            Ok(program.take_link(id)?.try_into()?)
        })??;
        pair.sender.wait_pod(&pair.near, ways.0, ways.1)?;
        let reason = format!("TCX programs of others are on the {side} of vethp1");
        assert_eq!(
            pair.sender.pod_status(&pair.near)?["reasons"],
            serde_json::json!([reason])
        );
        drop(link);
        pair.sender.wait_pod(&pair.near, true, true)?;
    }
    Ok(())
}

/// The kernel makes up for an offload that the operator switched off, in front of the device.
#[test]
fn packets_do_not_skip_a_device_with_an_offload_that_is_off() -> Result<()> {
    let pair = fast_pair("fa-offload", &[])?;
    for device in ["vethp1", "cni0"] {
        let switch = |to: &str| format!("ethtool -K {device} tx-checksum-ip-generic {to}");
        let action = || pair.sender.node().sh(&switch("off")).map(drop);
        let reason = format!("tx-checksum-ip-generic of {device} is off");
        gate(&pair, action, &switch("on"), (true, false), &reason)?;
    }
    Ok(())
}

/// The remedy for NICs that break the offload of tunnels (`ethtool -K flannel.1`).
#[test]
fn no_packet_skips_a_tunnel_device_with_an_offload_that_is_off() -> Result<()> {
    const REASON: &str = "tx-checksum-ip-generic of flannel.1 is off";
    let pair = fast_pair("fa-remedy", &[])?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    let sent =
        || Ok::<_, anyhow::Error>(agent.counted("from_pod", "replayed")? + pair.encapsulated()?);
    for mode in ["fast", "encap"] {
        pair.set_mode(mode)?;
        let mut talk = pair.talk()?;
        let mut busy = || -> Result<()> {
            let before = sent()?;
            talk.exchange(20)?;
            ensure!(sent()? > before, "mode {mode}: the kernel carries all");
            Ok(())
        };
        eventually(
            "packets that skip the device",
            Duration::from_secs(15),
            &mut busy,
        )?;
        node.sh("ethtool -K flannel.1 tx-checksum-ip-generic off")?;
        eventually("the reason", Duration::from_secs(5), || {
            let status = agent.cli_any(&["status"])?.stdout;
            ensure!(status.contains(REASON), "{status}");
            Ok(())
        })?;
        let before = sent()?;
        let mut more = pair.talk()?;
        more.exchange(300)?;
        ensure!(
            sent()? == before,
            "mode {mode}: {} packets skipped the device",
            sent()? - before
        );
        node.sh("ethtool -K flannel.1 tx-checksum-ip-generic on")?;
        eventually("packets that skip it again", Duration::from_secs(15), busy)?;
    }
    Ok(())
}
