//! Conntrack's table by netlink ([nfnetlink_conntrack.h, Linux 6.1][table]). Messages in host byte
//! order, values in network order.
//!
//! [table]:
//! https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter/nfnetlink_conntrack.h

use std::{collections::BTreeSet, io, net::IpAddr};

use flannel_common::{
    flow::connection::{ACKNOWLEDGEMENT_KNOWN, Connection, LIBERAL},
    packet::addr::Addr,
};
use flannel_netlink::{attribute::attribute, datagram::messages};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::{
    errno::Errno,
    libc::{AF_INET, AF_INET6, IPPROTO_TCP, MSG_DONTWAIT},
};

use crate::{
    nfnetlink::{FAMILY_HEADER, request},
    nftables::Attributes,
};

/// `NFNL_SUBSYS_CTNETLINK`, the upper byte of a message type, with `IPCTNL_MSG_CT_NEW` and
/// `IPCTNL_MSG_CT_GET`.
const CHANGE: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// More than one datagram of a dump.
const BUFFER: usize = 64 << 10;
/// Changes in one datagram.
const BATCH: usize = 128;

// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_STATUS`, `CTA_PROTOINFO`; below a tuple `CTA_TUPLE_IP`,
// `CTA_TUPLE_PROTO`, and below that `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT` and `CTA_PROTO_DST_PORT`;
// below `CTA_PROTOINFO` `CTA_PROTOINFO_TCP`, and below that `CTA_PROTOINFO_TCP_STATE` and
// `CTA_PROTOINFO_TCP_FLAGS_ORIGINAL` and `_REPLY`.
const TUPLES: [u16; 2] = [1, 2];
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const PORTS: [u16; 2] = [2, 3];
const TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS: [u16; 2] = [4, 5];
/// `CTA_IP_V4_SRC`, `_DST` and `CTA_IP_V6_SRC`, `_DST`.
const ADDRESSES_V4: [u16; 2] = [1, 2];
const ADDRESSES_V6: [u16; 2] = [3, 4];
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// `IPS_OFFLOAD` and `IPS_HW_OFFLOAD` ([nf_conntrack_common.h, Linux 6.1][common]): a flowtable
/// forwards the packets, and no state is shown.
///
/// [common]:
/// https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter/nf_conntrack_common.h
const OFFLOADED: u32 = 1 << 14 | 1 << 15;

/// `TCP_CONNTRACK_ESTABLISHED`, `_FIN_WAIT` and `_CLOSE_WAIT`.
const ALIVE: [u8; 3] = [3, 4, 5];

/// Conntrack's table in one network namespace.
#[derive(Debug)]
pub struct ConntrackTable {
    socket: Socket,
}

impl ConntrackTable {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        Ok(Self { socket })
    }

    /// Checks that connections can be changed here: the kernel has the interface, and this process
    /// may use it. The kernel loads its module if it has one.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&mut self) -> io::Result<()> {
        // No connection has these ends.
        let none = Connection {
            source: Addr::from_v4_bytes([0; 4]),
            ..Connection::default()
        };
        self.stop_checking_windows(&[Connection {
            destination: none.source,
            ..none
        }])
        .map(drop)
    }

    /// Has conntrack no longer check the windows of these connections. Returns the number of those
    /// that it does not have any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop_checking_windows(&mut self, connections: &[Connection]) -> io::Result<usize> {
        let mut gone = 0;
        for batch in connections.chunks(BATCH) {
            let messages: Vec<u8> = batch.iter().flat_map(change).collect();
            self.socket.send_to(&messages, &SocketAddr::new(0, 0), 0)?;
            // The kernel has worked them in, and answers only refusals.
            gone += self.refusals()?;
        }
        Ok(gone)
    }

    fn refusals(&mut self) -> io::Result<usize> {
        let (mut gone, mut refused) = (0, None);
        let mut datagram = Vec::with_capacity(BUFFER);
        loop {
            datagram.clear();
            match self.socket.recv(&mut datagram, MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // More refusals than the socket holds.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => continue,
                received => received?,
            };
            for_each(&datagram, |kind, payload| {
                if kind == ERROR {
                    let error = refusal(payload);
                    match error.raw_os_error() {
                        Some(0) => {}
                        Some(number) if number == Errno::ENOENT as i32 => gone += 1,
                        _ => refused = Some(error),
                    }
                }
                true
            });
        }
        refused.map_or(Ok(gone), Err)
    }

    /// Passes the TCP connections that are alive and have an address in one of these networks, each
    /// by its first direction. An interrupted dump passes one too few or too many.
    ///
    /// # Errors
    /// The kernel refuses or does not answer.
    pub fn alive_in(
        &mut self,
        networks: &BTreeSet<IpNet>,
        mut take: impl FnMut(Option<Connection>),
    ) -> io::Result<()> {
        let is_in = |address: &IpAddr| networks.iter().any(|network| network.contains(address));
        let mut take_of_networks = |addresses: &[IpAddr], connection| {
            if addresses.iter().any(is_in) {
                take(connection);
            }
        };
        let both_families = request(GET, NLM_F_REQUEST | NLM_F_DUMP, 0, 0, &[]);
        self.socket
            .send_to(&both_families, &SocketAddr::new(0, 0), 0)?;
        let mut datagram = Vec::with_capacity(BUFFER);
        loop {
            datagram.clear();
            self.socket.recv(&mut datagram, 0)?;
            let (mut is_done, mut refused) = (false, None);
            for_each(&datagram, |kind, payload| {
                match kind {
                    DONE => is_done = true,
                    ERROR => refused = Some(refusal(payload)),
                    _ => pass(
                        payload.get(FAMILY_HEADER..).unwrap_or_default(),
                        &mut take_of_networks,
                    ),
                }
                !is_done && refused.is_none()
            });
            if let Some(error) = refused {
                return Err(error);
            }
            if is_done {
                return Ok(());
            }
        }
    }
}

/// Passes type and payload of each message of a datagram, until `take` returns false.
fn for_each(datagram: &[u8], mut take: impl FnMut(u16, &[u8]) -> bool) {
    for message in messages(datagram).flatten().map(NetlinkBuffer::new) {
        if !take(message.message_type(), message.payload()) {
            return;
        }
    }
}

/// The change of one connection: its direction is found in either direction of the entry.
fn change(connection: &Connection) -> Vec<u8> {
    let Connection {
        source,
        destination,
        ports,
    } = connection;
    let ends = [*source, *destination].map(IpAddr::from);
    let is_v4 = ends.iter().all(IpAddr::is_ipv4);
    let (family, kinds) = if is_v4 {
        (AF_INET, ADDRESSES_V4)
    } else {
        (AF_INET6, ADDRESSES_V6)
    };
    let address = |(kind, end): (u16, IpAddr)| match end {
        IpAddr::V4(end) => attribute(kind, &end.octets()),
        IpAddr::V6(end) => attribute(kind, &end.octets()),
    };
    let addresses: Vec<u8> = kinds.into_iter().zip(ends).flat_map(address).collect();
    let [a, b, c, d] = ports.to_ne_bytes();
    let protocol = [IPPROTO_TCP.to_le_bytes()[0]];
    let ports = [
        attribute(PROTO_NUM, &protocol),
        attribute(PORTS[0], &[a, b]),
        attribute(PORTS[1], &[c, d]),
    ]
    .concat();
    let tuple = [
        attribute(TUPLE_IP | NESTED, &addresses),
        attribute(TUPLE_PROTO | NESTED, &ports),
    ]
    .concat();
    let flags = [LIBERAL, LIBERAL | ACKNOWLEDGEMENT_KNOWN];
    let flags: Vec<u8> = TCP_FLAGS
        .into_iter()
        .flat_map(|kind| attribute(kind, &flags))
        .collect();
    let state = attribute(PROTOINFO | NESTED, &attribute(TCP | NESTED, &flags));
    let body = [attribute(TUPLES[0] | NESTED, &tuple), state].concat();
    request(CHANGE, NLM_F_REQUEST, 0, family.to_le_bytes()[0], &body)
}

fn refusal(payload: &[u8]) -> io::Error {
    let errno = payload
        .first_chunk()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(errno.saturating_neg())
}

/// Passes an entry, if it is of TCP and alive.
fn pass(entry: &[u8], take: &mut impl FnMut(&[IpAddr], Option<Connection>)) {
    let protocol =
        find(entry, &[TUPLES[0], TUPLE_PROTO, PROTO_NUM]).and_then(|value| value.first().copied());
    let state = find(entry, &[PROTOINFO, TCP, TCP_STATE]).and_then(|value| value.first().copied());
    let status = find(entry, &[STATUS])
        .and_then(|value| value.first_chunk())
        .map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let is_tcp = protocol.is_some_and(|number| i32::from(number) == IPPROTO_TCP);
    let is_in_state = state.is_some_and(|state| ALIVE.contains(&state)) || status & OFFLOADED != 0;
    if is_tcp && is_in_state {
        take(&addresses(entry), connection(entry));
    }
}

/// The first direction of an entry.
fn connection(entry: &[u8]) -> Option<Connection> {
    let tuple = find(entry, &TUPLES[..1])?;
    let end = |place: usize| {
        let kinds = [ADDRESSES_V4[place], ADDRESSES_V6[place]];
        kinds
            .into_iter()
            .find_map(|kind| address(find(tuple, &[TUPLE_IP, kind])?))
            .map(Addr::from)
    };
    let [a, b] = *find(tuple, &[TUPLE_PROTO, PORTS[0]])?.first_chunk()?;
    let [c, d] = *find(tuple, &[TUPLE_PROTO, PORTS[1]])?.first_chunk()?;
    Some(Connection {
        source: end(0)?,
        destination: end(1)?,
        ports: u32::from_ne_bytes([a, b, c, d]),
    })
}

/// The addresses of both tuples.
fn addresses(entry: &[u8]) -> Vec<IpAddr> {
    let kinds = || ADDRESSES_V4.into_iter().chain(ADDRESSES_V6);
    let ends = TUPLES
        .into_iter()
        .flat_map(|tuple| kinds().map(move |kind| [tuple, TUPLE_IP, kind]));
    ends.filter_map(|path| address(find(entry, &path)?))
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    <[u8; 16]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| v4())
        .ok()
}

/// The value of an attribute inside others.
fn find<'a>(bytes: &'a [u8], path: &[u16]) -> Option<&'a [u8]> {
    path.iter()
        .try_fold(bytes, |bytes, kind| Attributes::new(bytes).get(*kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(kind: u16, source: [u8; 4], destination: [u8; 4], protocol: u8) -> Vec<u8> {
        let ends = attribute(
            TUPLE_IP,
            &[attribute(1, &source), attribute(2, &destination)].concat(),
        );
        let numbers = [
            attribute(PROTO_NUM, &[protocol]),
            attribute(2, &[31, 144]),
            attribute(3, &[0, 80]),
        ]
        .concat();
        attribute(
            kind | NESTED,
            &[ends, attribute(TUPLE_PROTO, &numbers)].concat(),
        )
    }

    /// A pod's connection to a Service.
    fn entry(protocol: u8, state: u8) -> Vec<u8> {
        let original = tuple(TUPLES[0], [10, 244, 1, 2], [10, 96, 0, 1], protocol);
        let reply = tuple(TUPLES[1], [10, 244, 2, 2], [10, 244, 1, 2], protocol);
        let state = attribute(PROTOINFO, &attribute(TCP, &attribute(TCP_STATE, &[state])));
        [&original[..], &reply, &state].concat()
    }

    fn passed(entry: &[u8]) -> Option<(Vec<IpAddr>, Option<Connection>)> {
        let mut passed = None;
        pass(entry, &mut |addresses: &[IpAddr], connection| {
            passed = Some((addresses.to_vec(), connection));
        });
        passed
    }

    #[test]
    fn living_entries_are_passed_with_both_tuples_and_the_first_direction() {
        let (addresses, connection) = passed(&entry(6, 3)).expect("alive");
        for address in [[10, 244, 1, 2], [10, 96, 0, 1], [10, 244, 2, 2]] {
            assert!(addresses.contains(&IpAddr::from(address)), "{address:?}");
        }
        assert_eq!(connection, Some(service()));
        for (protocol, state, expected) in [
            (6, 4, true),
            (6, 5, true),
            (6, 2, false),
            (6, 7, false),
            (17, 3, false),
        ] {
            assert_eq!(
                passed(&entry(protocol, state)).is_some(),
                expected,
                "{protocol} {state}"
            );
        }
        let mut offloaded = entry(6, 0);
        offloaded.truncate(
            offloaded.len()
                - attribute(PROTOINFO, &attribute(TCP, &attribute(TCP_STATE, &[0]))).len(),
        );
        assert!(passed(&offloaded).is_none());
        offloaded.extend(attribute(STATUS, &0x418e_u32.to_be_bytes()));
        assert!(passed(&offloaded).is_some());
        assert!(passed(&[]).is_none());
    }

    fn service() -> Connection {
        Connection {
            source: Addr::from_v4_bytes([10, 244, 1, 2]),
            destination: Addr::from_v4_bytes([10, 96, 0, 1]),
            ports: u32::from_ne_bytes([31, 144, 0, 80]),
        }
    }

    #[test]
    fn a_change_names_the_connection_and_both_directions_flags() {
        let v6 = Connection {
            source: Addr([1; 16]),
            destination: Addr([2; 16]),
            ports: u32::from_ne_bytes([31, 144, 0, 80]),
        };
        for (wanted, family) in [(service(), 2), (v6, 10)] {
            let bytes = change(&wanted);
            let mut read = None;
            for_each(&bytes, |kind, payload| {
                read = Some((kind, payload.to_vec()));
                true
            });
            let (kind, payload) = read.expect("a message");
            assert_eq!((kind, payload[0], bytes.len() % 4), (CHANGE, family, 0));
            let entry = &payload[FAMILY_HEADER..];
            assert_eq!(connection(entry), Some(wanted));
            for kind in TCP_FLAGS {
                assert_eq!(
                    find(entry, &[PROTOINFO, TCP, kind]),
                    Some(&[0x08, 0x28][..]),
                    "set, and the other one cleared"
                );
            }
        }
    }
}
