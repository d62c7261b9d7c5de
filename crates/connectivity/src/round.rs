//! One round with a server: its socket, its time and the errors of probes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    time::{Instant, sleep, timeout},
};

use super::message::{self, ANSWER, Answered};

/// Rounds of each protocol.
pub(super) const ROUNDS: u64 = 10;
/// For one round, or one connection.
pub(super) const ROUND: Duration = Duration::from_secs(2);
/// Before a target that does not answer yet is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// A target that does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Nothing comes back.
    #[error("no answer within {} s", ROUND.as_secs())]
    Silent,
    /// Some rounds have no answer.
    #[error("{lost} of {ROUNDS} packets lost")]
    Lost {
        /// The number of rounds.
        lost: u64,
    },
    /// Packets as large as the device allows do not pass.
    #[error("packets of more than {size} bytes do not pass, and the MTU of the device is {device}")]
    Smaller {
        /// The largest packet that passes, in bytes.
        size: u32,
        /// The MTU of the device in bytes.
        device: u32,
    },
    /// Packets pass, and none that may not be fragmented.
    #[error("no packet passes that may not be fragmented")]
    Fragmented,
    /// The answer is another's.
    #[error("the answer is not that of an echo server")]
    Foreign,
    /// The answers by UDP are those of another server than by TCP.
    #[error("{name} answered, another server than by TCP")]
    OtherServer {
        /// Its name.
        name: String,
    },
    /// The name does not exist, or it has no address.
    #[error("the name has no address")]
    NoAddress,
}

/// A socket of UDP whose packets go to one address.
pub(super) async fn socket_to(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

/// Tries again until the deadline.
pub(super) async fn patient<T, F: Future<Output = Result<T, ProbeError>>>(
    deadline: Instant,
    work: impl Fn() -> F,
) -> Result<T, ProbeError> {
    loop {
        match work().await {
            Err(_) if Instant::now() < deadline => sleep(AGAIN).await,
            result => return result,
        }
    }
}

/// One datagram of a length, and its answer; late ones to earlier rounds are left out.
pub(super) async fn udp_round(
    socket: &UdpSocket,
    number: u64,
    length: usize,
    limit: Duration,
) -> Result<Answered, ProbeError> {
    let round = async {
        socket.send(&message::request(number, length)).await?;
        let mut answer = [0; ANSWER];
        loop {
            let length = socket.recv(&mut answer).await?;
            match message::read(&answer[..length]) {
                Some(answered) if answered.number == number => return Ok(answered),
                Some(_late) => {}
                None => return Err(ProbeError::Foreign),
            }
        }
    };
    timeout(limit, round)
        .await
        .unwrap_or(Err(ProbeError::Silent))
}
