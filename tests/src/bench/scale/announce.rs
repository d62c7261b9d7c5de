//! The kernel's announcements on a node. No more than the head of each message is decoded.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv,
            setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
};

/// `RTMGRP_NEIGH`, `RTMGRP_IPV4_ROUTE`, and the group of nexthop objects, `RTNLGRP_NEXTHOP` (32).
const GROUPS: u32 = 0x4 | 0x40 | 1 << 31;
/// Enough for all events of the largest cluster.
const BUFFER: usize = 512 << 20;
/// Silence after which what is waited for does not come any more.
const SILENCE: Duration = Duration::from_secs(30);

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// A socket that receives announcements of neighbours, FDB entries, nexthop objects and IPv4
/// routes.
#[derive(Debug)]
pub(super) struct Announcements {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Messages so far.
    pub(super) count: u64,
    /// Nexthop objects made so far.
    pub(super) nexthops: u64,
}

/// The announcement to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// A route to a `/24` was made.
    Route,
    /// A route to a `/24` was deleted.
    RouteGone,
    /// A neighbour was deleted.
    NeighbourGone,
}

impl Announcements {
    /// Of the calling thread's network namespace, from now on.
    pub(super) fn listen() -> Result<Self> {
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).context("a large receive buffer")?;
        let silence = TimeVal::new(SILENCE.as_secs().try_into()?, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &silence)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Self {
            socket,
            buffer: vec![0; 64 << 10],
            count: 0,
            nexthops: 0,
        })
    }

    /// Waits until `sight` was announced `times` times from now on, and returns the time of the
    /// last one.
    pub(super) fn until(&mut self, sight: Sight, times: u32) -> Result<SystemTime> {
        let mut seen = 0;
        while seen < times {
            let len = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(Errno::EAGAIN) => {
                    bail!("{sight:?}: {seen} of {times}, then nothing for {SILENCE:?}")
                }
                other => other?,
            };
            for message in messages(&self.buffer[..len]) {
                self.count += 1;
                self.nexthops += u64::from(message.kind == RTM_NEWNEXTHOP);
                seen += u32::from(message.sight() == Some(sight));
            }
        }
        Ok(SystemTime::now())
    }
}

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNEXTHOP: u16 = 104;
/// `AF_INET`: in a neighbour message, neither IPv6 nor an FDB entry.
const INET: u8 = 2;

/// The beginning of a message.
struct Head {
    kind: u16,
    family: u8,
    /// `rtm_dst_len` of a route.
    dst_len: u8,
}

impl Head {
    fn sight(&self) -> Option<Sight> {
        match (self.kind, self.dst_len) {
            (RTM_NEWROUTE, 24) => Some(Sight::Route),
            (RTM_DELROUTE, 24) => Some(Sight::RouteGone),
            (RTM_DELNEIGH, _) if self.family == INET => Some(Sight::NeighbourGone),
            _ => None,
        }
    }
}

fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Head> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
        let (family, dst_len) = (*datagram.get(HEADER)?, *datagram.get(HEADER + 1)?);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Head {
            kind,
            family,
            dst_len,
        })
    })
}
