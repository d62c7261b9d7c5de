//! Probes of a test pod: rounds with an echo server, connections to any server.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

use super::{
    message::{self, ANSWER, REQUEST},
    mtu,
    round::{ProbeError, ROUND, ROUNDS, patient, socket_to, udp_round},
    target::{Outcome, ProbeKind, Target},
};

/// Targets at the same time.
const AT_ONCE: usize = 32;

/// Probes all targets, some at once. Until `patience` is over each one may take its time to answer
/// for the first time; then it has to answer every time.
pub async fn probe(targets: &[Target], patience: Duration) -> Vec<Outcome> {
    let deadline = Instant::now() + patience;
    let mut outcomes: Vec<_> = stream::iter(targets)
        .map(|target| one(target, deadline))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    outcomes.sort_by_key(|outcome| outcome.key);
    outcomes
}

async fn one(target: &Target, deadline: Instant) -> Outcome {
    let mut outcome = Outcome {
        key: target.key,
        ..Outcome::default()
    };
    let to = match resolve(&target.address).await {
        Ok(to) => to,
        Err(error) => {
            return Outcome {
                error: Some(error.to_string()),
                ..outcome
            };
        }
    };
    outcome.local = local(to).await.ok().map(|address| address.to_string());
    let result = match target.kind {
        ProbeKind::Echo => echo(to, deadline, &mut outcome).await,
        ProbeKind::Connect => patient(deadline, || connect(to))
            .await
            .map(drop)
            .map_err(|error| ("tcp", error)),
        ProbeKind::Mtu => mtu::measure(to, deadline, &mut outcome)
            .await
            .map_err(|error| ("udp", error)),
    };
    if let Err((protocol, error)) = result {
        (outcome.protocol, outcome.error) = (Some(protocol.to_owned()), Some(error.to_string()));
    }
    outcome
}

async fn resolve(address: &str) -> Result<SocketAddr, ProbeError> {
    lookup_host(address)
        .await?
        .next()
        .ok_or(ProbeError::NoAddress)
}

/// The address that packets to there have.
async fn local(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = socket_to(to).await?;
    Ok(socket.local_addr()?.ip())
}

async fn echo(
    to: SocketAddr,
    deadline: Instant,
    outcome: &mut Outcome,
) -> Result<(), (&'static str, ProbeError)> {
    let tcp = |error| ("tcp", error);
    patient(deadline, async || tcp_rounds(to, 1).await)
        .await
        .map_err(tcp)?;
    outcome.server = Some(tcp_rounds(to, ROUNDS).await.map_err(tcp)?);
    let udp = |error| ("udp", error);
    patient(deadline, async || udp_rounds(to, 1).await)
        .await
        .map_err(udp)?;
    let by_udp = udp_rounds(to, ROUNDS).await.map_err(udp)?;
    // That of TCP is compared with the one that was asked for.
    if outcome.server.as_ref() == Some(&by_udp) {
        Ok(())
    } else {
        Err(udp(ProbeError::OtherServer { name: by_udp }))
    }
}

async fn connect(to: SocketAddr) -> Result<TcpStream, ProbeError> {
    match timeout(ROUND, TcpStream::connect(to)).await {
        Ok(stream) => Ok(stream?),
        Err(_elapsed) => Err(ProbeError::Silent),
    }
}

/// Rounds over one connection; the name of the server.
async fn tcp_rounds(to: SocketAddr, rounds: u64) -> Result<String, ProbeError> {
    let mut stream = connect(to).await?;
    let mut name = String::new();
    for number in 0..rounds {
        let round = async {
            stream.write_all(&message::request(number, REQUEST)).await?;
            let mut answer = [0; ANSWER];
            stream.read_exact(&mut answer).await?;
            Ok::<_, io::Error>(message::read(&answer))
        };
        let answered = timeout(ROUND, round)
            .await
            .map_err(|_elapsed| ProbeError::Silent)??;
        name = answered
            .filter(|answered| answered.number == number)
            .ok_or(ProbeError::Foreign)?
            .name;
    }
    Ok(name)
}

/// Rounds of one flow; the name of the server.
async fn udp_rounds(to: SocketAddr, rounds: u64) -> Result<String, ProbeError> {
    let socket = socket_to(to).await?;
    let (mut lost, mut name) = (0, String::new());
    for number in 0..rounds {
        match udp_round(&socket, number, ANSWER, ROUND).await {
            Err(ProbeError::Silent) => lost += 1,
            result => name = result?.name,
        }
    }
    match lost {
        0 => Ok(name),
        _ if lost == rounds => Err(ProbeError::Silent),
        _ => Err(ProbeError::Lost { lost }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::UdpSocket;

    use super::*;
    use crate::serve::serve;

    /// A server on a free port of this host; the port.
    fn server() -> u16 {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("an address").port();
        drop(taken);
        serve_on(port);
        port
    }

    fn serve_on(port: u16) {
        tokio::spawn(async move { serve("here", &[Ipv4Addr::LOCALHOST.into()], port).await });
    }

    fn target(kind: ProbeKind, port: u16) -> Target {
        Target {
            key: 1,
            kind,
            address: format!("127.0.0.1:{port}"),
        }
    }

    #[tokio::test]
    async fn a_server_answers_every_probe() {
        let port = server();
        let kinds =
            [ProbeKind::Echo, ProbeKind::Connect, ProbeKind::Mtu].map(|kind| target(kind, port));
        let outcomes = probe(&kinds, Duration::from_secs(20)).await;
        assert!(
            outcomes.iter().all(|outcome| outcome.error.is_none()),
            "{outcomes:?}"
        );
        assert!(
            outcomes
                .iter()
                .any(|outcome| outcome.server.as_deref() == Some("here")),
            "{outcomes:?}"
        );
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.local.as_deref() == Some("127.0.0.1")),
            "{outcomes:?}"
        );
    }

    #[tokio::test]
    async fn a_server_waits_for_a_port_in_use() {
        let earlier = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port");
        let at = earlier.local_addr().expect("an address");
        serve_on(at.port());
        let deadline = Instant::now() + Duration::from_secs(20);
        // Its TCP port is bound before its UDP port.
        patient(deadline, async || connect(at).await)
            .await
            .expect("a connection");
        drop(earlier);
        let outcome = probe(
            &[target(ProbeKind::Echo, at.port())],
            Duration::from_secs(20),
        )
        .await
        .remove(0);
        assert_eq!(
            (outcome.server.as_deref(), outcome.error),
            (Some("here"), None)
        );
    }

    #[tokio::test]
    async fn a_port_without_a_server_fails_with_its_protocol() {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        for (kind, protocol) in [
            (ProbeKind::Echo, "tcp"),
            (ProbeKind::Connect, "tcp"),
            (ProbeKind::Mtu, "udp"),
        ] {
            let outcome = probe(&[target(kind, port)], Duration::ZERO).await.remove(0);
            assert!(outcome.error.is_some(), "{outcome:?}");
            assert_eq!(outcome.protocol.as_deref(), Some(protocol), "{outcome:?}");
        }
    }
}
