//! Datagrams handed to the kernel many at once, to be cut by it (`UDP_SEGMENT`).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use crate::{Host, harness::wait::patient, packet::pattern};

/// The datagrams to send.
#[derive(Clone, Copy, Debug)]
pub struct Segmented {
    /// The number of buffers that are handed to the kernel.
    pub sends: u32,
    /// Datagrams in a buffer.
    pub segments: u32,
    /// Bytes of a datagram, four at least: they begin with its number.
    pub size: u16,
}

/// Sends from `from` to the address `at` of `to`; the numbers of the datagrams that arrived whole,
/// as they came.
pub fn send(from: &Host, to: &Host, at: IpAddr, load: Segmented) -> Result<Vec<u32>> {
    send_every(Duration::ZERO, from, to, at, load)
}

/// The same with this time between two sends.
pub fn send_every(
    pause: Duration,
    from: &Host,
    to: &Host,
    at: IpAddr,
    load: Segmented,
) -> Result<Vec<u32>> {
    ensure!(
        u32::from(load.size) * load.segments < 65_000 && load.segments <= 64,
        "{load:?} does not fit a send"
    );
    let receiver = to.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((at, 0)).with_context(|| format!("a socket at {at}"))?;
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).context("SO_RCVBUFFORCE")?;
        socket.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
        Ok(socket)
    })??;
    let target = receiver.local_addr()?;
    from.enter(|| -> Result<()> {
        let any: IpAddr = if at.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(target)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::from(load.size))
            .context("UDP_SEGMENT")?;
        for turn in 0..load.sends {
            socket
                .send(&buffer(turn * load.segments, load))
                .context("sending a buffer")?;
            thread::sleep(pause);
        }
        Ok(())
    })??;
    let mut numbers = Vec::new();
    let mut datagram = vec![0; 65_536];
    let all = usize::try_from(load.sends * load.segments)?;
    while numbers.len() < all {
        match receiver.recv(&mut datagram) {
            Ok(length) => {
                ensure!(
                    length == usize::from(load.size),
                    "a datagram of {length} bytes, {} were sent",
                    load.size
                );
                let number = u32::from_be_bytes(*datagram.first_chunk().context("a number")?);
                ensure!(
                    datagram[..length] == one(number, load),
                    "datagram {number} is not as it was sent"
                );
                numbers.push(number);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                break;
            }
            Err(error) => return Err(error).context("receiving"),
        }
    }
    Ok(numbers)
}

/// The datagrams from number `first` on, one after the other.
fn buffer(first: u32, load: Segmented) -> Vec<u8> {
    (first..first + load.segments)
        .flat_map(|number| one(number, load))
        .collect()
}

/// The datagram with this number.
fn one(number: u32, load: Segmented) -> Vec<u8> {
    let mut bytes = pattern(usize::from(load.size));
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}
