//! Pods that mean harm: what they may do to others in mode `fast`, which is nothing.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use etherparse::TcpHeader;
use flannel_common::abi::{
    guard::{Checks, GuardMode},
    program::Program,
    reason::Reason,
};
use flannel_tests::{
    Pod, eventually,
    host::joined,
    no_agent::BarePair,
    not_run,
    packet::{
        Packet, vxlan,
        wire::{Capture, inject},
    },
};

/// `b` among the peers of `a`.
const PEER: u32 = 2;

/// A tunnel packet, as the program of a pod would write it: for a pod of the peer, with its last
/// byte as the destination's.
fn forged() -> Vec<u8> {
    let [from, to] = [[10, 244, 1, 2], [10, 244, 2, 2]].map(IpAddr::from);
    vxlan(&Packet::udp(from, to, 1, 0).framed([2; 6], [2; 6]))
}

fn send(from: &Pod, to: IpAddr, times: u32) -> Result<()> {
    from.enter(|| -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..times {
            socket.send_to(&forged(), (to, 8472))?;
        }
        Ok(())
    })?
}

/// By such a packet `to_underlay` would stop trusting the path for two seconds, or, of who knows
/// the Ethernet addresses, begin to.
#[test]
fn a_pod_does_not_speak_for_the_path() -> Result<()> {
    let pair = BarePair::new("hostilepath")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let differs = || pair.a.counted(Program::ToUnderlay, Reason::PathDiffers);
    let (before, not_ours) = (
        differs()?,
        pair.a.counted(Program::ToUnderlay, Reason::NotTunnel)?,
    );
    send(&pair.near, pair.b.vtep().into(), 20)?;
    talk.exchange(100)?;
    let left = pair.a.counted(Program::ToUnderlay, Reason::NotTunnel)? - not_ours;
    ensure!(
        left >= 20,
        "{left} of 20 packets left: {:#?}",
        pair.a.counts()?
    );
    ensure!(
        differs()? == before,
        "the path is said to differ: {:#?}",
        pair.a.counts()?
    );
    let seen = pair.a.maps.peers.get(PEER)?.seen;
    ensure!(seen.hold_ns == 0, "{seen:?}");
    pair.talk_until_replayed(&mut talk, 500)
}

/// Masqueraded they would come from the node's address, which the peer's guard lets in.
#[test]
fn a_pod_does_not_speak_vxlan_for_its_node() -> Result<()> {
    let mut pair = BarePair::new("hostilevxlan")?;
    let capture = Capture::start(&pair.b.node, "eth0", |frame| {
        frame.windows(12).any(|window| window == [2; 12])
    })?;
    let to = pair.b.vtep().into();
    send(&pair.near, to, 20)?;
    eventually(
        "tunnel packets of a pod, which no guard refuses",
        Duration::from_secs(5),
        || {
            ensure!(capture.len() == 20, "{} of 20", capture.len());
            Ok(())
        },
    )?;
    pair.a.maps.guard.set(
        Checks {
            outer: GuardMode::Enforce,
            inner: GuardMode::Audit,
        },
        Checks::default(),
    )?;
    capture.clear();
    send(&pair.near, to, 20)?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    ensure!(capture.is_empty(), "{} of 20 left the node", capture.len());
    let refused = pair
        .a
        .counted(Program::ToUnderlay, Reason::RefusedPodTunnel)?;
    ensure!(
        refused == 20,
        "{refused} of 20 are counted: {:#?}",
        pair.a.counts()?
    );
    Ok(())
}

/// They end what the programs know of the connection, which costs it speed and nothing else.
#[test]
fn forged_closes_do_not_close_anothers_connection() -> Result<()> {
    let mut pair = BarePair::new("hostileclose")?;
    let thief = pair.a.add_pod("thief")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    for id in 1..200 {
        let close: [fn(&mut TcpHeader); 2] = [
            |tcp| tcp.fin = true,
            |tcp| (tcp.ack, tcp.rst) = (false, true),
        ];
        for close in close {
            inject(&thief, &Packet::tcp(talk.ends()?, id, &[], close))?;
            talk.exchange(1)?;
        }
    }
    pair.talk_until_replayed(&mut talk, 500)
}

/// A pod that opens new flows as fast as it can does not get all of them learned, and the flows of
/// another pod on the node are learned as usual.
#[test]
fn a_pod_that_makes_flows_too_fast_harms_no_other() -> Result<()> {
    const FLOOD: Duration = Duration::from_secs(4);
    let mut pair = BarePair::new("hostileflood")?;
    let loud = pair.a.add_pod("p2")?;
    let to = pair.far.ip();
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let flood = loud.thread(move || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let start = Instant::now();
        let mut sent = 0_u64;
        while start.elapsed() < FLOOD {
            for port in 1024..=u16::MAX {
                // No process listens; the kernel may report that of an earlier datagram.
                drop(socket.send_to(b"flood", SocketAddr::new(to, port)));
                sent += 1;
            }
        }
        Ok((sent, start.elapsed()))
    })?;
    // A known flow goes on, and a new one is learned.
    pair.talk_until_replayed(&mut talk, 500)?;
    let mut another = pair.talk()?;
    pair.talk_until_replayed(&mut another, 500)?;
    let (sent, time) = joined(flood)?;
    let refused = pair.a.counted(Program::FromPod, Reason::TooManyFlows)?;
    let flows = pair.a.flows()?;
    let veth = pair.a.veth_index(&loud)?;
    let learned = flows.iter().filter(|(key, _)| key.device == veth).count();
    println!(
        "{sent} datagrams to as many ports, {learned} flows learned, {refused} packets refused"
    );
    // A burst of 2,048 and two for each tick of about a millisecond.
    let most = 2048 + 2 * usize::try_from(time.as_millis()).context("seconds")?;
    ensure!(learned <= most, "{learned} flows of one pod in {time:?}");
    // One packet in eight would be noted.
    if sent > most as u64 * 9 {
        ensure!(refused > 0, "{sent} datagrams: {:#?}", pair.a.counts()?);
    } else {
        not_run(
            "who makes flows too fast is refused",
            &format!("{sent} datagrams in {time:?} are not too fast"),
        );
    }
    Ok(())
}
