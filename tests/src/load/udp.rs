//! A UDP stream of numbered datagrams between two hosts, and what became of each.
//!
//! Bounded in packets and in seconds. The receiver's buffer is far larger than a burst, so a
//! datagram lost in this process shows as such ([`UdpReport::receiver_drops`]) and not as a loss of
//! the network.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::tally::Tally;
use crate::{Host, Pod, harness::wait::patient, host::joined};

const RECEIVE_BUFFER: usize = 32 << 20;
const TICK: Duration = Duration::from_millis(1);
/// At most the datagrams of so long in one burst.
const LONGEST_BURST: Duration = Duration::from_millis(5);
/// After this long without a datagram behind the last one sent, what is missing is lost.
const QUIET: Duration = Duration::from_millis(500);
const MOST_PACKETS: u64 = 5_000_000;
const MOST_TIME: Duration = Duration::from_mins(8);

/// The datagrams to send.
#[derive(Clone, Copy, Debug)]
pub struct UdpLoad {
    /// Datagrams a second.
    pub pps: u32,
    /// At most this long.
    pub duration: Duration,
    /// Bytes in a datagram, 8 at least: the first eight are its number.
    pub payload: usize,
}

/// The result of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpReport {
    /// Datagrams the kernel took from the sender.
    pub sent: u64,
    /// Numbers that arrived, each counted once.
    pub received: u64,
    /// Numbers that did not arrive, as ranges.
    pub lost: Vec<RangeInclusive<u64>>,
    /// Arrivals of a number that had arrived before.
    pub duplicated: u64,
    /// First arrivals behind a higher number.
    pub reordered: u64,
    /// `UdpRcvbufErrors` of the receiver's network namespace during the stream.
    pub rcvbuf_errors: u64,
    /// Datagrams the receiving socket dropped (last column of `/proc/net/udp`).
    pub receiver_drops: u64,
    /// Packets of any kind that the whole machine dropped because a CPU's queue of packets to
    /// receive was full (second column of `/proc/net/softnet_stat`).
    pub backlog_drops: u64,
    /// The longest time between two arrivals.
    pub longest_gap: Duration,
}

impl UdpReport {
    /// Returns the number of missing datagrams.
    pub fn lost_count(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Fails unless every datagram arrived, each once, and the receiver's buffer never overflowed.
    pub fn expect_complete(&self) -> Result<()> {
        ensure!(
            self.rcvbuf_errors == 0 && self.receiver_drops == 0,
            "the receiver fell behind: {self:?}"
        );
        ensure!(
            self.lost.is_empty() && self.duplicated == 0 && self.sent > 0,
            "lost or doubled: {self:?}"
        );
        Ok(())
    }
}

/// The progress of a stream, for a test that looks while it runs.
#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    /// Datagrams sent so far.
    sent: AtomicU64,
    /// One more than the highest number that arrived.
    arrived: AtomicU64,
}

/// A stream that is being sent.
#[derive(Debug)]
pub struct UdpRun {
    progress: Arc<Progress>,
    receiver: JoinHandle<Result<UdpReport>>,
}

/// Sends `pps` datagrams a second for `duration` and reports.
pub fn udp_stream(from: &Pod, to: &Pod, pps: u32, duration: Duration) -> Result<UdpReport> {
    UdpRun::start(
        from,
        to,
        to.ip(),
        UdpLoad {
            pps,
            duration,
            payload: 64,
        },
    )?
    .wait()
}

impl UdpRun {
    /// Starts a stream from `from` to the address `at` of `to`, which is up when this returns.
    pub fn start(from: &Host, to: &Host, at: IpAddr, load: UdpLoad) -> Result<Self> {
        let packets = packets_in(load.duration, load.pps);
        ensure!(
            load.payload >= 8,
            "a datagram of {} bytes has no room for its number",
            load.payload
        );
        ensure!(
            packets <= MOST_PACKETS && load.duration <= MOST_TIME,
            "{load:?} is more than a test may send"
        );
        let progress = Arc::new(Progress::default());
        let (bound, address) = mpsc::channel();
        let (done, sent) = mpsc::channel();
        let limit = load.duration + patient(Duration::from_secs(10));
        let seen = Arc::clone(&progress);
        let receiver = to.thread(move || receive(at, &bound, &sent, limit, &seen.arrived))?;
        let target = address.recv_timeout(patient(Duration::from_secs(5)));
        let Ok(target) = target else {
            return Err(joined(receiver).expect_err("a receiver without a socket failed"));
        };
        let sender = Arc::clone(&progress);
        from.thread(move || {
            done.send(send(target, load, packets, &sender))
                .context("the receiver is gone")
        })?;
        Ok(Self { progress, receiver })
    }

    /// The number of datagrams that were sent so far.
    pub fn sent(&self) -> u64 {
        self.progress.sent.load(Ordering::Relaxed)
    }

    /// One more than the highest number that arrived so far.
    pub fn arrived(&self) -> u64 {
        self.progress.arrived.load(Ordering::Relaxed)
    }

    /// Waits for the end of the stream.
    pub fn wait(self) -> Result<UdpReport> {
        joined(self.receiver)
    }

    /// Ends the stream now.
    pub fn stop(self) -> Result<UdpReport> {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.wait()
    }
}

fn packets_in(time: Duration, pps: u32) -> u64 {
    u64::try_from(time.as_micros())
        .unwrap_or(u64::MAX)
        .saturating_mul(u64::from(pps))
        / 1_000_000
}

/// Small bursts, one each tick. A sender that was kept from its CPU catches up in several: at once,
/// the datagrams of 100 ms would overflow the kernel's queue of packets to receive (1000,
/// `net.core.netdev_max_backlog`), a loss of the load and not of what is tested.
fn send(target: SocketAddr, load: UdpLoad, packets: u64, progress: &Progress) -> Result<u64> {
    let any = if target.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    let mut datagram = vec![0; load.payload];
    let start = Instant::now();
    let most = packets_in(LONGEST_BURST, load.pps) + 1;
    let mut number = 0;
    while number < packets && !progress.stop.load(Ordering::Relaxed) {
        let due = (packets_in(start.elapsed(), load.pps) + 1).min(number + most);
        while number < due.min(packets) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            socket
                .send(&datagram)
                .with_context(|| format!("datagram {number} to {target}"))?;
            number += 1;
        }
        progress.sent.store(number, Ordering::Relaxed);
        thread::sleep(TICK);
    }
    Ok(number)
}

fn receive(
    at: IpAddr,
    bound: &mpsc::Sender<SocketAddr>,
    sent: &mpsc::Receiver<Result<u64>>,
    limit: Duration,
    arrived: &AtomicU64,
) -> Result<UdpReport> {
    let socket = UdpSocket::bind((at, 0)).with_context(|| format!("a socket at {at}"))?;
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).context("SO_RCVBUFFORCE")?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (errors_before, backlog_before) = (rcvbuf_errors(at)?, backlog_drops()?);
    let address = socket.local_addr()?;
    bound
        .send(address)
        .context("nobody waits for the receiver")?;
    let tally = tally(&socket, sent, limit, arrived)?;
    let mut report = tally.report();
    report.rcvbuf_errors = rcvbuf_errors(at)? - errors_before;
    report.receiver_drops = socket_drops(address)?;
    report.backlog_drops = backlog_drops()? - backlog_before;
    Ok(report)
}

fn tally(
    socket: &UdpSocket,
    sent: &mpsc::Receiver<Result<u64>>,
    limit: Duration,
    arrived: &AtomicU64,
) -> Result<Tally> {
    let start = Instant::now();
    let quiet = patient(QUIET);
    let mut tally = Tally::default();
    let mut buffer = vec![0; 65_536];
    let mut end = None;
    let mut last = Instant::now();
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let number = buffer[..length]
                    .first_chunk()
                    .map(|bytes| u64::from_be_bytes(*bytes));
                let number = number.context("a datagram without a number")?;
                tally.arrived(number, last.elapsed());
                arrived.fetch_max(number + 1, Ordering::Relaxed);
                last = Instant::now();
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error).context("receiving"),
        }
        if end.is_none() {
            match sent.try_recv() {
                Ok(count) => {
                    tally.sent = count?;
                    end = Some(Instant::now());
                }
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => return Err(anyhow!("the sender failed")),
            }
        }
        if let Some(end) = end {
            let still = last.max(end).elapsed() >= quiet;
            if still || tally.is_complete() {
                return Ok(tally);
            }
        }
        ensure!(
            start.elapsed() < limit,
            "the stream did not end within {limit:?}"
        );
    }
}

/// `/proc/net` is the main thread's; this one is in another namespace.
fn rcvbuf_errors(at: IpAddr) -> Result<u64> {
    if at.is_ipv6() {
        let text = fs::read_to_string("/proc/thread-self/net/snmp6")?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
        return value
            .context("no Udp6RcvbufErrors")?
            .trim()
            .parse()
            .context("Udp6RcvbufErrors");
    }
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (
        lines.next().context("no Udp names")?,
        lines.next().context("no Udp values")?,
    );
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs
        .find(|(name, _)| *name == "RcvbufErrors")
        .context("no RcvbufErrors")?;
    value.parse().context("RcvbufErrors")
}

fn backlog_drops() -> Result<u64> {
    let text = fs::read_to_string("/proc/net/softnet_stat")?;
    let dropped = text.lines().map(|line| {
        let column = line
            .split_ascii_whitespace()
            .nth(1)
            .context("no second column in softnet_stat")?;
        u64::from_str_radix(column, 16).context("softnet_stat")
    });
    dropped.sum()
}

fn socket_drops(address: SocketAddr) -> Result<u64> {
    let file = if address.is_ipv4() { "udp" } else { "udp6" };
    let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
    let port = format!(":{:04X}", address.port());
    let line = text.lines().find(|line| {
        line.split_ascii_whitespace()
            .nth(1)
            .is_some_and(|end| end.ends_with(&port))
    });
    let drops = line
        .and_then(|line| line.split_ascii_whitespace().last())
        .context("the socket is not listed")?;
    drops.parse().context("drops")
}
