//! Request and response, one at a time: the latency of a path.
//!
//! A message is eight bytes. Over UDP it carries its number, so that a late answer is not taken for
//! the next one.

use std::{
    cell::RefCell,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::span::Span;
use crate::{Host, harness::wait::patient, host::joined};

const ANSWER_LIMIT: Duration = Duration::from_millis(500);
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// The last request over UDP: the server ends.
const GOODBYE: [u8; 8] = [0xff; 8];

/// The transport protocol of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Protocol {
    /// One connection, without Nagle's delay.
    Tcp,
    /// One datagram each way.
    Udp,
}

impl Protocol {
    /// The name in rules of firewalls: `tcp` or `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// The measurements of a client. Times are in microseconds, except for `seconds`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct RrReport {
    /// Requests that were answered.
    pub transactions: u64,
    /// The time the client ran, in seconds.
    pub seconds: f64,
    /// Requests without an answer (UDP only).
    pub lost: u64,
    /// The shortest time to an answer.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// 99 of 100 were answered within this time.
    pub p99: f64,
}

/// Measures from `from` to the address `at` of `to`, with threads of this process as client and
/// server.
pub fn rr(
    from: &Host,
    to: &Host,
    at: IpAddr,
    protocol: Protocol,
    duration: Duration,
) -> Result<RrReport> {
    let (bound, address) = mpsc::channel();
    let server = to.thread(move || {
        serve(protocol, SocketAddr::new(at, 0), |address| {
            bound.send(address).context("nobody waits for the server")
        })
    })?;
    let Ok(address) = address.recv_timeout(patient(Duration::from_secs(5))) else {
        return joined(server).and_then(|()| bail!("the server did not start"));
    };
    let report = from.enter(|| measure(protocol, address, Span::cold(duration), &mut || {}))?;
    let served = joined(server);
    let report = report.with_context(|| format!("{} -> {address}", from.name()))?;
    served.map(|()| report)
}

/// Answers one client at `bind` until it has gone. `ready` gets the bound address.
pub fn serve(
    protocol: Protocol,
    bind: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    match protocol {
        Protocol::Tcp => {
            let listener = TcpListener::bind(bind).with_context(|| bind.to_string())?;
            ready(listener.local_addr()?)?;
            serve_tcp(&listener.accept()?.0)
        }
        Protocol::Udp => {
            let socket = UdpSocket::bind(bind).with_context(|| bind.to_string())?;
            ready(socket.local_addr()?)?;
            serve_udp(&socket)
        }
    }
}

fn serve_tcp(mut stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut message = [0; 8];
    loop {
        match stream.read_exact(&mut message) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        stream.write_all(&message)?;
    }
}

fn serve_udp(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(patient(IDLE_LIMIT)))?;
    let mut message = [0; 8];
    loop {
        let (length, client) = socket
            .recv_from(&mut message)
            .context("waiting for a request")?;
        if message == GOODBYE {
            return Ok(());
        }
        socket.send_to(&message[..length], client)?;
    }
}

/// Sends requests to a server for this long, and reports on the measurement, which `begin`
/// announces.
pub fn measure(
    protocol: Protocol,
    server: SocketAddr,
    span: Span,
    begin: &mut dyn FnMut(),
) -> Result<RrReport> {
    match protocol {
        Protocol::Tcp => {
            let mut stream = TcpStream::connect_timeout(&server, patient(Duration::from_secs(5)))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patient(IDLE_LIMIT)))?;
            let mut answer = [0; 8];
            repeat(span, begin, |number| {
                stream.write_all(&number.to_be_bytes())?;
                stream.read_exact(&mut answer)?;
                Ok(true)
            })
        }
        Protocol::Udp => {
            let socket = connect(server)?;
            let report = repeat(span, begin, |number| ask(&socket, number));
            socket.send(&GOODBYE)?;
            report
        }
    }
}

/// Measures requests and answers over UDP, each request from a new port, like DNS queries.
pub fn measure_queries(
    server: SocketAddr,
    span: Span,
    begin: &mut dyn FnMut(),
) -> Result<RrReport> {
    let report = repeat(span, begin, |number| ask(&connect(server)?, number));
    connect(server)?.send(&GOODBYE)?;
    report
}

/// Returns a socket at a free port, connected to the server.
fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(socket)
}

/// Sends the datagram with this number. Returns true if it is answered in time.
fn ask(socket: &UdpSocket, number: u64) -> io::Result<bool> {
    let mut answer = [0; 8];
    socket.send(&number.to_be_bytes())?;
    while answer != number.to_be_bytes() {
        match socket.recv(&mut answer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            received => received?,
        };
    }
    Ok(true)
}

fn repeat(
    span: Span,
    begin: &mut dyn FnMut(),
    mut transaction: impl FnMut(u64) -> io::Result<bool>,
) -> Result<RrReport> {
    // The report leaves out the warm-up.
    let done = RefCell::new((Vec::new(), 0));
    let mut begin = || {
        *done.borrow_mut() = (Vec::new(), 0);
        begin();
    };
    let (_, time) = span.repeat(&mut begin, |number| {
        let before = Instant::now();
        let answered = transaction(number).with_context(|| format!("request {number}"))?;
        let (times, lost) = &mut *done.borrow_mut();
        if answered {
            times.push(before.elapsed());
        } else {
            *lost += 1;
        }
        anyhow::Ok(())
    })?;
    let ((mut times, lost), seconds) = (done.into_inner(), time.as_secs_f64());
    ensure!(!times.is_empty(), "not one of {lost} requests was answered");
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    Ok(RrReport {
        transactions: times.len() as u64,
        seconds,
        lost,
        min: at(0),
        median: at(50),
        p99: at(99),
    })
}
