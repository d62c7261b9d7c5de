//! The UDP socket: many datagrams by one system call.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
};

use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg,
        sendmmsg, sendmsg, setsockopt, sockopt,
    },
};

use crate::error::TunnelError;

/// Bytes that may wait in the socket, in each direction: what arrives while a process takes over
/// from another one.
const QUEUE: usize = 4 << 20;
/// Messages of one call.
pub(crate) const MESSAGES: usize = 16;
/// Bytes of one message: all datagrams that arrived together.
const MESSAGE: usize = 65_536;

/// Opens the socket.
pub(crate) fn bind(address: SocketAddrV4) -> Result<UdpSocket, TunnelError> {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    };
    let socket = open().map_err(|error| TunnelError::Socket { address, error })?;
    // Without CAP_NET_ADMIN queues are the system's, and before Linux 5.0 each datagram arrives
    // alone: both only cost.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &QUEUE);
    let _ = setsockopt(&socket, sockopt::SndBufForce, &QUEUE);
    let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
    Ok(socket)
}

/// Datagrams of one sender that arrived together.
#[derive(Clone, Copy, Debug)]
struct Message {
    sender: Option<Ipv4Addr>,
    length: usize,
    /// Bytes of each datagram but the last.
    size: usize,
}

/// Room for received datagrams.
#[derive(Debug)]
pub(crate) struct Received {
    buffers: Vec<Vec<u8>>,
    messages: Vec<Message>,
}

impl Received {
    /// Empty.
    pub(crate) fn new() -> Self {
        Self {
            buffers: vec![vec![0; MESSAGE]; MESSAGES],
            messages: Vec::with_capacity(MESSAGES),
        }
    }

    /// Receives what there is.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.messages.clear();
        let mut slices: Vec<_> = self
            .buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        // The kernel shortens the room for control messages to what it wrote, so it cannot be used
        // twice.
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(MESSAGES, Some(cmsg_space!(i32)));
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            flags,
            None,
        )?;
        for message in received {
            let length = message.bytes;
            let segments = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::UdpGroSegments(size) => {
                    usize::try_from(size).ok().filter(|size| *size > 0)
                }
                _ => None,
            });
            let sender = message.address.map(|address| address.ip());
            self.messages.push(Message {
                sender,
                length,
                size: segments.unwrap_or(length),
            });
        }
        Ok(())
    }

    /// The messages: the sender of each, and its datagrams.
    pub(crate) fn messages(
        &mut self,
    ) -> impl Iterator<Item = (Option<Ipv4Addr>, impl Iterator<Item = &mut [u8]>)> {
        self.messages
            .iter()
            .zip(&mut self.buffers)
            .map(|(message, buffer)| {
                let bytes = &mut buffer[..message.length.min(MESSAGE)];
                (message.sender, bytes.chunks_mut(message.size.max(1)))
            })
    }
}

/// Sends datagrams of one size, the last of which may be shorter, to one peer.
pub(crate) fn send_segments(
    socket: &UdpSocket,
    to: SocketAddrV4,
    bytes: &[u8],
    size: u16,
) -> io::Result<()> {
    let control = [ControlMessage::UdpGsoSegments(&size)];
    let address = SockaddrIn::from(to);
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &control,
        MsgFlags::MSG_DONTWAIT,
        Some(&address),
    )?;
    Ok(())
}

/// Sends datagrams, each to its peer. Returns the number of those that were sent before one was
/// not.
pub(crate) fn send_each(
    socket: &UdpSocket,
    datagrams: &[(SocketAddrV4, &[u8])],
) -> io::Result<usize> {
    let slices: Vec<_> = datagrams
        .iter()
        .map(|(_, bytes)| [IoSlice::new(bytes)])
        .collect();
    let addresses: Vec<_> = datagrams
        .iter()
        .map(|(to, _)| Some(SockaddrIn::from(*to)))
        .collect();
    let mut headers = MultiHeaders::preallocate(datagrams.len(), None);
    let sent = sendmmsg(
        socket.as_raw_fd(),
        &mut headers,
        &slices,
        &addresses,
        [],
        MsgFlags::MSG_DONTWAIT,
    )?;
    Ok(sent.count())
}
