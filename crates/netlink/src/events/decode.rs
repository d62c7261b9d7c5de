//! From a datagram of an event socket to events. Pure.
//!
//! The neighbour group is noisy on a busy node: ARP and ND announce every change of state. Those
//! messages are dropped by their fixed header, before anything is decoded. What cannot be decoded
//! and may matter becomes [`KernelEvent::Overflow`], because reading back is the one answer that is
//! always right.

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage, link::LinkMessage, neighbour::NeighbourMessage,
};
use netlink_packet_xfrm::XFRM_MSG_EXPIRE;
use tracing::warn;

use super::event::KernelEvent;
use crate::{
    Address, FdbKey, Link, NeighbourKey, datagram::messages, neighbour::is_permanent,
    nexthop::NexthopMessage, reply::Reply, route,
};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_DELRULE: u16 = 33;
/// Qdiscs, classes, filters and chains, new and gone.
const TRAFFIC_CONTROL: [u16; 8] = [36, 37, 40, 41, 44, 45, 100, 101];
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_NEWNEXTHOPBUCKET: u16 = 116;
const RTM_DELNEXTHOPBUCKET: u16 = 117;

/// `NUD_INCOMPLETE`, `_REACHABLE`, `_STALE`, `_DELAY`, `_PROBE`: states only a dynamic entry is in.
const NUD_DYNAMIC: u16 = 0x1f;
const NUD_PERMANENT: u16 = 0x80;
/// Offset of `tcm_ifindex` in `struct tcmsg`, host order.
const TCM_IFINDEX: usize = 4;
/// `TCM_IFINDEX_MAGIC_BLOCK` of [include/uapi/linux/rtnetlink.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/rtnetlink.h), in place of
/// an interface index.
const SHARED_BLOCK: u32 = u32::MAX;
/// Offset of `ndm_state` in `struct ndmsg`, host order.
const NDM_STATE: usize = 8;

/// The events in one datagram of `NETLINK_ROUTE`.
pub(super) fn route(datagram: &[u8]) -> Vec<KernelEvent> {
    messages(datagram)
        .filter_map(|message| message.map_or(Some(KernelEvent::Overflow), one_of_route))
        .collect()
}

/// The events in one datagram of `NETLINK_XFRM`: one, whatever happened, unless only states
/// expired.
pub(super) fn xfrm(datagram: &[u8]) -> Vec<KernelEvent> {
    let of_policies = |message: Option<&[u8]>| {
        message.is_none_or(|m| NetlinkBuffer::new(m).message_type() != XFRM_MSG_EXPIRE)
    };
    messages(datagram)
        .any(of_policies)
        .then_some(KernelEvent::XfrmPolicy)
        .into_iter()
        .collect()
}

fn one_of_route(message: &[u8]) -> Option<KernelEvent> {
    let buffer = NetlinkBuffer::new(message);
    match buffer.message_type() {
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP | RTM_NEWNEXTHOPBUCKET | RTM_DELNEXTHOPBUCKET => {
            return nexthop(message);
        }
        kind if TRAFFIC_CONTROL.contains(&kind) => return Some(traffic_control(buffer.payload())),
        kind @ (RTM_NEWNEIGH | RTM_DELNEIGH) if is_noise(kind, buffer.payload()) => return None,
        _ => {}
    }
    match NetlinkMessage::deserialize(message).ok()?.payload {
        NetlinkPayload::InnerMessage(Reply::Decoded(message)) => event(&message),
        NetlinkPayload::InnerMessage(Reply::Undecodable { message_type }) => {
            undecodable(message_type)
        }
        _ => None,
    }
}

/// The buckets of a resilient group are a part of it.
fn nexthop(message: &[u8]) -> Option<KernelEvent> {
    let header = NetlinkBuffer::new(message);
    let gone = header.message_type() == RTM_DELNEXTHOP;
    match NetlinkMessage::<Reply<NexthopMessage>>::deserialize(message)
        .ok()?
        .payload
    {
        NetlinkPayload::InnerMessage(Reply::Decoded(message)) => match message.nexthop() {
            Some((id, nexthop)) if gone => Some(KernelEvent::NexthopGone { id, nexthop }),
            Some((id, nexthop)) => Some(KernelEvent::Nexthop { id, nexthop }),
            None => Some(lost(header.message_type())),
        },
        _ => Some(lost(header.message_type())),
    }
}

/// Reads only the interface index, from the fixed header. The consumer reads back what changed.
fn traffic_control(payload: &[u8]) -> KernelEvent {
    let ifindex = payload
        .get(TCM_IFINDEX..)
        .and_then(|rest| rest.first_chunk().copied())
        .map(u32::from_ne_bytes);
    ifindex.map_or_else(
        || lost(TRAFFIC_CONTROL[0]),
        |ifindex| KernelEvent::TrafficControl {
            device: (ifindex != SHARED_BLOCK).then_some(ifindex),
        },
    )
}

/// Of the kinds this module turns into events (link, address, route, neighbour, rule) none may be
/// missed; what else a group carries on a newer kernel may.
fn undecodable(message_type: u16) -> Option<KernelEvent> {
    (RTM_NEWLINK..=RTM_DELRULE)
        .contains(&message_type)
        .then(|| lost(message_type))
}

fn lost(message_type: u16) -> KernelEvent {
    warn!(
        message_type,
        "a netlink event could not be decoded; everything has to be read back"
    );
    KernelEvent::Overflow
}

/// Returns true if a neighbour message is about an entry that was and is dynamic.
fn is_noise(message_type: u16, payload: &[u8]) -> bool {
    let Some(&[low, high]) = payload.get(NDM_STATE..NDM_STATE + 2) else {
        return false;
    };
    let state = u16::from_ne_bytes([low, high]);
    // A permanent entry is turned to "failed" before it is deleted: of that state only the deletion
    // counts.
    if message_type == RTM_NEWNEIGH {
        state & NUD_PERMANENT == 0
    } else {
        state & NUD_DYNAMIC != 0
    }
}

fn event(message: &RouteNetlinkMessage) -> Option<KernelEvent> {
    match message {
        RouteNetlinkMessage::NewLink(link) => {
            is_link(link).then(|| KernelEvent::Link(Link::from_message(link)))
        }
        RouteNetlinkMessage::DelLink(link) => is_link(link).then(|| link_gone(link)),
        RouteNetlinkMessage::NewAddress(address) => {
            Address::from_message(address).map(KernelEvent::Address)
        }
        RouteNetlinkMessage::DelAddress(address) => {
            Address::from_message(address).map(KernelEvent::AddressGone)
        }
        RouteNetlinkMessage::NewRoute(message) => {
            route::from_message(message).map(|(key, route)| KernelEvent::Route {
                key,
                route: Some(route),
            })
        }
        RouteNetlinkMessage::DelRoute(message) => {
            route::from_message(message).map(|(key, _)| KernelEvent::Route { key, route: None })
        }
        RouteNetlinkMessage::NewNeighbour(entry) => neighbour(entry, true),
        RouteNetlinkMessage::DelNeighbour(entry) => neighbour(entry, false),
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => {
            Some(KernelEvent::Rules)
        }
        _ => None,
    }
}

/// Bridges announce their ports on the link group too, and "gone" then means from the bridge.
fn is_link(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

fn link_gone(message: &LinkMessage) -> KernelEvent {
    let Link { index, name, .. } = Link::from_message(message);
    KernelEvent::LinkGone { index, name }
}

fn neighbour(message: &NeighbourMessage, present: bool) -> Option<KernelEvent> {
    if message.header.family == AddressFamily::Bridge {
        let (key, dst) = FdbKey::from_message(message)?;
        return Some(KernelEvent::Fdb {
            key,
            dst: present.then_some(dst),
        });
    }
    let (key, mac) = NeighbourKey::from_message(message)?;
    let mac = if present && is_permanent(message) {
        mac
    } else {
        None
    };
    Some(KernelEvent::Neighbour { key, mac })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::{
        neighbour::{NeighbourAttribute, NeighbourState},
        rule::RuleMessage,
    };
    use netlink_packet_xfrm::{
        XFRM_MSG_DELPOLICY, XFRM_MSG_FLUSHPOLICY, XFRM_MSG_NEWPOLICY, XFRM_MSG_POLEXPIRE,
    };

    use super::*;

    fn datagram(messages: impl IntoIterator<Item = RouteNetlinkMessage>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            let mut message =
                NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
            message.finalize();
            let start = bytes.len();
            bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
            message.serialize(&mut bytes[start..]);
        }
        bytes
    }

    /// A message of a type the library does not know, without a body.
    fn bare(message_type: u16) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[0] = 16;
        bytes[4..6].copy_from_slice(&message_type.to_ne_bytes());
        bytes
    }

    fn neighbour(state: NeighbourState) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 7;
        message.header.state = state;
        message.attributes.push(NeighbourAttribute::Destination(
            std::net::Ipv4Addr::new(10, 5, 2, 0).into(),
        ));
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 2]));
        message
    }

    #[test]
    fn a_datagram_may_hold_several_messages() {
        let rule = || RouteNetlinkMessage::NewRule(RuleMessage::default());
        assert_eq!(
            route(&datagram([rule(), rule()])),
            [KernelEvent::Rules, KernelEvent::Rules]
        );
        assert_eq!(route(&[]), []);
    }

    #[test]
    fn a_datagram_that_is_cut_off_means_that_events_are_missing() {
        let rule = RouteNetlinkMessage::NewRule(RuleMessage::default());
        let mut cut = datagram([rule.clone(), rule]);
        cut.pop();
        assert_eq!(route(&cut), [KernelEvent::Rules, KernelEvent::Overflow]);
    }

    #[test]
    fn what_cannot_be_decoded_matters_by_its_kind() {
        assert_eq!(route(&bare(RTM_NEWLINK)), [KernelEvent::Overflow]);
        assert_eq!(route(&bare(RTM_NEWNEXTHOP)), [KernelEvent::Overflow]);
        assert_eq!(route(&bare(RTM_DELNEXTHOPBUCKET)), [KernelEvent::Overflow]);
        assert_eq!(route(&bare(200)), []);
    }

    #[test]
    fn neighbours_pass_when_they_are_or_may_have_been_permanent() {
        use NeighbourState::{Failed, Permanent, Reachable, Stale};
        let passes = |message| !route(&datagram([message])).is_empty();
        for (state, new, gone) in [
            (Permanent, true, true),
            (Failed, false, true),
            (Reachable, false, false),
            (Stale, false, false),
        ] {
            assert_eq!(
                passes(RouteNetlinkMessage::NewNeighbour(neighbour(state))),
                new,
                "new, {state}"
            );
            assert_eq!(
                passes(RouteNetlinkMessage::DelNeighbour(neighbour(state))),
                gone,
                "gone, {state}"
            );
        }
    }

    #[test]
    fn traffic_control_names_its_device() {
        for message_type in TRAFFIC_CONTROL {
            let mut bytes = bare(message_type);
            assert_eq!(
                route(&bytes),
                [KernelEvent::Overflow],
                "{message_type} without a header"
            );
            bytes.resize(16 + 20, 0);
            (bytes[0], bytes[16 + TCM_IFINDEX]) = (36, 7);
            assert_eq!(
                route(&bytes),
                [KernelEvent::TrafficControl { device: Some(7) }],
                "{message_type}"
            );
            bytes[16 + TCM_IFINDEX..][..4].fill(0xff);
            assert_eq!(
                route(&bytes),
                [KernelEvent::TrafficControl { device: None }],
                "{message_type} of a block"
            );
        }
    }

    #[test]
    fn states_that_expire_are_no_policy_change() {
        assert_eq!(xfrm(&bare(XFRM_MSG_EXPIRE)), []);
        for message_type in [
            XFRM_MSG_NEWPOLICY,
            XFRM_MSG_DELPOLICY,
            XFRM_MSG_POLEXPIRE,
            XFRM_MSG_FLUSHPOLICY,
        ] {
            assert_eq!(
                xfrm(&bare(message_type)),
                [KernelEvent::XfrmPolicy],
                "{message_type}"
            );
        }
    }
}
