//! Floods of SYN, each answered, while pods have connections: they take neither places in the flow
//! table nor the fast path of these connections, and no memory.
//!
//! `FLANNEL_FLOOD_SECONDS` (default 3) chooses how long each lasts.

use std::{
    array,
    net::{SocketAddr, TcpListener},
    os::fd::AsRawFd as _,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{
    program::Program::{FromPod, FromTunnel, FromUnderlay},
    reason::Reason,
};
use flannel_tests::{
    Host, eventually,
    fast::{Conversation, Family, FastLab, PORT},
    harness::variable::number,
    load::rr::Protocol,
    packet::Packet,
    service_rules::{Backend, Service, ServiceRules},
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};

const TALKS: u16 = 100;
/// Places in the table of a node that the connections have: one for each direction.
const PLACES: usize = 2 * TALKS as usize;
const DEFAULT_SECONDS: u64 = 3;
/// One for each of two CPUs: the kernel answers a SYN on the CPU of its sender.
const SENDERS: usize = 2;
/// The greatest number of SYN a second of each sender.
const RATE: f64 = 30_000.0;
/// The least time that a sender sleeps: a shorter sleep takes longer than asked.
const BURST: Duration = Duration::from_millis(2);
/// Each connection exchanges a message so often; the rest of the machine is the flood's.
const PACE: Duration = Duration::from_millis(50);
/// The least number of answered SYN, even on a slow machine: more than the slots for flows on
/// probation.
const ANSWERS: u64 = 10_000;
/// The time limit for these answers.
const LIMIT: Duration = Duration::from_mins(2);
/// Ports of the flood: fewer connections than conntrack has room for, more than there are slots.
const PORTS: std::ops::Range<u16> = 20_000..40_000;
const NODE_PORT: u16 = 30_080;
/// Rules of a sender that ignores what is answered to its SYN.
const SILENT: &str = "table ip flood {
    chain input \
    { type filter hook prerouting priority raw; tcp flags & (syn | ack) == syn | ack drop; }
}";
/// Memory an agent may hold more behind the flood than before.
const GROWTH: u64 = 4 << 20;

/// The way of a flood.
struct Flood<'a> {
    host: &'a Host,
    from: SocketAddr,
    to: SocketAddr,
    /// The node of the pod that answers.
    answering: usize,
}

impl Flood<'_> {
    /// Sends SYN until it is stopped, as one of several senders.
    fn send(&self, sender: usize, sent: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        let syn = |port| {
            Packet::tcp(
                [SocketAddr::new(self.from.ip(), port), self.to],
                0,
                &[],
                |header| {
                    (header.syn, header.ack, header.acknowledgment_number) = (true, false, 0);
                },
            )
            .bytes()
        };
        let packets: Vec<Vec<u8>> = PORTS.skip(sender).step_by(SENDERS).map(syn).collect();
        let address = SockaddrStorage::from(SocketAddr::new(self.to.ip(), 0));
        self.host.enter(|| -> Result<()> {
            let socket = socket(
                AddressFamily::Inet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::Raw,
            )?;
            let start = Instant::now();
            for (number, packet) in (1_u64..).zip(packets.iter().cycle()) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                sendto(socket.as_raw_fd(), packet, &address, MsgFlags::empty())
                    .context("sending a SYN")?;
                sent.fetch_add(1, Ordering::Relaxed);
                #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
                let due = Duration::from_secs_f64(number as f64 / RATE);
                let early = due.saturating_sub(start.elapsed());
                if early >= BURST {
                    thread::sleep(early);
                }
            }
            Ok(())
        })?
    }

    /// Answers that were recorded so far.
    fn answers(&self, lab: &FastLab) -> Result<u64> {
        Ok(lab.maps[self.answering]
            .stats
            .get(FromPod, Reason::Handshake)?
            .packets)
    }

    /// Sends SYN, and at the same time messages on all connections. Returns the number of each.
    fn beside(
        &self,
        lab: &FastLab,
        talks: &mut [Conversation],
        length: Duration,
    ) -> Result<(u64, u64)> {
        let answers = self.answers(lab)? + ANSWERS;
        let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let exchanged = thread::scope(|scope| {
            let (sent, stop) = (&sent, &stop);
            let floods: [_; SENDERS] =
                array::from_fn(|sender| scope.spawn(move || self.send(sender, sent, stop)));
            let (start, mut exchanged) = (Instant::now(), 0);
            let outcome = loop {
                let (took, round) = (start.elapsed(), Instant::now());
                let is_flood = self.answers(lab).is_ok_and(|now| now >= answers);
                if is_flood && took >= length
                    || took >= LIMIT
                    || floods.iter().any(ScopedJoinHandle::is_finished)
                {
                    break Ok(exchanged);
                }
                if let Err(error) = talks.iter_mut().try_for_each(|talk| talk.exchange(1)) {
                    break Err(error);
                }
                exchanged += talks.len() as u64;
                thread::sleep(PACE.saturating_sub(round.elapsed()));
            };
            stop.store(true, Ordering::Relaxed);
            for flood in floods {
                flood.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            outcome
        })?;
        Ok((sent.into_inner(), exchanged))
    }
}

/// The state of a node.
#[derive(Debug)]
struct Held {
    places: usize,
    unknown: u64,
    replayed: u64,
    memory: u64,
}

impl Held {
    fn of(lab: &FastLab, node: usize) -> Result<Self> {
        let counted = |program, reason| {
            Ok::<_, anyhow::Error>(lab.maps[node].stats.get(program, reason)?.packets)
        };
        let programs = [FromPod, FromTunnel, FromUnderlay];
        let reasons = [Reason::FlowUnknown, Reason::Sampled];
        let pairs = programs
            .into_iter()
            .flat_map(|program| reasons.map(|reason| (program, reason)));
        let unknown = pairs
            .map(|(program, reason)| counted(program, reason))
            .sum::<Result<_>>()?;
        let places = lab.maps[node].flows.table().count();
        Ok(Self {
            places,
            unknown,
            replayed: lab.replayed()?[node],
            memory: lab.agents[node].memory("VmRSS")?,
        })
    }
}

/// Connections that have places in the table.
fn settled_talks(lab: &FastLab) -> Result<Vec<Conversation>> {
    let open = |number| {
        let at = SocketAddr::new(Family::V4.of(&lab.far)?, 9_000 + number);
        Conversation::open(Protocol::Tcp, &lab.near, &lab.far, at, None)
    };
    let mut talks: Vec<_> = (0..TALKS).map(open).collect::<Result<_>>()?;
    eventually(
        "connections that have places in the table",
        Duration::from_secs(20),
        || {
            talks.iter_mut().try_for_each(|talk| talk.exchange(5))?;
            for maps in &lab.maps {
                let places = maps.flows.table().count();
                ensure!(places == PLACES, "{places} of {PLACES}");
            }
            Ok(())
        },
    )?;
    Ok(talks)
}

fn length() -> Result<Duration> {
    let seconds = number("FLANNEL_FLOOD_SECONDS")?;
    Ok(Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS)))
}

/// A flood changes nothing for connections of others.
fn changes_nothing(lab: &FastLab, flood: &Flood<'_>) -> Result<()> {
    let mut talks = settled_talks(lab)?;
    let (before, answered) = ([Held::of(lab, 0)?, Held::of(lab, 1)?], flood.answers(lab)?);
    let start = Instant::now();
    let (sent, exchanged) = flood.beside(lab, &mut talks, length()?)?;
    let (took, answered) = (start.elapsed(), flood.answers(lab)? - answered);
    println!(
        "{sent} SYN in {took:?}, {answered} answers recorded, {exchanged} messages there and back \
         meanwhile"
    );
    ensure!(
        answered >= ANSWERS,
        "{answered} answers of {sent} SYN: no flood"
    );
    for (node, before) in before.into_iter().enumerate() {
        let now = Held::of(lab, node)?;
        println!("{before:?}\n{now:?}");
        ensure!(
            now.places == PLACES && now.unknown == before.unknown,
            "{before:?}, {now:?}"
        );
        ensure!(now.memory < before.memory + GROWTH, "{before:?}, {now:?}");
        // All but a packet for each refresh, of which a flow has one in two seconds, and at the
        // most two that the flow's other direction brings forward.
        let refreshes = (took.as_secs() / 2 + 4) * PLACES as u64;
        let replayed = now.replayed - before.replayed;
        ensure!(
            replayed + refreshes >= 2 * exchanged,
            "{replayed} of {} packets, {refreshes}",
            2 * exchanged
        );
    }
    Ok(())
}

/// The sender is silent: it resets none of the connections, as one that hides behind addresses of
/// others. The one at the node port resets all.
#[test]
fn a_flood_of_syns_from_a_pod_takes_nothing_of_others() -> Result<()> {
    let lab = FastLab::new("flood-pod", &[])?;
    lab.beside.nft(SILENT)?;
    let listener = lab
        .far
        .bound(Family::V4.end(&lab.far)?, TcpListener::bind)?;
    let from = Family::V4.end(&lab.beside)?;
    changes_nothing(
        &lab,
        &Flood {
            host: &lab.beside,
            from,
            to: listener.local_addr()?,
            answering: 1,
        },
    )
}

#[test]
fn a_flood_of_syns_at_a_node_port_takes_nothing_of_others() -> Result<()> {
    let lab = FastLab::new("flood-port", &[])?;
    let at = Family::V4.end(&lab.near)?;
    let _listener = lab.near.bound(at, TcpListener::bind)?;
    let service = Service::new(Family::V4.service(1), Protocol::Tcp, [at]).at_node_port(NODE_PORT);
    ServiceRules::install(&lab.nodes.a, Backend::Nftables, Family::V4.pods())?.set(&[service])?;
    let [to, from] = [(11, NODE_PORT), (12, PORT)]
        .map(|(host, port)| SocketAddr::new(Family::V4.host(host), port));
    changes_nothing(
        &lab,
        &Flood {
            host: &lab.nodes.b,
            from,
            to,
            answering: 0,
        },
    )
}
