//! The raw sockets of ICMP, one of each family.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
};

use flannel_host::family::{ByFamily, Family};
use nix::{
    libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
        EAFNOSUPPORT, in_addr, in_pktinfo, in6_addr, in6_pktinfo,
    },
    sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg},
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::{io::Interest, net::UdpSocket};

use super::message::reply_type;

/// Raw sockets, or the errors of opening them. They deliver only replies to our requests, so that a
/// flood of other ICMP does not wake the agent.
#[derive(Debug)]
pub struct EchoSockets {
    sockets: ByFamily<io::Result<Socket>>,
    /// The identifier of our requests.
    pub(super) identifier: u16,
}

impl EchoSockets {
    /// Opens them, which takes `CAP_NET_RAW`: to be called before that is given up. A failure is
    /// kept for the status.
    pub fn open() -> Self {
        let identifier = rand::random();
        let open = |family| open(family, identifier);
        Self {
            sockets: ByFamily {
                v4: open(Family::V4),
                v6: open(Family::V6),
            },
            identifier,
        }
    }

    /// The reason why peers of a family cannot be asked, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        let problem = |family: &Family| {
            let error = self.sockets.get(*family).as_ref().err()?;
            // A host without IPv6 has no peers of it either.
            if error.raw_os_error() == Some(EAFNOSUPPORT) {
                return None;
            }
            Some(format!("no raw socket for ICMP over {family}: {error}"))
        };
        let problems: Vec<_> = Family::BOTH.iter().filter_map(problem).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Those that could be opened.
    pub(super) fn into_sockets(self) -> ByFamily<Option<Socket>> {
        let ByFamily { v4, v6 } = self.sockets;
        ByFamily {
            v4: v4.ok(),
            v6: v6.ok(),
        }
    }
}

/// Sends a message from an address of this host; an error if the host does not have it.
pub(super) fn send_from(
    socket: &UdpSocket,
    source: IpAddr,
    to: IpAddr,
    message: &[u8],
) -> io::Result<()> {
    let (v4, v6);
    let control = match source {
        IpAddr::V4(source) => {
            let address = |address| in_addr { s_addr: address };
            let source = u32::from_ne_bytes(source.octets());
            v4 = in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address(source),
                ipi_addr: address(0),
            };
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        IpAddr::V6(source) => {
            v6 = in6_pktinfo {
                ipi6_addr: in6_addr {
                    s6_addr: source.octets(),
                },
                ipi6_ifindex: 0,
            };
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    };
    let (to, parts) = (
        SockaddrStorage::from(SocketAddr::new(to, 0)),
        [io::IoSlice::new(message)],
    );
    let send = || {
        Ok(sendmsg(
            socket.as_raw_fd(),
            &parts,
            &[control],
            MsgFlags::MSG_DONTWAIT,
            Some(&to),
        )?)
    };
    socket.try_io(Interest::WRITABLE, send).map(drop)
}

fn open(family: Family, identifier: u16) -> io::Result<Socket> {
    let (domain, protocol) = match family {
        Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
        Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.attach_filter(&replies_to(family, identifier))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A filter in classic BPF that accepts replies with this identifier.
fn replies_to(family: Family, identifier: u16) -> Vec<SockFilter> {
    // Of IPv4 the IP header comes first: its length goes into register X.
    let (header, at) = match family {
        Family::V4 => (Some(statement(BPF_LDX | BPF_B | BPF_MSH, 0)), BPF_IND),
        Family::V6 => (None, BPF_ABS),
    };
    let checks = [
        statement(BPF_LD | BPF_B | at, 0),
        unless_equal(reply_type(family).into(), 3),
        statement(BPF_LD | BPF_H | at, 4),
        unless_equal(identifier.into(), 1),
        statement(BPF_RET | BPF_K, u32::MAX),
        statement(BPF_RET | BPF_K, 0),
    ];
    header.into_iter().chain(checks).collect()
}

fn statement(code: u32, value: u32) -> SockFilter {
    SockFilter::new(operation(code), 0, 0, value)
}

/// Jumps over some statements unless the loaded value is this one.
fn unless_equal(value: u32, over: u8) -> SockFilter {
    SockFilter::new(operation(BPF_JMP | BPF_JEQ | BPF_K), 0, over, value)
}

/// The constants are wider than the field they are for.
fn operation(code: u32) -> u16 {
    u16::try_from(code).unwrap_or(u16::MAX)
}
