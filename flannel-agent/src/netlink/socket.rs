//! Opening netlink sockets: buffers, strict checking, extended acks, group membership.
//!
//! A socket belongs to the network namespace of the thread that opens it, for good.

use std::io;

use netlink_sys::{AsyncSocket, SocketAddr, TokioSocket};
use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};
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
    raw.set_ext_ack(true)?;
    // Without the echo of the request the remark stands at a known place in the error message.
    raw.set_cap_ack(true)?;
    match raw.set_netlink_get_strict_chk(true) {
        // Before kernel 4.20 filters in dumps are ignored; every verb filters again itself.
        Err(error) if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => {
            debug!("this kernel has no strict netlink checking");
            Ok(socket)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

/// Opens a socket that receives the multicast `groups` (`RTNLGRP_*`, `XFRMNLGRP_*`) of `protocol`.
pub(super) fn for_events(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    enlarge(&socket, EVENTS)?;
    let raw = socket.socket_mut();
    raw.bind(&SocketAddr::new(0, 0))?;
    for &group in groups {
        join(raw, group)?;
    }
    Ok(socket)
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
