//! Conntrack's table by netlink (linux/netfilter/nfnetlink_conntrack.h). Messages in host byte
//! order, values in network order.

use std::{io, net::IpAddr};

use netlink_packet_core::{NLA_TYPE_MASK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NlasIterator};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::libc::IPPROTO_TCP;

/// `NFNL_SUBSYS_CTNETLINK`, the upper byte of a message type, with `IPCTNL_MSG_CT_GET`.
const GET: u16 = 1 << 8 | 1;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr` and of `struct nfgenmsg`.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
/// More than one datagram of a dump.
const BUFFER: usize = 64 << 10;

// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_STATUS`, `CTA_PROTOINFO`; below a tuple `CTA_TUPLE_IP`,
// `CTA_TUPLE_PROTO`, and below that `CTA_PROTO_NUM`; below `CTA_PROTOINFO` `CTA_PROTOINFO_TCP`, and
// below that `CTA_PROTOINFO_TCP_STATE`.
const TUPLES: [u16; 2] = [1, 2];
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const TCP: u16 = 1;
const TCP_STATE: u16 = 1;

/// `IPS_OFFLOAD` and `IPS_HW_OFFLOAD`: a flowtable forwards the packets, and no state is shown.
const OFFLOADED: u32 = 1 << 14 | 1 << 15;

/// `TCP_CONNTRACK_ESTABLISHED`, `_FIN_WAIT` and `_CLOSE_WAIT`.
const ALIVE: [u8; 3] = [3, 4, 5];

/// TCP connections that are alive and have such an address. An interrupted dump counts one too few
/// or too many.
pub(super) fn count(is_meant: impl Fn(IpAddr) -> bool) -> io::Result<usize> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&request(), &SocketAddr::new(0, 0), 0)?;
    let (mut count, mut datagram) = (0, Vec::with_capacity(BUFFER));
    loop {
        datagram.clear();
        socket.recv(&mut datagram, 0)?;
        let mut rest = &datagram[..];
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            match message.message_type() {
                DONE => return Ok(count),
                ERROR => return Err(refusal(message.payload())),
                _ => count += usize::from(is_alive(message.payload(), &is_meant)),
            }
            let length = usize::try_from(message.length()).unwrap_or(usize::MAX).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// A dump of both families.
fn request() -> Vec<u8> {
    let mut bytes = vec![0; HEADER + FAMILY_HEADER];
    bytes[..4].copy_from_slice(&20_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&GET.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes
}

fn refusal(payload: &[u8]) -> io::Error {
    let errno = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(errno.saturating_neg())
}

fn is_alive(payload: &[u8], is_meant: impl Fn(IpAddr) -> bool) -> bool {
    let entry = payload.get(FAMILY_HEADER..).unwrap_or_default();
    let protocol = find(entry, &[TUPLES[0], TUPLE_PROTO, PROTO_NUM]).and_then(|value| value.first().copied());
    let state = find(entry, &[PROTOINFO, TCP, TCP_STATE]).and_then(|value| value.first().copied());
    let status =
        find(entry, &[STATUS]).and_then(|value| value.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let is_tcp = protocol.is_some_and(|number| i32::from(number) == IPPROTO_TCP);
    let is_in_state = state.is_some_and(|state| ALIVE.contains(&state)) || status & OFFLOADED != 0;
    is_tcp && is_in_state && addresses(entry).into_iter().any(is_meant)
}

/// The addresses of both tuples.
fn addresses(entry: &[u8]) -> Vec<IpAddr> {
    let ends = TUPLES.into_iter().filter_map(|tuple| find(entry, &[tuple, TUPLE_IP]));
    ends.flat_map(|ends| attributes(ends).filter_map(|(_, value)| address(value))).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    <[u8; 16]>::try_from(bytes).map(IpAddr::from).or_else(|_| v4()).ok()
}

/// The value of an attribute inside others.
fn find<'a>(bytes: &'a [u8], path: &[u16]) -> Option<&'a [u8]> {
    path.iter()
        .try_fold(bytes, |bytes, wanted| attributes(bytes).find(|(kind, _)| kind == wanted).map(|(_, value)| value))
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let whole = NlasIterator::new(bytes).map_while(Result::ok);
    whole.map(|attribute| (attribute.kind() & NLA_TYPE_MASK, attribute.into_inner())).filter_map(|(kind, all)| {
        let length = usize::from(u16::from_ne_bytes(*all.first_chunk()?));
        Some((kind, all.get(4..length)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn tuple(kind: u16, source: [u8; 4], destination: [u8; 4], protocol: u8) -> Vec<u8> {
        let ends = attribute(TUPLE_IP, &[attribute(1, &source), attribute(2, &destination)].concat());
        let ports = attribute(TUPLE_PROTO, &[attribute(PROTO_NUM, &[protocol]), attribute(2, &[31, 144])].concat());
        attribute(kind | 1 << 15, &[ends, ports].concat())
    }

    /// A pod's connection to a Service.
    fn entry(protocol: u8, state: u8) -> Vec<u8> {
        let original = tuple(TUPLES[0], [10, 244, 1, 2], [10, 96, 0, 1], protocol);
        let reply = tuple(TUPLES[1], [10, 244, 2, 2], [10, 244, 1, 2], protocol);
        let state = attribute(PROTOINFO, &attribute(TCP, &attribute(TCP_STATE, &[state])));
        [&[2, 0, 0, 0][..], &original, &reply, &state].concat()
    }

    #[test]
    fn entries_are_judged_by_protocol_state_and_both_tuples() {
        let is = |wanted: [u8; 4]| move |address| address == IpAddr::from(wanted);
        for address in [[10, 244, 1, 2], [10, 96, 0, 1], [10, 244, 2, 2]] {
            assert!(is_alive(&entry(6, 3), is(address)), "{address:?}");
        }
        assert!(!is_alive(&entry(6, 3), is([10, 244, 3, 3])));
        for (protocol, state, expected) in [(6, 4, true), (6, 5, true), (6, 2, false), (6, 7, false), (17, 3, false)] {
            assert_eq!(is_alive(&entry(protocol, state), |_| true), expected, "{protocol} {state}");
        }
        let mut offloaded = entry(6, 0);
        offloaded.truncate(offloaded.len() - attribute(PROTOINFO, &attribute(TCP, &attribute(TCP_STATE, &[0]))).len());
        assert!(!is_alive(&offloaded, |_| true));
        offloaded.extend(attribute(STATUS, &0x418e_u32.to_be_bytes()));
        assert!(is_alive(&offloaded, is([10, 96, 0, 1])));
        assert!(!is_alive(&[], |_| true));
    }
}
