//! Small datagrams one way, as fast as they go. Who receives them is the judge of how many there
//! were: see `InDatagrams` of the receiver's network namespace.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::span::Span;
use crate::harness::wait::patient;

/// Bytes of a datagram.
pub const SIZE: usize = 64;
/// More than a sender fills while it has the CPU for itself.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Until the first datagram.
const IDLE: Duration = Duration::from_secs(10);
/// Without a datagram for this long the flood is over, should every goodbye be lost.
const QUIET: Duration = Duration::from_millis(500);
const GOODBYE: [u8; 1] = [0xff];

/// Takes datagrams until the flood is over.
pub fn serve(bind: SocketAddr, ready: impl FnOnce(SocketAddr) -> Result<()>) -> Result<()> {
    let socket = UdpSocket::bind(bind).with_context(|| bind.to_string())?;
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).context("SO_RCVBUFFORCE")?;
    socket.set_read_timeout(Some(patient(IDLE)))?;
    ready(socket.local_addr()?)?;
    let mut datagram = [0; SIZE];
    let mut length = socket
        .recv(&mut datagram)
        .context("waiting for the first datagram")?;
    socket.set_read_timeout(Some(patient(QUIET)))?;
    while datagram[..length] != GOODBYE {
        match socket.recv(&mut datagram) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                break;
            }
            received => length = received?,
        }
    }
    Ok(())
}

/// Sends for this long. How many datagrams were sent in the measurement, which `begin` announces,
/// and before it; and the time of the measurement.
pub fn measure(
    server: SocketAddr,
    span: Span,
    begin: &mut dyn FnMut(),
) -> Result<(u64, u64, Duration)> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    let mut all = 0;
    let (sent, time) = span.repeat(begin, |number| {
        all = number;
        socket
            .send(&[0; SIZE])
            .map(drop)
            .with_context(|| format!("datagram {number} to {server}"))
    })?;
    for _ in 0..3 {
        // The server is gone after the first.
        drop(socket.send(&GOODBYE));
    }
    Ok((sent, all - sent, time))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::host::joined;

    #[test]
    fn a_goodbye_ends_the_flood() -> Result<()> {
        let (bound, address) = mpsc::channel();
        let server = thread::spawn(move || {
            serve("127.0.0.1:0".parse()?, |address| {
                bound.send(address).context("nobody waits")
            })
        });
        let (sent, _, time) = measure(
            address.recv()?,
            Span::cold(Duration::from_millis(20)),
            &mut || {},
        )?;
        assert!(
            sent > 0 && time >= Duration::from_millis(20),
            "{sent} in {time:?}"
        );
        joined(server)
    }
}
