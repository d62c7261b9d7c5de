//! A flood of SYN, each answered, while pods have connections: it takes neither places in the flow
//! table nor the fast path of these connections.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::AsRawFd as _,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::{
    program::Program::{FromPod, FromTunnel, FromUnderlay},
    reason::Reason,
};
use flannel_tests::{
    Pod, eventually,
    no_agent::{BareNode, BarePair, Talk},
    packet::Packet,
};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket};

const TALKS: usize = 10;
const LENGTH: Duration = Duration::from_secs(3);
/// At most so many SYN a second.
const RATE: f64 = 50_000.0;
/// Ports of the flood: fewer connections than conntrack has room for, more than there are slots.
const PORTS: std::ops::Range<u16> = 20_000..40_000;

/// Sends SYN to a listener until it is stopped.
fn flood(pod: &Pod, to: SocketAddr, sent: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let syn = |port| {
        Packet::tcp([SocketAddr::new(pod.ip(), port), to], 0, &[], |header| {
            (header.syn, header.ack, header.acknowledgment_number) = (true, false, 0);
        })
        .bytes()
    };
    let packets: Vec<Vec<u8>> = PORTS.map(syn).collect();
    let address = SockaddrStorage::from(SocketAddr::new(to.ip(), 0));
    pod.enter(|| -> Result<()> {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
        let start = Instant::now();
        for (number, packet) in (1..).zip(packets.iter().cycle()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            sendto(socket.as_raw_fd(), packet, &address, MsgFlags::empty()).context("sending a SYN")?;
            sent.store(number, Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let due = Duration::from_secs_f64(number as f64 / RATE);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        Ok(())
    })?
}

/// Packets of unknown flows.
fn unknown(node: &BareNode) -> Result<u64> {
    let programs = [FromPod, FromTunnel, FromUnderlay];
    let reasons = [Reason::FlowUnknown, Reason::Sampled];
    let pairs = programs.into_iter().flat_map(|program| reasons.map(|reason| (program, reason)));
    pairs.map(|(program, reason)| node.counted(program, reason)).sum()
}

fn places(node: &BareNode) -> usize {
    node.maps.flows.table().count()
}

#[test]
fn a_flood_of_syns_takes_neither_places_nor_the_fast_path_of_others() -> Result<()> {
    let mut pair = BarePair::new("fastflood")?;
    let flooder = pair.a.add_pod("p2")?;
    let mut talks: Vec<Talk> = (0..TALKS).map(|_| pair.talk()).collect::<Result<_>>()?;
    eventually("connections that have places in the table", Duration::from_secs(20), || {
        talks.iter_mut().try_for_each(|talk| talk.exchange(5))?;
        for node in pair.nodes() {
            ensure!(places(node) == 2 * TALKS, "{} of {}", places(node), 2 * TALKS);
        }
        Ok(())
    })?;
    let listener = pair.far.bound(SocketAddr::new(pair.far.ip(), 0), TcpListener::bind)?;
    let (to, sent, stop) = (listener.local_addr()?, AtomicU64::new(0), AtomicBool::new(false));
    let before = [unknown(&pair.a)?, unknown(&pair.b)?];
    let answered = pair.b.counted(FromPod, Reason::Handshake)?;
    let replayed = [pair.a.replayed()?, pair.b.replayed()?];
    let exchanged = thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&flooder, to, &sent, &stop));
        let (start, mut exchanged) = (Instant::now(), 0);
        let outcome = loop {
            if start.elapsed() >= LENGTH || flooding.is_finished() {
                break Ok(exchanged);
            }
            if let Err(error) = talks.iter_mut().try_for_each(|talk| talk.exchange(1)) {
                break Err(error);
            }
            exchanged += talks.len() as u64;
        };
        stop.store(true, Ordering::Relaxed);
        flooding.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        outcome
    })?;
    let (sent, answered) = (sent.into_inner(), pair.b.counted(FromPod, Reason::Handshake)? - answered);
    println!("{sent} SYN, {answered} answers recorded, {exchanged} messages there and back meanwhile");
    ensure!(answered >= 10_000, "{answered} answers of {sent} SYN: no flood");
    for (node, (before, replayed)) in pair.nodes().into_iter().zip(before.into_iter().zip(replayed)) {
        ensure!(places(node) == 2 * TALKS, "{} places for {} flows", places(node), 2 * TALKS);
        let unknown = unknown(node)? - before;
        ensure!(unknown == 0, "{unknown} packets of unknown flows: {:#?}", node.counts()?);
        // All but a packet for each refresh, of which there are two for each flow at most.
        let replayed = node.replayed()? - replayed;
        let most = (2 * exchanged).saturating_sub(8 * TALKS as u64 + 20);
        ensure!(replayed >= most, "{replayed} of {} packets: {:#?}", 2 * exchanged, node.counts()?);
    }
    Ok(())
}
