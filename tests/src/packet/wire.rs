//! Frames on a device: a capture of each, and injection of frames that no other sender makes.

use std::{
    fs,
    net::SocketAddr,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, poll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike as _,
        SockaddrStorage, recvfrom, sendto, setsockopt, socket, sockopt,
    },
};

use crate::{
    Host,
    host::joined,
    packet::{Packet, frame},
};

/// Milliseconds between two looks whether the capture is to end.
const LOOK: u16 = 20;

/// `PACKET_OUTGOING` of linux/if_packet.h: seen on its way out.
pub(crate) const OUTGOING: u8 = 4;
/// A test looks at single packets; a load is counted, not captured.
const MOST_FRAMES: usize = 200_000;

/// A filter for the frames to keep. It gets each frame from the Ethernet header on.
pub type Wanted = fn(&[u8]) -> bool;

/// Frames that come in by a device, as they come. Ends when dropped.
#[derive(Debug)]
pub struct Capture {
    tap: Arc<Tap>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// The socket, and what was read from it so far.
#[derive(Debug)]
struct Tap {
    socket: OwnedFd,
    index: usize,
    wanted: Wanted,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Capture {
    /// Starts to keep the incoming `wanted` frames of a device.
    pub fn start(host: &Host, device: &str, wanted: Wanted) -> Result<Self> {
        let index =
            fs::read_to_string(host.outside_path(format!("/sys/class/net/{device}/ifindex")))?;
        let index: usize = index.trim().parse().context("an interface index")?;
        let tap = Arc::new(host.enter(|| Tap::new(index, wanted))??);
        let stop = Arc::<AtomicBool>::default();
        let thread = host.thread({
            let (tap, stop) = (Arc::clone(&tap), Arc::clone(&stop));
            move || tap.keep_until(&stop)
        })?;
        Ok(Self {
            tap,
            stop,
            thread: Some(thread),
        })
    }

    /// Tunnel packets (UDP to port 8472) that come in by a device.
    pub fn tunnel(host: &Host, device: &str) -> Result<Self> {
        Self::start(host, device, frame::is_tunnel)
    }

    /// All frames that came in before this call.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.tap.drained().clone()
    }

    /// Returns the number of frames that came in before this call.
    pub fn len(&self) -> usize {
        self.tap.drained().len()
    }

    /// Returns true if no frame came in before this call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what came in before this call.
    pub fn clear(&self) {
        self.tap.drained().clear();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.thread.take().map(joined) {
            eprintln!("a capture ended early: {error:#}");
        }
    }
}

impl Tap {
    fn new(index: usize, wanted: Wanted) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            flags,
            SockProtocol::EthAll,
        )?;
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20))?;
        Ok(Self {
            socket,
            index,
            wanted,
            kept: Mutex::default(),
        })
    }

    /// Reads what comes, so that the socket's buffer suffices.
    fn keep_until(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, LOOK) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => self.drain(&mut self.kept())?,
                Err(error) => return Err(error).context("waiting for a frame"),
            }
        }
        Ok(())
    }

    /// Returns the frames kept, including all that the kernel has handed to the socket. None is on
    /// its way between the two.
    fn drained(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        let mut kept = self.kept();
        if let Err(error) = self.drain(&mut kept) {
            eprintln!("{error:#}");
        }
        kept
    }

    fn drain(&self, kept: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut buffer = vec![0; 1 << 17];
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((length, Some(from)))
                    if from.ifindex() == self.index && from.pkttype() != OUTGOING =>
                {
                    if (self.wanted)(&buffer[..length]) && kept.len() < MOST_FRAMES {
                        kept.push(buffer[..length].to_vec());
                    }
                }
                // A device that goes down says so once.
                Ok(_) | Err(Errno::EINTR | Errno::ENETDOWN) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error).context("capturing"),
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a device of this thread's namespace, for frames of this Ethernet type.
pub(crate) fn link_address(device: &str, ethertype: u16) -> Result<LinkAddr> {
    let sll_ifindex = if_nametoindex(device)?.cast_signed();
    let sll_family = u16::try_from(libc::AF_PACKET)?;
    let address = libc::sockaddr_ll {
        sll_family,
        sll_protocol: ethertype.to_be(),
        sll_ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = u32::try_from(size_of_val(&address))?;
    // SAFETY: a live address of the length given.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(len)) }.context("an address")
}

/// Sends a frame as it is, from its Ethernet header on.
pub fn inject_frame(from: &Host, device: &str, frame: &[u8]) -> Result<()> {
    from.enter(|| -> Result<()> {
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let to = link_address(device, 0)?;
        let sent =
            sendto(socket.as_raw_fd(), frame, &to, MsgFlags::empty()).context("sending a frame")?;
        anyhow::ensure!(sent == frame.len(), "{sent} of {} bytes sent", frame.len());
        Ok(())
    })?
}

/// Sends an IP packet as it is; the kernel only fills the header checksum of IPv4 in.
pub fn inject(from: &Host, packet: &Packet) -> Result<()> {
    let family = if packet.destination.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let (to, bytes) = (
        SockaddrStorage::from(SocketAddr::new(packet.destination, 0)),
        packet.bytes(),
    );
    from.enter(|| -> Result<()> {
        let socket = socket(
            family,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::Raw,
        )?;
        let sent = sendto(socket.as_raw_fd(), &bytes, &to, MsgFlags::empty())
            .context("sending a raw packet")?;
        anyhow::ensure!(sent == bytes.len(), "{sent} of {} bytes sent", bytes.len());
        Ok(())
    })?
}
