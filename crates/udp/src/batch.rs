//! Datagrams on their way out: those of one peer and one size become one message.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
};

use nix::errno::Errno;

use crate::{
    counts::Counters,
    packet::split::Segments,
    readiness::await_writable,
    socket::{send_each, send_segments},
};

/// Datagrams of one message: the kernel's limit (`UDP_MAX_SEGMENTS`) before Linux 6.9.
const MAX_SEGMENTS: usize = 64;
/// Bytes of one message: the largest UDP payload over IPv4.
const MAX_BYTES: usize = 65_507;
/// Bytes that are sent at the latest.
const FULL: usize = 256 << 10;
/// Messages that are sent at the latest.
const FULL_MESSAGES: usize = 128;
/// Messages that one system call sends.
const AT_ONCE: usize = 64;
/// The time for the kernel to make room in the socket.
const PATIENCE_MS: u16 = 1_000;

/// Datagrams that lie behind each other, to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    peer: Ipv4Addr,
    start: usize,
    end: usize,
    /// Bytes of each but the last.
    size: usize,
    segments: usize,
}

impl Message {
    /// Takes the next datagram, if it belongs in here.
    fn extend(&mut self, peer: Ipv4Addr, start: usize, length: usize) -> bool {
        let is_open = self.end - self.start == self.segments * self.size;
        let fits = self.segments < MAX_SEGMENTS && self.end - self.start + length <= MAX_BYTES;
        let extends =
            is_open && fits && self.peer == peer && self.end == start && length <= self.size;
        if extends {
            self.end += length;
            self.segments += 1;
        }
        extends
    }
}

/// Datagrams that are sent together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The datagrams.
    pub(crate) bytes: Vec<u8>,
    messages: Vec<Message>,
    port: u16,
    /// False once the kernel has refused to segment for this socket.
    segments: bool,
}

impl Batch {
    /// Empty, for peers that listen on this port.
    pub(crate) fn new(port: u16) -> Self {
        Self {
            bytes: Vec::with_capacity(2 * FULL),
            messages: Vec::new(),
            port,
            segments: true,
        }
    }

    /// The last of the bytes are packets to this peer.
    pub(crate) fn add(&mut self, peer: Ipv4Addr, segments: Segments) {
        let mut start = self.bytes.len() - segments.total;
        while start < self.bytes.len() {
            let length = segments.size.min(self.bytes.len() - start);
            if !self
                .messages
                .last_mut()
                .is_some_and(|last| last.extend(peer, start, length))
            {
                self.messages.push(Message {
                    peer,
                    start,
                    end: start + length,
                    size: length,
                    segments: 1,
                });
            }
            start += length;
        }
    }

    /// Returns true if there is nothing to send.
    pub(crate) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns true if the batch must be sent before more is added.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes.len() >= FULL || self.messages.len() >= FULL_MESSAGES
    }

    /// Sends everything. Where the socket is full it waits: packets that were taken from the device
    /// would be lost.
    pub(crate) fn send(&mut self, socket: &UdpSocket, counters: &Counters) {
        let messages = std::mem::take(&mut self.messages);
        for run in messages.chunk_by(|one, next| one.segments == 1 && next.segments == 1) {
            for part in run.chunks(AT_ONCE) {
                match part {
                    [message] if message.segments > 1 => {
                        self.send_message(socket, message, counters);
                    }
                    _ => self.send_datagrams(socket, part, counters),
                }
            }
        }
        self.messages = messages;
        self.messages.clear();
        self.bytes.clear();
    }

    fn to(&self, message: &Message) -> SocketAddrV4 {
        SocketAddrV4::new(message.peer, self.port)
    }

    /// Sends several datagrams to one peer; one by one if the kernel does not segment them, such as
    /// on a path with a smaller MTU.
    fn send_message(&mut self, socket: &UdpSocket, message: &Message, counters: &Counters) {
        let bytes = &self.bytes[message.start..message.end];
        let size = u16::try_from(message.size).unwrap_or(u16::MAX);
        let sent = if self.segments {
            patiently(socket, || {
                send_segments(socket, self.to(message), bytes, size)
            })
        } else {
            Err(Errno::EIO.into())
        };
        match sent {
            Ok(()) => {
                counters.sent_packets.add(message.segments);
                counters.sent_bytes.add(bytes.len());
            }
            Err(error) => {
                self.segments &= error.raw_os_error() != Some(Errno::EIO as i32);
                let single = |at: usize| {
                    let start = message.start + at * message.size;
                    Message {
                        start,
                        end: message.end.min(start + message.size),
                        segments: 1,
                        ..*message
                    }
                };
                let singles: Vec<_> = (0..message.segments).map(single).collect();
                self.send_datagrams(socket, &singles, counters);
            }
        }
    }

    /// Sends datagrams one by one. One that the kernel refuses holds up no other.
    fn send_datagrams(&self, socket: &UdpSocket, messages: &[Message], counters: &Counters) {
        let datagram =
            |message: &Message| (self.to(message), &self.bytes[message.start..message.end]);
        let datagrams: Vec<_> = messages.iter().map(datagram).collect();
        let mut left = datagrams.as_slice();
        while !left.is_empty() {
            let Ok(sent @ 1..) = patiently(socket, || send_each(socket, left)) else {
                counters.not_sent.add(1);
                left = &left[1..];
                continue;
            };
            counters.sent_packets.add(sent);
            counters
                .sent_bytes
                .add(left[..sent].iter().map(|(_, bytes)| bytes.len()).sum());
            left = &left[sent..];
        }
    }
}

/// Tries again while the socket is full, for a time.
fn patiently<T>(socket: &UdpSocket, mut send: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match send() {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && await_writable(socket, PATIENCE_MS)? => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

    fn add(batch: &mut Batch, peer: usize, size: usize, total: usize) {
        batch
            .bytes
            .extend((0..total).map(|at| u8::try_from(at / size % 256).expect("a byte")));
        batch.add(PEERS[peer], Segments { size, total });
    }

    fn shapes(batch: &Batch) -> Vec<(usize, usize)> {
        batch
            .messages
            .iter()
            .map(|message| (message.segments, message.end - message.start))
            .collect()
    }

    #[test]
    fn datagrams_of_one_peer_and_size_are_one_message() {
        let mut batch = Batch::new(1);
        add(&mut batch, 0, 1000, 3500);
        assert_eq!(shapes(&batch), [(4, 3500)]);
        add(&mut batch, 0, 1000, 1000);
        assert_eq!(
            shapes(&batch),
            [(4, 3500), (1, 1000)],
            "the short one was the last"
        );
        add(&mut batch, 0, 1000, 1000);
        add(&mut batch, 1, 1000, 1000);
        add(&mut batch, 1, 1001, 1001);
        assert_eq!(shapes(&batch), [(4, 3500), (2, 2000), (1, 1000), (1, 1001)]);
    }

    #[test]
    fn messages_keep_to_the_limits_of_the_kernel() {
        let mut batch = Batch::new(1);
        add(&mut batch, 0, 100, 100 * 70);
        add(&mut batch, 1, 1472, 1472 * 46);
        assert_eq!(
            shapes(&batch),
            [(64, 6400), (6, 600), (44, 44 * 1472), (2, 2 * 1472)]
        );
    }

    #[test]
    fn every_datagram_arrives_in_order_with_its_own_size() {
        for segments in [true, false] {
            let receiver = UdpSocket::bind((PEERS[0], 0)).expect("a socket");
            receiver
                .set_read_timeout(Some(std::time::Duration::from_secs(10)))
                .expect("a timeout");
            let port = receiver.local_addr().expect("an address").port();
            let sender = UdpSocket::bind((PEERS[0], 0)).expect("a socket");
            let mut batch = Batch {
                segments,
                ..Batch::new(port)
            };
            for (size, total) in [(100, 100), (900, 9_050), (60, 60), (61, 61), (1200, 2400)] {
                add(&mut batch, 0, size, total);
            }
            let expected: Vec<usize> = [
                vec![100],
                vec![900; 10],
                vec![50],
                vec![60, 61],
                vec![1200; 2],
            ]
            .into_iter()
            .flatten()
            .collect();
            let counters = Counters::default();
            batch.send(&sender, &counters);
            assert!(batch.is_empty() && batch.bytes.is_empty());
            let mut buffer = [0; 2000];
            let lengths: Vec<usize> = expected
                .iter()
                .map(|_| receiver.recv(&mut buffer).expect("a datagram"))
                .collect();
            assert_eq!(lengths, expected);
            let counts = counters.read();
            assert_eq!(
                (counts.sent_packets, counts.sent_bytes, counts.not_sent),
                (16, 11_671, 0)
            );
        }
    }

    #[test]
    fn a_refused_datagram_holds_up_no_other() {
        let receiver = UdpSocket::bind((PEERS[0], 0)).expect("a socket");
        receiver
            .set_read_timeout(Some(std::time::Duration::from_secs(10)))
            .expect("a timeout");
        let port = receiver.local_addr().expect("an address").port();
        let sender = UdpSocket::bind((PEERS[0], 0)).expect("a socket");
        let mut batch = Batch::new(port);
        batch.bytes.extend([1; 10]);
        // Without the right to broadcast.
        batch.add(
            Ipv4Addr::BROADCAST,
            Segments {
                size: 10,
                total: 10,
            },
        );
        add(&mut batch, 0, 20, 20);
        let counters = Counters::default();
        batch.send(&sender, &counters);
        assert_eq!(receiver.recv(&mut [0; 100]).expect("a datagram"), 20);
        assert_eq!(
            (counters.read().not_sent, counters.read().sent_packets),
            (1, 1)
        );
    }
}
