//! Short flows, one after the other: datagrams from ever new ports, and now and then a connection.
//!
//! No two flows of a round share a tuple, and each round has a server with its own ports. Every
//! message is answered, or the round fails.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Host, Pod, harness::wait::patient, host::joined};

/// Flows that are open at once.
const WIDTH: u16 = 64;
/// Messages of a flow, there and back.
const MESSAGES: u8 = 6;
const FIRST_PORT: u16 = 2048;
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The last datagram: the server ends.
const GOODBYE: [u8; 3] = [0xff; 3];

/// The flows of one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Flows of datagrams; at most 60,000.
    pub datagrams: u16,
    /// Connections.
    pub connections: u16,
}

/// Runs a round from one pod to another.
pub fn round(from: &Pod, to: &Pod, round: Round) -> Result<()> {
    let (udp, udp_at) = serve(to, SocketAddr::new(to.ip(), 0), serve_udp)?;
    let (tcp, tcp_at) = serve(to, SocketAddr::new(to.ip(), 0), move |at, ready| {
        serve_tcp(at, round.connections, ready)
    })?;
    let local = from.ip();
    from.enter(|| -> Result<()> {
        let mut left = round.connections;
        for first in (0..round.datagrams).step_by(WIDTH.into()) {
            datagrams(local, udp_at, first, WIDTH.min(round.datagrams - first))?;
            let share = u32::from(round.connections) * u32::from(first + 1)
                / u32::from(round.datagrams.max(1));
            while u32::from(round.connections - left) < share {
                connection(tcp_at)?;
                left -= 1;
            }
        }
        for _ in 0..left {
            connection(tcp_at)?;
        }
        Ok(UdpSocket::bind((local, 0))?
            .send_to(&GOODBYE, udp_at)
            .map(drop)?)
    })??;
    joined(udp)?;
    joined(tcp)
}

type Ready = mpsc::Sender<SocketAddr>;
type Server = std::thread::JoinHandle<Result<()>>;

/// Starts a server in a pod; where it listens.
fn serve(
    pod: &Host,
    at: SocketAddr,
    work: impl FnOnce(SocketAddr, &Ready) -> Result<()> + Send + 'static,
) -> Result<(Server, SocketAddr)> {
    let (ready, started) = mpsc::channel();
    let server = pod.thread(move || work(at, &ready))?;
    match started.recv_timeout(patient(ANSWER_LIMIT)) {
        Ok(address) => Ok((server, address)),
        Err(_) => joined(server).and_then(|()| anyhow::bail!("the server did not start")),
    }
}

fn serve_udp(at: SocketAddr, ready: &Ready) -> Result<()> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(patient(ANSWER_LIMIT)))?;
    ready
        .send(socket.local_addr()?)
        .context("nobody waits for the server")?;
    let mut message = [0; 8];
    loop {
        let (length, client) = socket
            .recv_from(&mut message)
            .context("waiting for a datagram")?;
        if message[..length] == GOODBYE {
            return Ok(());
        }
        socket.send_to(&message[..length], client)?;
    }
}

fn serve_tcp(at: SocketAddr, connections: u16, ready: &Ready) -> Result<()> {
    let listener = TcpListener::bind(at)?;
    ready
        .send(listener.local_addr()?)
        .context("nobody waits for the server")?;
    for _ in 0..connections {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patient(ANSWER_LIMIT)))?;
        let mut message = [0];
        while stream.read(&mut message)? == 1 {
            stream.write_all(&message)?;
        }
    }
    Ok(())
}

/// Runs several flows in parallel, each from its own port.
fn datagrams(local: IpAddr, server: SocketAddr, first: u16, count: u16) -> Result<()> {
    let open = |port: u16| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((local, FIRST_PORT + port))
            .with_context(|| format!("port {}", FIRST_PORT + port))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(patient(ANSWER_LIMIT)))?;
        Ok(socket)
    };
    let sockets: Vec<_> = (first..first + count)
        .filter(|port| FIRST_PORT + port != server.port())
        .map(open)
        .collect::<Result<_>>()?;
    for message in 0..MESSAGES {
        for socket in &sockets {
            socket.send(&[message])?;
        }
        for socket in &sockets {
            let mut answer = [0; 8];
            let received = match socket.recv(&mut answer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Err(error).context("no answer")
                }
                received => received.context("an answer"),
            };
            let length = received
                .with_context(|| format!("message {message} from {:?}", socket.local_addr()))?;
            ensure!(answer[..length] == [message], "another message came back");
        }
    }
    Ok(())
}

fn connection(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&server, patient(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patient(ANSWER_LIMIT)))?;
    for message in 0..MESSAGES {
        let mut answer = [0];
        stream.write_all(&[message])?;
        stream
            .read_exact(&mut answer)
            .with_context(|| format!("message {message} of a connection"))?;
        ensure!(answer == [message], "another message came back");
    }
    Ok(())
}
