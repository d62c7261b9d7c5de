//! What is on a device, frame by frame, and frames nobody else would send.

use std::{
    fs,
    net::Ipv4Addr,
    os::fd::AsRawFd as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    sys::{
        socket::{
            AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrLike as _,
            recvfrom, sendto, setsockopt, socket, sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
};

use crate::{Host, host::joined, packet, wait::patient};

/// `PACKET_OUTGOING` of linux/if_packet.h: seen on its way out.
const OUTGOING: u8 = 4;
/// A test looks at single packets; a load is counted, not captured.
const MOST_FRAMES: usize = 200_000;

/// Which of the frames on a device are kept, from the Ethernet header on.
pub type Wanted = fn(&[u8]) -> bool;

/// Frames that come in by a device, as they come. Ends when dropped.
#[derive(Debug)]
pub struct Capture {
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Capture {
    /// Starts to keep the incoming `wanted` frames of a device.
    pub fn start(host: &Host, device: &str, wanted: Wanted) -> Result<Self> {
        let index = fs::read_to_string(host.outside_path(format!("/sys/class/net/{device}/ifindex")))?;
        let index: usize = index.trim().parse().context("an interface index")?;
        let (frames, stop) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::<AtomicBool>::default());
        let (ready, started) = mpsc::channel();
        let thread = host.thread({
            let (frames, stop) = (Arc::clone(&frames), Arc::clone(&stop));
            move || keep(index, wanted, &frames, &stop, &ready)
        })?;
        match started.recv_timeout(patient(Duration::from_secs(5))) {
            Ok(()) => Ok(Self { frames, stop, thread: Some(thread) }),
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| anyhow!("the capture did not start"))),
        }
    }

    /// Tunnel packets (UDP to port 8472) that come in by a device.
    pub fn tunnel(host: &Host, device: &str) -> Result<Self> {
        Self::start(host, device, packet::is_tunnel)
    }

    /// The frames so far.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many frames so far.
    pub fn len(&self) -> usize {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what was kept so far.
    pub fn clear(&self) {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).clear();
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

fn keep(
    index: usize,
    wanted: Wanted,
    frames: &Mutex<Vec<Vec<u8>>>,
    stop: &AtomicBool,
    ready: &mpsc::Sender<()>,
) -> Result<()> {
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20))?;
    setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20))?;
    ready.send(()).context("nobody waits for the capture")?;
    let mut buffer = vec![0; 1 << 17];
    while !stop.load(Ordering::Relaxed) {
        match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
            Ok((length, Some(from))) if from.ifindex() == index && from.pkttype() != OUTGOING => {
                let mut frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
                if wanted(&buffer[..length]) && frames.len() < MOST_FRAMES {
                    frames.push(buffer[..length].to_vec());
                }
            }
            // A device that goes down says so once.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => {}
            Err(error) => return Err(error).context("capturing"),
        }
    }
    Ok(())
}

/// Sends a frame as it is, from its Ethernet header on.
pub fn inject_frame(from: &Host, device: &str, frame: &[u8]) -> Result<()> {
    from.enter(|| -> Result<()> {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        let sll_ifindex = if_nametoindex(device)?.cast_signed();
        let sll_family = u16::try_from(libc::AF_PACKET)?;
        let to = libc::sockaddr_ll {
            sll_family,
            sll_protocol: 0,
            sll_ifindex,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = u32::try_from(size_of_val(&to))?;
        // SAFETY: a live address of the length given.
        let to = unsafe { LinkAddr::from_raw((&raw const to).cast(), Some(len)) }.context("an address")?;
        let sent = sendto(socket.as_raw_fd(), frame, &to, MsgFlags::empty()).context("sending a frame")?;
        anyhow::ensure!(sent == frame.len(), "{sent} of {} bytes sent", frame.len());
        Ok(())
    })?
}

/// Sends an IPv4 packet as it is; the kernel only fills its header checksum in.
pub fn inject(from: &Host, packet: &[u8]) -> Result<()> {
    let to: [u8; 4] = packet.get(16..20).and_then(|bytes| bytes.try_into().ok()).context("an IPv4 header")?;
    let to = SockaddrIn::from(std::net::SocketAddrV4::new(Ipv4Addr::from(to), 0));
    from.enter(|| -> Result<()> {
        let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
        let sent = sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty()).context("sending a raw packet")?;
        anyhow::ensure!(sent == packet.len(), "{sent} of {} bytes sent", packet.len());
        Ok(())
    })?
}
