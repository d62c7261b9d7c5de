//! From the peers to the device.

use std::{
    fs::File,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::Arc,
    time::Instant,
};

use crate::{
    counts::Counters,
    limit::Limit,
    packet::{
        icmp::{self, Cause},
        ipv4::{Header, decrement_ttl},
        merge::{Merger, Sink},
    },
    readiness::{Awaited, Signal, await_readable},
    socket::Received,
    table::{PeerTable, TableReader},
};

/// One direction of the datapath.
#[derive(Debug)]
pub(crate) struct Inbound {
    socket: Arc<UdpSocket>,
    table: TableReader,
    port: u16,
    errors: Limit,
    merger: Merger,
    device: Device,
}

/// The device as the target of packets.
#[derive(Debug)]
struct Device {
    file: Arc<File>,
    counters: Arc<Counters>,
}

impl Sink for Device {
    fn accept(&mut self, packet: &[u8]) {
        if (&*self.file).write(packet).is_err() {
            self.counters.not_delivered.add(1);
        }
    }
}

impl Inbound {
    /// Returns the inbound half. It starts to receive with [`Self::run`].
    pub(crate) fn new(
        device: Arc<File>,
        socket: Arc<UdpSocket>,
        table: TableReader,
        counters: Arc<Counters>,
        port: u16,
    ) -> Self {
        let (errors, merger) = (Limit::new(Instant::now()), Merger::new());
        Self {
            socket,
            table,
            port,
            errors,
            merger,
            device: Device {
                file: device,
                counters,
            },
        }
    }

    /// Forwards packets until the signal is given. All that was received is written by then.
    pub(crate) fn run(mut self, stop: &Signal) -> io::Result<()> {
        let mut received = Received::new();
        while await_readable(&*self.socket, stop)? == Awaited::File {
            match received.receive(&self.socket) {
                Ok(()) => self.forward_all(&mut received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn forward_all(&mut self, received: &mut Received) {
        for (sender, datagrams) in received.messages() {
            let table = self.table.current();
            let Some(sender) = sender.filter(|sender| table.has_sender(*sender)) else {
                self.device.counters.unknown_sender.add(datagrams.count());
                continue;
            };
            let (mut packets, mut bytes) = (0, 0);
            for datagram in datagrams {
                match admit(datagram) {
                    Ok(header) => {
                        let packet = &datagram[..header.total];
                        self.merger.push(packet, &header, &mut self.device);
                        packets += 1;
                        bytes += packet.len();
                    }
                    Err(Refusal::Malformed) => self.device.counters.malformed.add(1),
                    Err(Refusal::TtlExceeded(header)) => {
                        self.device.counters.ttl_exceeded.add(1);
                        let to = SocketAddrV4::new(sender, self.port);
                        answer(&self.socket, table, &mut self.errors, to, datagram, &header);
                    }
                }
            }
            self.device.counters.received_packets.add(packets);
            self.device.counters.received_bytes.add(bytes);
        }
        self.merger.flush(&mut self.device);
    }
}

/// The reason for which a packet is not forwarded.
enum Refusal {
    Malformed,
    TtlExceeded(Header),
}

/// Checks a packet and lowers its time to live.
fn admit(datagram: &mut [u8]) -> Result<Header, Refusal> {
    let header = Header::of(datagram).ok_or(Refusal::Malformed)?;
    if header.ttl <= 1 {
        return Err(Refusal::TtlExceeded(header));
    }
    decrement_ttl(datagram);
    Ok(header)
}

/// Sends an error to a sender behind a peer.
fn answer(
    socket: &UdpSocket,
    table: &PeerTable,
    errors: &mut Limit,
    to: SocketAddrV4,
    packet: &[u8],
    header: &Header,
) {
    let error = table
        .device()
        .and_then(|source: Ipv4Addr| icmp::error(Cause::TimeExceeded, source, packet, header));
    if let Some(error) = error
        && errors.take(Instant::now())
    {
        // An error that does not arrive is like one that was not sent.
        let _ = socket.send_to(&error, to);
    }
}
