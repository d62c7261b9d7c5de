//! The echo server in a test pod: TCP and UDP, on one port.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::{Instant, sleep, timeout},
};

use super::message::{self, ANSWER, REQUEST};

/// The longest wait for a request on a connection.
const IDLE: Duration = Duration::from_secs(30);
/// After an error, so that one that stays costs little.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest wait for a port in use: a pod of an earlier test leaves the API server before its
/// process ends.
const TAKEN: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);
/// The largest datagram.
const DATAGRAM: usize = 65_536;

/// Serves until the process ends. Without addresses, on all of them: of both families where there
/// is IPv6.
pub async fn serve(name: &str, addresses: &[IpAddr], port: u16) -> anyhow::Result<()> {
    let name: Arc<str> = name.into();
    let any = if has_ipv6() {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let addresses = if addresses.is_empty() {
        &[any][..]
    } else {
        addresses
    };
    let mut servers = FuturesUnordered::new();
    for address in addresses {
        let at = SocketAddr::new(*address, port);
        let failed = || format!("cannot listen on {at}; another port may be free (--port)");
        let tcp = once_free(|| TcpListener::bind(at))
            .await
            .with_context(failed)?;
        let udp = once_free(|| UdpSocket::bind(at))
            .await
            .with_context(failed)?;
        servers.push(tokio::spawn(accept(tcp, Arc::clone(&name))));
        servers.push(tokio::spawn(datagrams(udp, Arc::clone(&name))));
    }
    // Each serves for ever, or ends with its error.
    match servers.next().await {
        Some(ended) => ended?.context("a server ended"),
        None => Ok(()),
    }
}

/// Binds a port, and waits for it while another process has it.
async fn once_free<T, F: Future<Output = io::Result<T>>>(bind: impl Fn() -> F) -> io::Result<T> {
    let deadline = Instant::now() + TAKEN;
    loop {
        match bind().await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(AGAIN).await;
            }
            result => return result,
        }
    }
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

async fn accept(listener: TcpListener, name: Arc<str>) -> io::Result<()> {
    loop {
        // A client that is gone already, or no descriptor is left: the next one may be served.
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let name = Arc::clone(&name);
        // A client that breaks off ends only its own connection.
        tokio::spawn(async move { rounds(stream, &name).await });
    }
}

/// One answer to each request.
async fn rounds(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let mut request = [0; REQUEST];
    loop {
        timeout(IDLE, stream.read_exact(&mut request)).await??;
        let Some(answer) = message::answer(&request, name) else {
            return Ok(());
        };
        stream.write_all(&answer).await?;
    }
}

async fn datagrams(socket: UdpSocket, name: Arc<str>) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        // An ICMP error about an earlier answer is the client's.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            sleep(PAUSE).await;
            continue;
        };
        let answer = message::answer(&buffer[..length], &name).filter(|_| length >= ANSWER);
        if let Some(answer) = answer {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}
