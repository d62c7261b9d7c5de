//! The expressions of the rules that begin a trace, as attributes of a rule.
//!
//! Numbers are those of [include/uapi/linux/netfilter/nf_tables.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter/nf_tables.h).

use flannel_netlink::attribute::{attribute, octets};

use super::flow::TracedTuple;

/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NFTA_LIST_ELEM`.
const ELEMENT: u16 = 1;
/// `NFT_REG_1`, of 16 bytes.
const REGISTER: u32 = 1;
/// `NFT_META_NFTRACE`, `NFT_META_NFPROTO` and `NFT_META_L4PROTO`.
const NFTRACE: u32 = 12;
const NFPROTO: u32 = 15;
const L4PROTO: u32 = 16;
/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// The places of the addresses in an IPv4 and in an IPv6 header.
const V4_ENDS: [u32; 2] = [12, 16];
const V6_ENDS: [u32; 2] = [8, 24];
/// Packets that begin a trace each second, and at once.
const RATE: u64 = 10;
const BURST: u32 = 20;

/// The expressions that match a packet of the protocol with these ends.
pub(super) fn matching(protocol: u8, tuple: &TracedTuple) -> Vec<u8> {
    let (family, places) = if tuple.source.is_ipv4() {
        (IPV4, V4_ENDS)
    } else {
        (IPV6, V6_ENDS)
    };
    let mut all = [load_meta(NFPROTO), compare(&[family])].concat();
    for (place, end) in places.into_iter().zip([tuple.source, tuple.destination]) {
        all.extend(is_at(NETWORK, place, &octets(end)));
    }
    all.extend([load_meta(L4PROTO), compare(&[protocol])].concat());
    for (place, port) in [(0, tuple.source_port), (2, tuple.destination_port)] {
        all.extend(
            port.map(|port| is_at(TRANSPORT, place, &port.to_be_bytes()))
                .unwrap_or_default(),
        );
    }
    all
}

/// The expressions that count a packet and, for a number of them each second, begin its trace.
pub(super) fn counting_and_tracing() -> Vec<u8> {
    [counter(), limit(), load_true(), set_meta(NFTRACE)].concat()
}

fn is_at(base: u32, place: u32, value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let attributes = [
        number(1, REGISTER),
        number(2, base),
        number(3, place),
        number(4, length),
    ];
    [expression("payload", &attributes.concat()), compare(value)].concat()
}

fn compare(value: &[u8]) -> Vec<u8> {
    // NFT_CMP_EQ
    expression(
        "cmp",
        &[
            number(1, REGISTER),
            number(2, 0),
            nested(3, &attribute(1, value)),
        ]
        .concat(),
    )
}

fn load_meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)].concat())
}

fn set_meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(2, key), number(3, REGISTER)].concat())
}

fn load_true() -> Vec<u8> {
    expression(
        "immediate",
        &[number(1, REGISTER), nested(2, &attribute(1, &[1]))].concat(),
    )
}

fn counter() -> Vec<u8> {
    expression("counter", &[])
}

fn limit() -> Vec<u8> {
    let per_second = [
        attribute(1, &RATE.to_be_bytes()),
        attribute(2, &1_u64.to_be_bytes()),
    ]
    .concat();
    // NFT_LIMIT_PKTS
    expression(
        "limit",
        &[per_second, number(3, BURST), number(4, 0)].concat(),
    )
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let name = attribute(1, &[name.as_bytes(), &[0]].concat());
    nested(ELEMENT, &[name, nested(2, data)].concat())
}

/// An attribute with a number in network byte order.
pub(super) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// An attribute that has others in it.
pub(super) fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, value)
}
