//! Datagrams of netlink, which have several messages.

use std::{io, iter};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket};
use nix::errno::Errno;
use tracing::warn;

/// The kernel's largest message is 32 KiB.
pub const DATAGRAM: usize = 64 << 10;

/// The messages of a datagram, whole; `None`, and then no more, where it is cut off.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else {
            datagram = &[];
            return Some(None);
        };
        let len = message.length() as usize;
        let whole = datagram.get(..len);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(whole)
    })
}

/// The outcome of a wait for a datagram.
pub enum Read {
    /// It is in the buffer.
    Datagram,
    /// Datagrams were lost.
    Lost,
}

/// Waits for a datagram. Cancel-safe: the socket keeps its data until the last await.
pub async fn receive(socket: &TokioSocket, buffer: &mut Vec<u8>) -> io::Result<Read> {
    loop {
        buffer.clear();
        buffer.reserve(DATAGRAM);
        match socket.recv_from(buffer).await {
            // Only port 0 is the kernel.
            Ok(sender) if sender.port_number() == 0 => return Ok(Read::Datagram),
            Ok(_) => {}
            Err(error) if is(&error, Errno::ENOBUFS) => {
                warn!("netlink events were lost; everything has to be read back");
                drain(socket, buffer)?;
                return Ok(Read::Lost);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads a datagram that has arrived; `None` if there is none. Does not wait.
pub fn arrived(socket: &TokioSocket, buffer: &mut Vec<u8>) -> io::Result<Option<Read>> {
    loop {
        buffer.clear();
        buffer.reserve(DATAGRAM);
        match socket.socket_ref().recv_from(buffer, 0) {
            Ok((_, sender)) if sender.port_number() == 0 => return Ok(Some(Read::Datagram)),
            Ok(_) => {}
            Err(error) if is(&error, Errno::EAGAIN) => return Ok(None),
            Err(error) if is(&error, Errno::ENOBUFS) => return Ok(Some(Read::Lost)),
            Err(error) => return Err(error),
        }
    }
}

/// Empties the socket. Until it is empty the kernel goes on dropping events, and does not say so
/// again (`NETLINK_S_CONGESTED` in [af_netlink.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netlink/af_netlink.c)): what is read back
/// before that may change unseen.
fn drain(socket: &TokioSocket, buffer: &mut Vec<u8>) -> io::Result<()> {
    while arrived(socket, buffer)?.is_some() {}
    Ok(())
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
