//! Datagrams of many flows that differ only in their addresses and ports: equal lengths, equal
//! payload, no identification, and over IPv4 no checksum.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    libc,
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use crate::{Host, host::joined};

/// Sockets of each sender on each CPU.
const SOCKETS: u16 = 8;

/// Sends from every one of `senders` to every one of `targets`, on every CPU at once.
pub fn flood(senders: &[&Host], targets: &[SocketAddr], length: Duration) -> Result<()> {
    let cpus = thread::available_parallelism()?.get();
    let start = |sender: &&Host, cpu: usize| {
        let targets = targets.to_vec();
        sender.thread(move || send(cpu, &targets, length))
    };
    let threads: Vec<_> = senders
        .iter()
        .flat_map(|sender| (0..cpus).map(move |cpu| start(sender, cpu)))
        .collect::<Result<_>>()?;
    threads.into_iter().try_for_each(joined)
}

fn send(cpu: usize, targets: &[SocketAddr], length: Duration) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus).context("pinning a sender")?;
    let is_v4 = targets.first().is_some_and(SocketAddr::is_ipv4);
    let sockets = (0..SOCKETS)
        .map(|_| socket(is_v4))
        .collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    while start.elapsed() < length {
        for (socket, target) in sockets
            .iter()
            .flat_map(|socket| targets.iter().map(move |target| (socket, target)))
        {
            // What the far end says of a closed port is none of a flood's business.
            drop(socket.send_to(&[0x5a; 64], target));
        }
    }
    Ok(())
}

/// Not connected, because the kernel numbers the datagrams of a connected socket.
fn socket(is_v4: bool) -> Result<UdpSocket> {
    let any: IpAddr = if is_v4 { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    if is_v4 {
        let on: libc::c_int = 1;
        let size = libc::socklen_t::try_from(size_of_val(&on))?;
        // SAFETY: a live integer of the size given.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size,
            )
        };
        Errno::result(done).context("SO_NO_CHECK")?;
    }
    Ok(socket)
}
