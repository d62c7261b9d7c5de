//! From the device to the peers.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::UdpSocket,
    sync::Arc,
    time::Instant,
};

use crate::{
    batch::Batch,
    counts::Counters,
    limit::Limit,
    packet::{
        icmp::{self, Cause},
        ipv4::{Header, decrement_ttl},
        split::split,
        vnet::{self, VnetHeader},
    },
    readiness::{Awaited, Signal, await_readable},
    table::TableReader,
};

/// Bytes of a packet, with the header before it.
const PACKET: usize = vnet::LENGTH + 65_536;

/// One direction of the datapath.
#[derive(Debug)]
pub(crate) struct Outbound {
    device: Arc<File>,
    socket: Arc<UdpSocket>,
    table: TableReader,
    counters: Arc<Counters>,
    errors: Limit,
    batch: Batch,
}

impl Outbound {
    /// Returns the outbound half. It starts to read with [`Self::run`].
    pub(crate) fn new(
        device: Arc<File>,
        socket: Arc<UdpSocket>,
        table: TableReader,
        counters: Arc<Counters>,
        port: u16,
    ) -> Self {
        Self {
            device,
            socket,
            table,
            counters,
            errors: Limit::new(Instant::now()),
            batch: Batch::new(port),
        }
    }

    /// Forwards packets until the signal is given. All that was read is sent by then.
    pub(crate) fn run(mut self, stop: &Signal) -> io::Result<()> {
        let mut buffer = vec![0; PACKET];
        loop {
            let has_more = self.read(&mut buffer)?;
            if !self.batch.is_empty() {
                self.batch.send(&self.socket, &self.counters);
            }
            if !has_more && await_readable(&*self.device, stop)? == Awaited::Signal {
                return Ok(());
            }
        }
    }

    /// Reads until there is nothing more, or the batch is full. Returns true for the latter.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        while !self.batch.is_full() {
            match (&*self.device).read(buffer) {
                Ok(length) => self.forward(&mut buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn forward(&mut self, bytes: &mut [u8]) {
        let Some((before, packet)) = bytes.split_first_chunk_mut::<{ vnet::LENGTH }>() else {
            return self.counters.malformed.add(1);
        };
        // What a device that is up sends by itself, such as router solicitations.
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            return;
        }
        let Some(header) = Header::of(packet) else {
            return self.counters.malformed.add(1);
        };
        let Some(peer) = self.table.current().route(header.destination) else {
            self.counters.no_route.add(1);
            return self.answer(Cause::NetUnreachable, packet, &header);
        };
        if header.ttl <= 1 {
            self.counters.ttl_exceeded.add(1);
            return self.answer(Cause::TimeExceeded, packet, &header);
        }
        decrement_ttl(packet);
        match split(
            packet,
            &header,
            VnetHeader::parse(before).offload(),
            &mut self.batch.bytes,
        ) {
            Some(segments) => self.batch.add(peer, segments),
            None => self.counters.malformed.add(1),
        }
    }

    /// Sends an error to a sender on this node, by the device.
    fn answer(&mut self, cause: Cause, packet: &[u8], header: &Header) {
        let source = self.table.current().gateway();
        if let Some(error) = icmp::error(cause, source, packet, header)
            && self.errors.take(Instant::now())
        {
            let bytes = [&VnetHeader::default().to_bytes()[..], &error].concat();
            // An error that does not arrive is like one that was not sent.
            let _ = (&*self.device).write(&bytes);
        }
    }
}
