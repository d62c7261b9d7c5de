//! Checksums of TCP and UDP.
//!
//! An underlay may sum packets as a whole (`CHECKSUM_COMPLETE`), as where the nodes are themselves
//! in an overlay. What mode `fast` changes in a header, that sum has to follow, or the pod drops
//! the packet. And conntrack calls packets with wrong checksums invalid, also those of known flows.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod, TwoNodes,
    cluster::{self, topology::Stack},
    eventually,
    fast::{Family, FastLab, fast_pair_of},
    load::{UdpLoad, UdpRun},
    packet::{
        Packet,
        wire::{Capture, inject},
    },
};

/// Larger than what the kernel sums while it copies (`CHECKSUM_BREAK`, 76 bytes): only then the sum
/// is used.
const PAYLOAD: usize = 600;

#[test]
fn packets_summed_as_a_whole_arrive_in_every_mode() -> Result<()> {
    let config = cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#);
    let lab = FastLab::on(TwoNodes::nested("fastsums", &config)?, &[])?;
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            arrives(
                &lab.agents[1],
                [&lab.near, &lab.far],
                family.of(&lab.far)?,
                mode,
            )
            .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    Ok(())
}

fn arrives(receiver: &Agent, [near, far]: [&Pod; 2], to: IpAddr, mode: &str) -> Result<()> {
    let (errors, before) = (
        far.checksum_errors()?,
        receiver.counted("from_underlay", "replayed")?,
    );
    let load = UdpLoad {
        pps: 500,
        duration: Duration::from_secs(3),
        payload: PAYLOAD,
    };
    let report = UdpRun::start(near, far, to, load)?.wait()?;
    let errors = far.checksum_errors()? - errors;
    let replayed = receiver.counted("from_underlay", "replayed")? - before;
    println!(
        "{mode}: {} of {} datagrams, {replayed} replayed, {errors} checksum errors",
        report.received, report.sent
    );
    ensure!(errors == 0, "{errors} checksum errors: {report:?}");
    ensure!(
        mode != "fast" || replayed > report.sent / 2,
        "{replayed} of {} were replayed",
        report.sent
    );
    report.expect_complete()
}

/// The end of a datagram with the right checksum, and of one with a wrong checksum.
const RIGHT: &[u8] = b"right sum";
const WRONG: &[u8] = b"wrong sum";

fn is_right(frame: &[u8]) -> bool {
    frame.ends_with(RIGHT)
}

fn is_wrong(frame: &[u8]) -> bool {
    frame.ends_with(WRONG)
}

/// By raw sockets, whose packets no device completes.
#[test]
fn datagrams_of_known_flows_with_a_wrong_checksum_are_invalid() -> Result<()> {
    let pair = fast_pair_of("fc-invalid", Stack::Dual, &[])?;
    pair.sender.node().nft("add table inet invalid")?;
    pair.sender
        .node()
        .nft("add chain inet invalid forward { type filter hook forward priority -10 ; }")?;
    pair.sender
        .node()
        .nft("add rule inet invalid forward ct state invalid counter drop")?;
    for (from, to) in pair.near.addresses().iter().zip(pair.far.addresses()) {
        let (right, wrong) = (
            Capture::start(&pair.far, "eth0", is_right)?,
            Capture::start(&pair.far, "eth0", is_wrong)?,
        );
        let send = |data: &[u8], is_forged: bool| -> Result<u64> {
            let before = pair.sender.counted("from_pod", "replayed")?;
            for id in 1..=100 {
                let mut packet =
                    Packet::datagram((*from, 4242).into(), (*to, 4243).into(), id, data);
                // The first bytes of the checksum.
                packet.payload[6] ^= if is_forged { 0x5a } else { 0 };
                inject(&pair.near, &packet)?;
            }
            Ok(pair.sender.counted("from_pod", "replayed")? - before)
        };
        let mut forged_ones_replayed = 0;
        // A flow that is due for a refresh leaves the forged ones to the kernel as such.
        eventually(
            "a known flow at a forged datagram",
            Duration::from_secs(20),
            || {
                let replayed = send(RIGHT, false)?;
                ensure!(replayed > 50, "{replayed} replayed");
                let before = pair.sender.counted("from_pod", "checksum_unverified")?;
                forged_ones_replayed += send(WRONG, true)?;
                let unverified = pair.sender.counted("from_pod", "checksum_unverified")? - before;
                ensure!(unverified > 50, "{unverified} unverified");
                Ok(())
            },
        )?;
        ensure!(
            forged_ones_replayed < 10,
            "{forged_ones_replayed} with a wrong checksum are replayed"
        );
        right.clear();
        send(RIGHT, false)?;
        eventually("the right ones", Duration::from_secs(5), || {
            (right.len() >= 100).then_some(()).context("some")
        })?;
        ensure!(
            wrong.is_empty(),
            "{} datagrams with a wrong checksum arrived",
            wrong.len()
        );
    }
    Ok(())
}
