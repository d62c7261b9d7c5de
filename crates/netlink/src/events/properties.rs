//! Properties of the decoders: any bytes from a netlink socket are decoded or ignored, and none of
//! them end the agent.

use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_xfrm::XfrmMessage;
use proptest::{collection::vec, prelude::*};

use super::{decode, nftables::Changes};
use crate::{nexthop::NexthopMessage, reply::Reply};

const HEADER: usize = 16;

/// Types of rtnetlink, of xfrm and of nftables, and any other.
fn any_type() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 16_u16..120, 2 => 0x0a00_u16..0x0a20, 1 => any::<u16>()]
}

/// An attribute with a length that is right, of bytes or of attributes. Names of link kinds lead
/// deepest.
fn any_attribute() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "vxlan",
        "bridge",
        "veth",
        "vlan",
        "bond",
        "gre",
        "macvlan",
        "tun",
        "xfrm",
        "flannel.1\0",
    ];
    let value = prop_oneof![
        4 => vec(any::<u8>(), 0..40),
        1 => prop::sample::select(names.map(|name| name.as_bytes().to_vec()).to_vec()),
    ];
    let leaf = (0..80_u16, value).prop_map(|(kind, value)| attribute(kind, &value));
    leaf.prop_recursive(3, 24, 5, |inner| {
        (0..80_u16, prop::bool::ANY, vec(inner, 0..5)).prop_map(|(kind, is_marked, inner)| {
            let nested = if is_marked { 0x8000 } else { 0 };
            attribute(kind | nested, &inner.concat())
        })
    })
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).expect("short");
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A message whose lengths are right, with a fixed part as long as its type asks for or not.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let family = prop::sample::select(vec![0_u8, 1, 2, 7, 10, 17, 28, 129, 255]);
    let fixed = prop::sample::select(vec![8_usize, 12, 12, 12, 16, 16, 20, 64, 168, 1]);
    let attributes = vec(any_attribute(), 0..8);
    (
        any_type(),
        any::<[u8; 10]>(),
        family,
        fixed,
        vec(any::<u8>(), 168),
        attributes,
    )
        .prop_map(
            |(message_type, rest, family, fixed, mut payload, attributes)| {
                payload.truncate(fixed);
                payload[0] = family;
                payload.extend(attributes.concat());
                let len = u32::try_from(HEADER + payload.len()).expect("short");
                [
                    &len.to_ne_bytes()[..],
                    &message_type.to_ne_bytes(),
                    &rest,
                    &payload,
                ]
                .concat()
            },
        )
}

/// Messages, of which some bytes were lost, changed or cut.
fn any_datagram() -> impl Strategy<Value = Vec<u8>> {
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let whole = (
        vec(any_message(), 1..4),
        damage,
        prop::option::of(any::<prop::sample::Index>()),
    );
    let damaged = whole.prop_map(|(messages, damage, cut)| {
        let mut bytes = messages.concat();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    });
    prop_oneof![9 => damaged, 1 => vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_datagram_of_an_event_socket_is_survived(datagram in any_datagram()) {
        decode_events(&datagram);
    }

    /// As the connection reads them. An answer is a message or an error, whatever its bytes.
    #[test]
    fn every_answer_is_survived(answer in any_datagram()) {
        decode_answers(&answer);
    }
}

fn decode_events(datagram: &[u8]) {
    decode::route(datagram);
    decode::xfrm(datagram);
    for changes in [Changes::All, Changes::Tables(vec!["flannel-ipv4"])] {
        changes.concern(datagram);
    }
}

fn decode_answers(answer: &[u8]) {
    drop(NetlinkMessage::<Reply<RouteNetlinkMessage>>::deserialize(
        answer,
    ));
    drop(NetlinkMessage::<Reply<NexthopMessage>>::deserialize(answer));
    drop(NetlinkMessage::<Reply<XfrmMessage>>::deserialize(answer));
}

/// The mutations reach further than the generator above: it knows the messages that exist.
#[test]
fn fuzz_netlink_events() {
    let link = [
        &attribute(3, b"flannel.1\0")[..],
        &attribute(0x8012, &attribute(1, b"vxlan\0")),
    ]
    .concat();
    let seeds: Vec<Vec<u8>> = [
        (16_u16, 16_usize, link),
        (24, 12, attribute(1, &[10, 244, 1, 0])),
        (28, 12, Vec::new()),
    ]
    .into_iter()
    .chain([
        (104, 8, attribute(1, &[7, 0, 0, 0])),
        (0x13, 168, Vec::new()),
        (0x0a06, 4, attribute(1, b"filter\0")),
    ])
    .map(|(kind, fixed, attributes)| {
        let payload = [vec![2; fixed], attributes].concat();
        let len = u32::try_from(HEADER + payload.len()).expect("short");
        [
            &len.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &[0; 10],
            &payload,
        ]
        .concat()
    })
    .collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    flannel_fuzz::run("netlink_events", &seeds, |datagram| {
        decode_events(datagram);
        decode_answers(datagram);
    });
}
