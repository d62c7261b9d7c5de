//! Large amounts of data: every byte arrives as it was sent, both ways at once, over a cable with
//! offloads and over one without, and by far most packets are replayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Pair,
    cluster::topology::{OFFLOAD, Stack, WIRE},
    eventually,
    fast::{Counters, fast_pair_of},
    load::{
        bulk::transfer,
        segmented::{Segmented, send, send_every},
    },
};

/// Blocks each way: 64 MB.
const BLOCKS: u64 = 1024;

/// The places a packet can be taken from.
const PLACES: [Program; 2] = [Program::FromPod, Program::FromUnderlay];

/// Returns the packets by reason that a program counted so far, without those that do not belong to
/// a pod.
fn counts(counters: &Counters, program: Program) -> Result<BTreeMap<&'static str, u64>> {
    // The packets in the tenth of a second until a new flow is confirmed do not count either.
    let other = [Reason::NotTunnel, Reason::Unconfirmed];
    let of_pods = Reason::ALL
        .into_iter()
        .filter(|reason| !other.contains(reason));
    of_pods
        .map(|reason| Ok((reason.name(), counters.packets(program, reason)?)))
        .collect()
}

/// Expects that the programs of both nodes replay nearly all packets of `work` that they could
/// replay.
fn mostly_replayed(pair: &Pair, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let nodes = [Counters::of(&pair.sender)?, Counters::of(&pair.receiver)?];
    let all = || -> Result<Vec<_>> {
        nodes
            .iter()
            .flat_map(|node| PLACES.map(|program| counts(node, program)))
            .collect()
    };
    let before = all()?;
    work()?;
    for (place, (mut counts, before)) in all()?.into_iter().zip(before).enumerate() {
        for (reason, packets) in &mut counts {
            *packets -= before[reason];
        }
        counts.retain(|_, packets| *packets > 0);
        let packets = |reason: Reason| counts.get(reason.name()).copied().unwrap_or(0);
        let (replayed, all) = (packets(Reason::Replayed), counts.values().sum::<u64>());
        // Until the agent has ended the check of a connection's windows each of its packets is
        // recorded (`Handshake`), and where tunnel packets come in, these are the packets of the
        // tenth of a second above: a fifth of all over a fast cable.
        let early = packets(Reason::Decapsulated) + packets(Reason::Handshake);
        let is_most = replayed * 10 > (all - early) * 9 && replayed > early;
        ensure!(
            is_most,
            "{:?} of node {}: {counts:?}",
            PLACES[place % 2],
            ["a", "c"][place / 2]
        );
    }
    Ok(())
}

fn both_ways(pair: &Pair, at: IpAddr) -> Result<()> {
    let [there, back] = transfer(&pair.near, &pair.far, (at, 0).into(), BLOCKS)?;
    ensure!(
        (there.blocks, back.blocks) == (BLOCKS, BLOCKS),
        "{there:?} {back:?}"
    );
    Ok(())
}

fn in_every_way(pair: &Pair, work: impl Fn(IpAddr) -> Result<()>) -> Result<()> {
    for (cable, features) in [("offload", OFFLOAD), ("wire", WIRE)] {
        pair.set_offloads(features)?;
        for at in pair.far.addresses() {
            work(*at).with_context(|| format!("to {at}, cable {cable}"))?;
        }
    }
    Ok(())
}

#[test]
fn large_amounts_of_data_arrive_as_they_were_sent() -> Result<()> {
    let pair = fast_pair_of("fp-bulk", Stack::Dual, &[])?;
    in_every_way(&pair, |at| mostly_replayed(&pair, || both_ways(&pair, at)))?;
    in_every_way(&pair, |at| {
        let replayed = || pair.sender.counted("from_pod", "replayed");
        let before = replayed()?;
        // The path must have been seen to take datagrams of this size.
        send(
            &pair.near,
            &pair.far,
            at,
            Segmented {
                sends: 20,
                segments: 1,
                size: 1200,
            },
        )?;
        let load = Segmented {
            sends: 100,
            segments: 40,
            size: 1200,
        };
        // In the first of ten tenths of a second the flow is confirmed.
        let numbers = send_every(Duration::from_millis(10), &pair.near, &pair.far, at, load)?;
        let unordered = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
        println!(
            "{at}: {} of 4000 arrived, {unordered} behind a later one",
            numbers.len()
        );
        let unique: BTreeSet<_> = numbers.iter().collect();
        ensure!(unique.len() == 4000, "{} arrived", numbers.len());
        ensure!(
            replayed()? - before > 50,
            "{} replayed",
            replayed()? - before
        );
        Ok(())
    })
}

/// Such a pod is older than the tunnel's MTU, or another tool created it. As in every mode, it
/// receives the tunnel's MTU in an ICMP error; its packets are then replayed.
#[test]
fn a_pod_with_too_large_an_mtu_is_answered_and_then_served() -> Result<()> {
    let pair = fast_pair_of("fp-mtu", Stack::Dual, &[])?;
    for (agent, pod) in [(&pair.sender, &pair.near), (&pair.receiver, &pair.far)] {
        pod.set_mtu(1500)?;
        eventually("the agent to know it", Duration::from_secs(10), || {
            let dump = agent.cli_json(&["maps", "dump", "pods", "-o", "json"])?;
            ensure!(dump["pods"][0]["mtu"] == 1500, "{dump}");
            Ok(())
        })?;
    }
    for at in pair.far.addresses() {
        mostly_replayed(&pair, || both_ways(&pair, *at)).with_context(|| at.to_string())?;
        let route = pair.near.sh(&format!("ip route get {at}"))?.stdout;
        let mtu = if at.is_ipv4() { "mtu 1450" } else { "mtu 1430" };
        ensure!(route.contains(mtu), "{route}");
    }
    Ok(())
}
