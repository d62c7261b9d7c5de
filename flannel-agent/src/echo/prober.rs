//! Sends the requests, and takes in the replies.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use flannel_host::family::Family;
use prometheus::Histogram;
use tokio::{
    net::UdpSocket,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    ByFamily, EchoSetup, address,
    book::EchoBook,
    message::{nonce, request},
    round::Round,
    socket::EchoSockets,
};
use crate::reconcile::PeerBook;

/// After an error of a socket.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the longest IP header and a message; the rest of a longer reply is not read.
const REPLY: usize = 128;

/// The work of the thread.
pub(super) struct Prober {
    sockets: ByFamily<Option<UdpSocket>>,
    identifier: u16,
    sequence: u16,
    round: Round,
    peers: PeerBook,
    book: EchoBook,
    round_trips: Histogram,
}

impl Prober {
    /// To be called in the runtime that runs it.
    pub(super) fn new(sockets: EchoSockets, setup: EchoSetup) -> io::Result<Self> {
        let identifier = sockets.identifier;
        // A raw socket has no type of its own in tokio, and sends and receives like this one.
        let registered =
            |socket: Option<socket2::Socket>| socket.map(|raw| UdpSocket::from_std(raw.into())).transpose();
        let ByFamily { v4, v6 } = sockets.into_sockets();
        let sockets = ByFamily { v4: registered(v4)?, v6: registered(v6)? };
        let EchoSetup { interval, peers, book, round_trips } = setup;
        Ok(Self { sockets, identifier, sequence: 0, round: Round::new(interval), peers, book, round_trips })
    }

    /// Works for ever.
    pub(super) async fn run(mut self) -> Infallible {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = seconds.tick() => self.ask(),
                reply = receive(Family::V4, &self.sockets) => self.take(&reply),
                reply = receive(Family::V6, &self.sockets) => self.take(&reply),
            }
        }
    }

    /// Asks the peers whose turn it is in this second.
    fn ask(&mut self) {
        let now = Instant::now();
        if self.round.is_over(now) {
            let can_ask = |address: &IpAddr| self.sockets.get(Family::of(*address)).is_some();
            let addresses: BTreeSet<IpAddr> = self.peers.list(address).into_iter().flatten().filter(can_ask).collect();
            self.book.keep(&addresses);
            self.round.begin(addresses.into_iter().collect(), now);
        }
        for address in self.round.take().to_vec() {
            self.sequence = self.sequence.wrapping_add(1);
            self.send(address);
        }
    }

    fn send(&self, address: IpAddr) {
        let family = Family::of(address);
        let Some(socket) = self.sockets.get(family) else { return };
        let nonce = rand::random();
        let message = request(family, self.identifier, self.sequence, nonce);
        self.book.ask(address, nonce, Instant::now());
        if let Err(error) = socket.try_send_to(&message, SocketAddr::new(address, 0)) {
            self.book.refuse(address, &error);
        }
    }

    fn take(&self, reply: &Reply) {
        if let Some(time) = self.book.answer(reply.from, reply.nonce, reply.at) {
            self.round_trips.observe(time.as_secs_f64());
        }
    }
}

/// One reply.
struct Reply {
    from: IpAddr,
    nonce: u64,
    at: Instant,
}

/// The next reply of a family; never comes without a socket.
async fn receive(family: Family, sockets: &ByFamily<Option<UdpSocket>>) -> Reply {
    let Some(socket) = sockets.get(family) else { return pending().await };
    loop {
        let mut packet = [0; REPLY];
        // An ICMP error about an earlier request is no reply; one that stays costs little.
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            sleep(PAUSE).await;
            continue;
        };
        if let Some(nonce) = nonce(family, &packet[..length]) {
            return Reply { from: from.ip(), nonce, at: Instant::now() };
        }
    }
}
