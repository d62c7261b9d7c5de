//! A network card that breaks the checksums inside tunnel packets.
//!
//! No card here can be broken on demand, so this one is a double: a thread that carries the frames
//! between a node's cable and the bridge of the router. `PACKET_VNET_HDR` ([packet(7)](
//! https://man7.org/linux/man-pages/man7/packet.7.html)) shows which checksum of a frame the node
//! leaves to its card. Such a card writes none where it stands behind the outer headers.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, poll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, bind, recvfrom, send, socket,
    },
};

use crate::{
    Host,
    host::joined,
    packet::wire::{OUTGOING, link_address},
};

/// Milliseconds between two looks whether the card is to end.
const LOOK: u16 = 20;
/// `ETH_P_ALL`.
const ALL: u16 = 3;
/// `struct virtio_net_hdr`: flags, segmentation type, header length, segment size, start of the
/// checksum and its offset; the numbers little-endian.
const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const LEFT_TO_CARD: u8 = 1;
/// Behind the outer headers, whichever their family: a checksum that starts there is an inner one.
const INNER: u16 = 60;
/// Settings of a device whose frames the card gets: one packet each.
const WHOLE: &str =
    "tso off gso off gro off tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off";

/// The card; its frames stop when this is dropped.
#[derive(Debug)]
pub struct FaultyCard {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Counts {
    stop: AtomicBool,
    breaks: AtomicBool,
    broken: AtomicU64,
}

impl FaultyCard {
    /// Takes the place of the cable's end `port` in the bridge of the router. Breaks checksums from
    /// the start.
    pub fn plug_in(node: &Host, router: &Host, port: &str, bridge: &str) -> Result<Self> {
        node.sh(&format!("ethtool -K eth0 {WHOLE}"))?;
        for line in [
            format!("ip link set {port} nomaster"),
            "ip link add card type veth peer name card-port".to_owned(),
            format!("ethtool -K card-port {WHOLE}"),
            format!("ip link set card-port master {bridge} up"),
            "ip link set card up".to_owned(),
        ] {
            router.sh(&line)?;
        }
        let [cable, network] =
            router.enter(|| -> Result<_> { Ok([open(port)?, open("card")?]) })??;
        let counts = Arc::new(Counts {
            breaks: true.into(),
            ..Counts::default()
        });
        let thread = router.thread({
            let counts = Arc::clone(&counts);
            move || carry(&counts, &cable, &network)
        })?;
        Ok(Self {
            counts,
            thread: Some(thread),
        })
    }

    /// Frames whose inner checksum it left out so far.
    pub fn broken(&self) -> u64 {
        self.counts.broken.load(Ordering::Relaxed)
    }

    /// Has it compute checksums from now on.
    pub fn repair(&self) {
        self.counts.breaks.store(false, Ordering::Relaxed);
    }
}

impl Drop for FaultyCard {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.thread.take().map(joined) {
            eprintln!("the card ended early: {error:#}");
        }
    }
}

fn open(device: &str) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    let on: libc::c_int = 1;
    let size = u32::try_from(size_of_val(&on))?;
    // SAFETY: a live integer of the length given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VNET_HDR,
            (&raw const on).cast(),
            size,
        )
    };
    ensure!(done == 0, "PACKET_VNET_HDR: {}", Errno::last());
    bind(socket.as_raw_fd(), &link_address(device, ALL)?)?;
    Ok(socket)
}

fn carry(counts: &Counts, cable: &OwnedFd, network: &OwnedFd) -> Result<()> {
    let mut buffer = vec![0; HEADER + (1 << 16)];
    while !counts.stop.load(Ordering::Relaxed) {
        let mut ready =
            [cable, network].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match poll(&mut ready, LOOK) {
            Err(Errno::EINTR) => continue,
            polled => polled.context("waiting for a frame")?,
        };
        while let Some(length) = receive(cable, &mut buffer)? {
            break_checksum(counts, &mut buffer);
            transmit(network, &buffer[..length])?;
        }
        while let Some(length) = receive(network, &mut buffer)? {
            transmit(cable, &buffer[..length])?;
        }
    }
    Ok(())
}

/// The next frame that comes in by a device, with its header; `None` without one.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match recvfrom::<LinkAddr>(socket.as_raw_fd(), buffer) {
            Ok((length, Some(from))) if from.pkttype() != OUTGOING => return Ok(Some(length)),
            Ok(_) | Err(Errno::EINTR | Errno::ENETDOWN) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error).context("receiving a frame"),
        }
    }
}

/// Claims that an inner checksum is there.
fn break_checksum(counts: &Counts, frame: &mut [u8]) {
    let start = u16::from_le_bytes([frame[6], frame[7]]);
    if frame[0] & LEFT_TO_CARD != 0 && start > INNER && counts.breaks.load(Ordering::Relaxed) {
        frame[0] = 0;
        counts.broken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a frame. A full queue loses it, as a card does.
fn transmit(socket: &OwnedFd, frame: &[u8]) -> Result<()> {
    match send(socket.as_raw_fd(), frame, MsgFlags::empty()) {
        Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENETDOWN) => Ok(()),
        Err(error) => Err(error).context("sending a frame"),
    }
}
