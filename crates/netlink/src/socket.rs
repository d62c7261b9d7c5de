//! Opening netlink sockets: buffers, strict checking, extended acks, group membership.
//!
//! A socket belongs to the network namespace of the thread that opens it, for good.

use std::io;

use netlink_sys::{AsyncSocket, SocketAddr, TokioSocket};
use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};
use socket2::{SockFilter, SockRef};
use tracing::debug;

/// Bytes of receive buffer for answers. Acks of pipelined requests and one dump share it.
const ANSWERS: usize = 2 << 20;
/// Bytes of receive buffer for events: about 20,000 route changes between two turns of the reader.
const EVENTS: usize = 16 << 20;

/// Opens a socket for requests of `protocol` (`NETLINK_*`).
pub(super) fn for_requests(protocol: isize) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    enlarge(&socket, ANSWERS)?;
    let raw = socket.socket_mut();
    raw.bind_auto()?;
    raw.set_ext_ack(true)?;
    // Without the echo of the request the remark stands at a known place in the error message.
    raw.set_cap_ack(true)?;
    match raw.set_netlink_get_strict_chk(true) {
        // Before kernel 4.20 filters in dumps are ignored; every verb filters again itself
        // (NETLINK_GET_STRICT_CHK in netlink(7),
        // <https://man7.org/linux/man-pages/man7/netlink.7.html>).
        Err(error) if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => {
            debug!("this kernel has no strict netlink checking");
            Ok(socket)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

/// Opens a socket that receives the multicast `groups` (`RTNLGRP_*`, `XFRMNLGRP_*`) of `protocol`.
pub fn for_events(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    enlarge(&socket, EVENTS)?;
    let raw = socket.socket_mut();
    raw.bind(&SocketAddr::new(0, 0))?;
    for &group in groups {
        join(raw, group)?;
    }
    Ok(socket)
}

/// Excludes from `events` the changes made through the sockets `own`, except those of links and
/// addresses: these change more than what was asked for.
pub(super) fn ignore_changes_by(events: &TokioSocket, own: &[&TokioSocket]) -> io::Result<()> {
    let mut ports = Vec::with_capacity(own.len());
    for socket in own {
        let mut address = SocketAddr::new(0, 0);
        socket.socket_ref().get_address(&mut address)?;
        ports.push(address.port_number());
    }
    SockRef::from(events.socket_ref()).attach_filter(&filter(&ports))
}

/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_NEWADDR`, `RTM_DELADDR`.
const ALWAYS_HEARD: [u16; 4] = [16, 17, 20, 21];

/// A classic BPF program over `struct nlmsghdr`, the type at byte 4 and the sender's port at byte
/// 12. It loads in network order what stands there in the host's.
fn filter(ports: &[u32]) -> Vec<SockFilter> {
    const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const SKIP_UNLESS_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let unless = |value, length| {
        [
            SockFilter::new(SKIP_UNLESS_EQUAL, 0, 1, value),
            SockFilter::new(RETURN, 0, 0, length),
        ]
    };
    let mut program = vec![SockFilter::new(LOAD_HALF, 0, 0, 4)];
    program.extend(
        ALWAYS_HEARD
            .iter()
            .flat_map(|kind| unless(kind.to_be().into(), u32::MAX)),
    );
    program.push(SockFilter::new(LOAD_WORD, 0, 0, 12));
    program.extend(ports.iter().flat_map(|port| unless(port.to_be(), 0)));
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program
}

fn join(socket: &netlink_sys::Socket, group: u32) -> io::Result<()> {
    match socket.add_membership(group) {
        // A group this kernel does not have (nexthop objects are of 5.3) sends no events either.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            debug!(group, "this kernel has no such netlink group");
            Ok(())
        }
        other => other,
    }
}

/// Sets the receive buffer past `net.core.rmem_max` where the agent may, up to it otherwise.
fn enlarge(socket: &TokioSocket, bytes: usize) -> io::Result<()> {
    let socket = socket.socket_ref();
    match setsockopt(socket, sockopt::RcvBufForce, &bytes) {
        Err(Errno::EPERM) => Ok(setsockopt(socket, sockopt::RcvBuf, &bytes)?),
        other => Ok(other?),
    }
}
