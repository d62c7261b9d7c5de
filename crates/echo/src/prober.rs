//! Sends the requests, and takes in the replies.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use flannel_backend_api::{PeerWay, Way, offload::OffloadTrials};
use flannel_host::family::{ByFamily, Family};
use flannel_reconcile::SharedPeers;
use prometheus::Histogram;
use socket2::SockRef;
use tokio::{
    net::UdpSocket,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    message::{nonce, request},
    offloaded::{OffloadPeer, Offloaded},
    round::Round,
    setup::EchoSetup,
    shared::SharedEchoes,
    silence::SilentPeers,
    socket::{EchoSockets, send_from},
    target::EchoTarget,
    unsummed::{TrialPeer, Unsummed},
};

/// After an error of a socket.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the longest IP header and a message; the rest of a longer reply is not read.
const REPLY: usize = 128;
/// `SO_PRIORITY` of the requests that the kernel is to carry. The programs validate a path for each
/// priority separately, and a path with this one has no other packets.
const KERNEL_PRIORITY: u32 = 6;

/// The work of the thread.
pub(super) struct Prober {
    sockets: ByFamily<Option<UdpSocket>>,
    identifier: u16,
    sequence: u16,
    round: Round,
    unsummed: Unsummed,
    offloaded: Offloaded,
    /// The trials of the present peers of `offloaded`.
    offload_trials: OffloadTrials,
    silence: SilentPeers,
    peers: SharedPeers,
    echoes: SharedEchoes,
    round_trips: Histogram,
}

impl Prober {
    /// To be called in the runtime that runs it.
    pub(super) fn new(sockets: EchoSockets, setup: EchoSetup) -> io::Result<Self> {
        let identifier = sockets.identifier;
        // tokio has no type for raw sockets; they send and receive like UDP sockets.
        let registered = |socket: Option<socket2::Socket>| {
            socket
                .map(|raw| UdpSocket::from_std(raw.into()))
                .transpose()
        };
        let ByFamily { v4, v6 } = sockets.into_sockets();
        let sockets = ByFamily {
            v4: registered(v4)?,
            v6: registered(v6)?,
        };
        let EchoSetup {
            interval,
            peers,
            echoes,
            round_trips,
        } = setup;
        Ok(Self {
            sockets,
            identifier,
            sequence: 0,
            round: Round::new(interval),
            unsummed: Unsummed::default(),
            offloaded: Offloaded::default(),
            offload_trials: OffloadTrials::default(),
            silence: SilentPeers::default(),
            peers,
            echoes,
            round_trips,
        })
    }

    /// Works for ever.
    pub(super) async fn run(mut self) -> Infallible {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = seconds.tick() => {
                    self.go_on_with_trials();
                    self.try_offloads();
                    self.follow_silence();
                    self.ask();
                }
                reply = receive(Family::V4, &self.sockets) => self.take(&reply),
                reply = receive(Family::V6, &self.sockets) => self.take(&reply),
            }
        }
    }

    /// Asks the peers whose turn it is in this second, and begins their trials.
    fn ask(&mut self) {
        let now = Instant::now();
        if self.round.is_over(now) {
            let can_ask = |target: &EchoTarget| self.sockets.get(target.family()).is_some();
            let targets: BTreeSet<_> = self
                .peers
                .list(EchoTarget::of)
                .into_iter()
                .flatten()
                .filter(can_ask)
                .collect();
            self.echoes.keep(&targets);
            self.keep_candidates();
            self.keep_offload_peers();
            self.round.begin(targets.into_iter().collect(), now);
        }
        for target in self.round.take().to_vec() {
            for address in target.addresses() {
                let nonce = rand::random();
                self.echoes.ask(target, address, nonce, Instant::now());
                let is_in_pods = target.node.is_some_and(|node| node != address);
                let source = self
                    .echoes
                    .own_gateway(target.family())
                    .filter(|_| is_in_pods);
                if let Some(error) = self.send_by(source, address, nonce) {
                    self.echoes.refuse(target, address, &error);
                }
            }
            self.begin_trial(target.address);
        }
    }

    /// Logs which peers have fallen silent, and which are no longer.
    fn follow_silence(&mut self) {
        let silent = self.echoes.silent();
        if self.silence.is_of(&silent) {
            return;
        }
        let name = |peer: &PeerWay| {
            let address = EchoTarget::of(peer)?.address;
            silent.contains(&address).then(|| {
                (
                    address,
                    format!("{} at {}", peer.peer.key, peer.peer.public_ip),
                )
            })
        };
        let change = self
            .silence
            .update(self.peers.list(name).into_iter().flatten().collect());
        if let Some(peers) = change.begun {
            tracing::warn!(
                peers,
                "peers that answered echo requests do not any more: they are down, or packets to \
                 or from them are lost"
            );
        }
        if let Some(peers) = change.ended {
            tracing::info!(peers, "peers answer echo requests again, or have left");
        }
        self.echoes
            .set_silent_names(self.silence.names().cloned().collect());
    }

    /// Ends the trials of the second before, and repeats those that failed.
    fn go_on_with_trials(&mut self) {
        let (silent, again) = self.unsummed.end(Instant::now());
        self.echoes.set_unsummed_lost(self.unsummed.lost());
        if !silent.is_empty() && self.set_priority(KERNEL_PRIORITY) {
            for address in silent {
                self.send(address, rand::random());
            }
            self.set_priority(0);
        }
        for address in again {
            self.begin_trial(address);
        }
    }

    /// Sends the requests of a trial, if one is due. The first request validates the path if no
    /// other packet has, and then the kernel carries it: it does not count.
    fn begin_trial(&mut self, address: IpAddr) {
        let Some(trial) = self.unsummed.begin(address, Instant::now(), rand::random) else {
            return;
        };
        self.send(address, rand::random());
        for nonce in trial {
            self.send(address, nonce);
        }
    }

    fn keep_candidates(&mut self) {
        let is_v6 = |peer: &PeerWay| peer.peer.public_ip.is_ipv6();
        let candidate = |peer: &PeerWay| {
            let address = tunnel_end(peer)
                .filter(|_| is_v6(peer) && matches!(peer.way, Way::Tunnel(Ok(_))))?;
            Some(TrialPeer {
                address,
                public: peer.peer.public_ip,
            })
        };
        let candidates = self.peers.list(candidate).into_iter().flatten().collect();
        let public = self
            .peers
            .list(|peer| Some(peer.peer.public_ip).filter(|_| is_v6(peer)));
        self.unsummed
            .keep(&candidates, &public.into_iter().flatten().collect());
    }

    /// Goes on with the trials of checksum offload.
    fn try_offloads(&mut self) {
        if self.echoes.offload_trials() != self.offload_trials {
            self.keep_offload_peers();
        }
        self.offloaded.go_on(Instant::now());
        self.echoes.set_offloaded_lost(&self.offloaded.lost());
    }

    fn keep_offload_peers(&mut self) {
        self.offload_trials = self.echoes.offload_trials();
        let trials = self.offload_trials;
        let candidate = |peer: &PeerWay| {
            let address = tunnel_end(peer)?;
            let round = (*trials.get(Family::of(address)))?;
            Some(OffloadPeer {
                address,
                public: peer.peer.public_ip,
                round,
            })
        };
        let peers = self.peers.list(candidate).into_iter().flatten().collect();
        self.offloaded.keep(&peers, Instant::now());
    }

    /// Sends a request. Returns the error if the kernel refuses it.
    fn send(&mut self, address: IpAddr, nonce: u64) -> Option<io::Error> {
        self.send_by(None, address, nonce)
    }

    /// The same from this address of the host, if it has that.
    fn send_by(
        &mut self,
        source: Option<IpAddr>,
        address: IpAddr,
        nonce: u64,
    ) -> Option<io::Error> {
        let family = Family::of(address);
        let socket = self.sockets.get(family).as_ref()?;
        self.sequence = self.sequence.wrapping_add(1);
        let message = request(family, self.identifier, self.sequence, nonce);
        if source.is_some_and(|source| send_from(socket, source, address, &message).is_ok()) {
            return None;
        }
        socket
            .try_send_to(&message, SocketAddr::new(address, 0))
            .err()
    }

    /// Sets the priority of what is sent over IPv6 from now on. Returns true if it was set.
    fn set_priority(&self, priority: u32) -> bool {
        let socket = self.sockets.get(Family::V6).as_ref();
        socket.is_some_and(|socket| SockRef::from(socket).set_priority(priority).is_ok())
    }

    fn take(&mut self, reply: &Reply) {
        self.unsummed.answer(reply.from, reply.nonce, reply.at);
        if let Some(time) = self.echoes.answer(reply.from, reply.nonce, reply.at) {
            self.round_trips.observe(time.as_secs_f64());
        }
    }
}

/// The address of a peer's tunnel device, where packets to the peer are encapsulated.
fn tunnel_end(peer: &PeerWay) -> Option<IpAddr> {
    matches!(peer.way, Way::Tunnel(_))
        .then(|| EchoTarget::of(peer))
        .flatten()
        .map(|target| target.address)
}

/// One reply.
struct Reply {
    from: IpAddr,
    nonce: u64,
    at: Instant,
}

/// The next reply of a family; never comes without a socket.
async fn receive(family: Family, sockets: &ByFamily<Option<UdpSocket>>) -> Reply {
    let Some(socket) = sockets.get(family) else {
        return pending().await;
    };
    loop {
        let mut packet = [0; REPLY];
        // An ICMP error about an earlier request does not count as a reply. After a persistent
        // error the loop pauses, so it costs little.
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            sleep(PAUSE).await;
            continue;
        };
        if let Some(nonce) = nonce(family, &packet[..length]) {
            return Reply {
                from: from.ip(),
                nonce,
                at: Instant::now(),
            };
        }
    }
}
