//! Flows of datagrams: the test writes every byte of them, but for those the kernel cuts.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use flannel_tests::{
    Host,
    differential::{
        packets::{self, Key, LABEL},
        record::Record,
        scenario::{Direction, Flow, Kind, Phases, Place, Scenario},
    },
    harness::wait::patient,
    load::rr::Protocol,
    packet::{Packet, pattern},
};
use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto,
        setsockopt, socket, sockopt,
    },
};

use super::lab::DiffLab;

/// The answers' receiver must be known by then, or there are none in this run.
const FIRST_ARRIVAL: Duration = Duration::from_millis(400);
/// Segments of a buffer, and bytes of each.
const SEGMENTS: u32 = 8;
const SEGMENT: u16 = 1000;

/// Sends IP packets as they are, from one host.
struct Sender([OwnedFd; 2]);

impl Sender {
    fn new(host: &Host) -> Result<Self> {
        host.enter(|| {
            let open = |family| {
                socket(
                    family,
                    SockType::Raw,
                    SockFlag::SOCK_CLOEXEC,
                    SockProtocol::Raw,
                )
            };
            Ok(Self([
                open(AddressFamily::Inet)?,
                open(AddressFamily::Inet6)?,
            ]))
        })?
    }

    fn send(&self, packet: &Packet) -> Result<()> {
        let socket = &self.0[usize::from(packet.destination.is_ipv6())];
        let to = SockaddrStorage::from(SocketAddr::new(packet.destination, 0));
        match sendto(socket.as_raw_fd(), &packet.bytes(), &to, MsgFlags::empty()) {
            // An error of ICMP about an earlier packet.
            Ok(_) | Err(Errno::EHOSTUNREACH | Errno::ECONNREFUSED) => Ok(()),
            Err(error) => Err(error).context("sending a packet"),
        }
    }
}

/// All flows of datagrams of a run.
pub(crate) struct Datagrams {
    near: Sender,
    servers: [Sender; 4],
    flows: Vec<Ends>,
    phases: Phases,
}

/// Both ends of a flow.
struct Ends {
    flow: Flow,
    client: UdpSocket,
    server: Option<UdpSocket>,
    at: SocketAddr,
    destination: SocketAddr,
    /// Whom the server answers: as whom it sees the client.
    asker: Option<SocketAddr>,
}

impl Datagrams {
    pub(crate) fn open(lab: &DiffLab, scenario: &Scenario) -> Result<Self> {
        let flows = scenario
            .flows
            .iter()
            .filter(|flow| flow.protocol() == Protocol::Udp);
        let flows = flows
            .map(|flow| Ends::open(lab, scenario, flow))
            .collect::<Result<_>>()?;
        let sender = |place| Sender::new(lab.pod(place));
        let servers = [
            sender(Place::Near)?,
            sender(Place::Beside)?,
            sender(Place::Far)?,
            sender(Place::Other)?,
        ];
        Ok(Self {
            near: sender(Place::Near)?,
            servers,
            flows,
            phases: scenario.phases,
        })
    }

    /// The packets of this number, of all flows and both directions.
    pub(crate) fn round(&mut self, number: u32, record: &mut Record) -> Result<()> {
        for ends in &self.flows {
            record.sent += u64::from(ends.ask(&self.near, number, self.phases)?);
        }
        if number == 0 {
            self.wait_askers(record)?;
        }
        for ends in &self.flows {
            record.sent +=
                u64::from(ends.answer(&self.servers[ends.flow.to.index()], number, self.phases)?);
        }
        self.drain(record)
    }

    /// Waits for the first packet at each server.
    fn wait_askers(&mut self, record: &mut Record) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < patient(FIRST_ARRIVAL) {
            self.drain(record)?;
            if self
                .flows
                .iter()
                .all(|ends| ends.asker.is_some() || ends.server.is_none())
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Takes what arrived.
    pub(crate) fn drain(&mut self, record: &mut Record) -> Result<()> {
        self.flows
            .iter_mut()
            .try_for_each(|ends| ends.drain(record))
    }
}

impl Ends {
    fn open(lab: &DiffLab, scenario: &Scenario, flow: &Flow) -> Result<Self> {
        let open = |place, port| -> Result<UdpSocket> {
            let at = SocketAddr::new(lab.addresses.of(place, flow.family), port);
            let socket = lab.pod(place).bound(at, UdpSocket::bind)?;
            setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let server = (flow.kind != Kind::Refused)
            .then(|| open(flow.to, flow.server_port()))
            .transpose()?;
        Ok(Self {
            flow: *flow,
            client: open(Place::Near, flow.client_port())?,
            server,
            at: lab.server(flow),
            destination: lab.destination(scenario, flow),
            asker: None,
        })
    }

    /// Sends the client's packet; how many those were.
    fn ask(&self, sender: &Sender, number: u32, phases: Phases) -> Result<u32> {
        if self.flow.kind == Kind::Segmented {
            return self.ask_segmented(number);
        }
        let source = self.client.local_addr()?;
        self.send(
            sender,
            Direction::Forward,
            number,
            phases,
            source,
            self.destination,
        )
    }

    /// Sends the server's packet, if it knows whom to.
    fn answer(&self, sender: &Sender, number: u32, phases: Phases) -> Result<u32> {
        let Some(asker) = self.asker else {
            return Ok(0);
        };
        self.send(sender, Direction::Reply, number, phases, self.at, asker)
    }

    fn send(
        &self,
        sender: &Sender,
        direction: Direction,
        number: u32,
        phases: Phases,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Result<u32> {
        let key = Key {
            flow: self.flow.id,
            direction,
            number,
        };
        let fields = packets::fields(&self.flow, direction, number, phases);
        for packet in packets::datagrams(key, &fields, source, destination) {
            sender.send(&packet)?;
        }
        Ok(1)
    }

    /// A small datagram, and now and then a buffer the kernel cuts.
    fn ask_segmented(&self, number: u32) -> Result<u32> {
        let key = |segment| Key {
            flow: self.flow.id,
            direction: Direction::Forward,
            number: number * 64 + segment,
        };
        let send = |bytes: &[u8]| match self.client.send_to(bytes, self.destination) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error).context("sending datagrams"),
        };
        setsockopt(&self.client, sockopt::UdpGsoSegment, &0)?;
        send(&key(0).payload(40))?;
        if !number.is_multiple_of(10) {
            return Ok(1);
        }
        setsockopt(&self.client, sockopt::UdpGsoSegment, &i32::from(SEGMENT))?;
        let buffer: Vec<u8> = (1..=SEGMENTS)
            .flat_map(|segment| key(segment).payload(usize::from(SEGMENT)))
            .collect();
        // One right behind the other: the second begins where the identifications of the first are
        // still in use.
        let second: Vec<u8> = (1..=SEGMENTS)
            .flat_map(|segment| key(SEGMENTS + segment).payload(usize::from(SEGMENT)))
            .collect();
        send(&buffer)?;
        send(&second)?;
        Ok(1 + 2 * SEGMENTS)
    }

    fn drain(&mut self, record: &mut Record) -> Result<()> {
        let mut buffer = [0; 2048];
        for (socket, is_server) in [(Some(&self.client), false), (self.server.as_ref(), true)] {
            while let Some((length, from)) = socket
                .map(|socket| next(socket, &mut buffer))
                .transpose()?
                .flatten()
            {
                let datagram = &buffer[..length];
                let Some(key) = Key::read(datagram) else {
                    continue;
                };
                if datagram[LABEL..] == pattern(length)[LABEL..] {
                    record.deliver(key);
                }
                if is_server && self.asker.is_none() {
                    self.asker = Some(from);
                }
            }
        }
        Ok(())
    }
}

/// The next datagram, if there is one.
fn next(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // An error of ICMP about what was sent.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ECONNREFUSED | libc::EHOSTUNREACH)
                ) => {}
            Err(error) => return Err(error).context("receiving"),
        }
    }
}
