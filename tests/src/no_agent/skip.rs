//! A connection in the state after very much traffic. Both ends are replaced by sockets with other
//! sequence numbers, by the kernel's means to move connections (`TCP_REPAIR`). No packet is sent.

use std::{
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd,
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
        sockopt,
    },
};

use super::Talk;
use crate::Host;

// linux/tcp.h.
const REPAIR_ON: u32 = 1;
const REPAIR_OFF: u32 = 0;
const RECEIVE_QUEUE: u32 = 1;
const SEND_QUEUE: u32 = 2;

/// The sequence numbers that an end receives and sends next.
#[derive(Clone, Copy)]
struct Numbers {
    receive: u32,
    send: u32,
}

impl Talk {
    /// Goes on as if the client had sent `bytes` more bytes. The ends are on these hosts, and no
    /// packet is in flight.
    pub fn skip(self, from: &Host, host: &Host, bytes: u32) -> Result<Self> {
        let [client, server] = self.ends()?;
        let (mut near, mut far) = (numbers(&self.client)?, numbers(&self.server)?);
        let message = self.message;
        // Not by closing them: a process that another test is starting may have copies of them.
        forget(&self.client)?;
        forget(&self.server)?;
        near.send = near.send.wrapping_add(bytes);
        far.receive = far.receive.wrapping_add(bytes);
        let opened = [(from, client, server, near), (host, server, client, far)]
            .map(|(host, own, other, numbers)| host.enter(|| open(own, other, numbers))?);
        let [client, server] = opened;
        let (client, server) = (client?, server?);
        // Each end asks the other for its window then, so both have to be there.
        set(&client, libc::TCP_REPAIR, REPAIR_OFF)?;
        set(&server, libc::TCP_REPAIR, REPAIR_OFF)?;
        Self::of(client, server, message)
    }
}

/// Returns an end's sequence numbers. The end stays in repair mode, in which it sends nothing.
fn numbers(end: &TcpStream) -> Result<Numbers> {
    set(end, libc::TCP_REPAIR, REPAIR_ON)?;
    let number = |queue| {
        set(end, libc::TCP_REPAIR_QUEUE, queue)?;
        get(end, libc::TCP_QUEUE_SEQ)
    };
    Ok(Numbers {
        receive: number(RECEIVE_QUEUE)?,
        send: number(SEND_QUEUE)?,
    })
}

/// Takes the connection from an end in repair mode, which sends nothing to the other end.
fn forget(end: &TcpStream) -> Result<()> {
    let unspecified = libc::sockaddr {
        sa_family: libc::sa_family_t::try_from(libc::AF_UNSPEC)?,
        sa_data: [0; 14],
    };
    let size = libc::socklen_t::try_from(size_of_val(&unspecified))?;
    // SAFETY: a live address of the size given.
    let done = unsafe { libc::connect(end.as_raw_fd(), &raw const unspecified, size) };
    Errno::result(done)
        .context("taking a connection from its end")
        .map(drop)
}

/// Returns an end in the connected state, which sends nothing yet.
fn open(own: SocketAddr, other: SocketAddr, numbers: Numbers) -> Result<TcpStream> {
    let family = if own.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let end = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&end, sockopt::ReuseAddr, &true)?;
    set(&end, libc::TCP_REPAIR, REPAIR_ON)?;
    bind(end.as_raw_fd(), &SockaddrStorage::from(own)).with_context(|| own.to_string())?;
    for (queue, number) in [(RECEIVE_QUEUE, numbers.receive), (SEND_QUEUE, numbers.send)] {
        set(&end, libc::TCP_REPAIR_QUEUE, queue)?;
        set(&end, libc::TCP_QUEUE_SEQ, number)?;
    }
    connect(end.as_raw_fd(), &SockaddrStorage::from(other)).with_context(|| other.to_string())?;
    Ok(end.into())
}

fn set(end: &impl AsRawFd, option: libc::c_int, value: u32) -> Result<()> {
    let size = libc::socklen_t::try_from(size_of_val(&value))?;
    // SAFETY: a live integer of the size given.
    let done = unsafe {
        libc::setsockopt(
            end.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size,
        )
    };
    Errno::result(done)
        .with_context(|| format!("TCP option {option}"))
        .map(drop)
}

fn get(end: &impl AsRawFd, option: libc::c_int) -> Result<u32> {
    let mut value = 0_u32;
    let mut size = libc::socklen_t::try_from(size_of_val(&value))?;
    // SAFETY: live integers; the kernel writes no more than `size` bytes.
    let done = unsafe {
        libc::getsockopt(
            end.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    Errno::result(done).with_context(|| format!("TCP option {option}"))?;
    Ok(value)
}
