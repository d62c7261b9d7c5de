//! From a datagram of an event socket to events. Pure.
//!
//! The neighbour group is noisy on a busy node: ARP and ND announce every change of state. Those messages
//! are dropped by their fixed header, before anything is decoded. What cannot be decoded and may matter
//! becomes [`KernelEvent::Overflow`], because reading back is the one answer that is always right.

use std::iter;

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, link::LinkMessage, neighbour::NeighbourMessage};
use netlink_packet_xfrm::XFRM_MSG_EXPIRE;
use tracing::warn;

use super::KernelEvent;
use crate::netlink::{Address, FdbKey, Link, NeighbourKey, neighbour::is_permanent, reply::Reply, route};

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// `NUD_INCOMPLETE`, `_REACHABLE`, `_STALE`, `_DELAY`, `_PROBE`: states only a dynamic entry is in.
const NUD_DYNAMIC: u16 = 0x1f;
const NUD_PERMANENT: u16 = 0x80;
/// Offset of `ndm_state` in `struct ndmsg`, host order.
const NDM_STATE: usize = 8;

/// The events in one datagram of `NETLINK_ROUTE`.
pub(super) fn route(datagram: &[u8]) -> Vec<KernelEvent> {
    messages(datagram).filter_map(|message| message.map_or(Some(KernelEvent::Overflow), one_of_route)).collect()
}

/// The events in one datagram of `NETLINK_XFRM`: one, whatever happened, unless only states expired.
pub(super) fn xfrm(datagram: &[u8]) -> Vec<KernelEvent> {
    let of_policies =
        |message: Option<&[u8]>| message.is_none_or(|m| NetlinkBuffer::new(m).message_type() != XFRM_MSG_EXPIRE);
    messages(datagram).any(of_policies).then_some(KernelEvent::XfrmPolicy).into_iter().collect()
}

/// The messages of a datagram, whole; `None`, and then no more, where it is cut off.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else {
            datagram = &[];
            return Some(None);
        };
        let len = message.length() as usize;
        let whole = datagram.get(..len);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(whole)
    })
}

fn one_of_route(message: &[u8]) -> Option<KernelEvent> {
    let buffer = NetlinkBuffer::new(message);
    match buffer.message_type() {
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => return Some(KernelEvent::Nexthop),
        kind @ (RTM_NEWNEIGH | RTM_DELNEIGH) if is_noise(kind, buffer.payload()) => return None,
        _ => {}
    }
    match NetlinkMessage::deserialize(message).ok()?.payload {
        NetlinkPayload::InnerMessage(Reply::Decoded(message)) => event(&message),
        NetlinkPayload::InnerMessage(Reply::Undecodable { message_type }) => {
            warn!(message_type, "a netlink event could not be decoded; reading everything back");
            Some(KernelEvent::Overflow)
        }
        _ => None,
    }
}

/// Whether a neighbour message is about an entry that was and is dynamic.
fn is_noise(message_type: u16, payload: &[u8]) -> bool {
    let Some(&[low, high]) = payload.get(NDM_STATE..NDM_STATE + 2) else { return false };
    let state = u16::from_ne_bytes([low, high]);
    // A permanent entry is turned to "failed" before it is deleted: of that state only the deletion counts.
    if message_type == RTM_NEWNEIGH { state & NUD_PERMANENT == 0 } else { state & NUD_DYNAMIC != 0 }
}

fn event(message: &RouteNetlinkMessage) -> Option<KernelEvent> {
    match message {
        RouteNetlinkMessage::NewLink(link) => is_link(link).then(|| KernelEvent::Link(Link::from_message(link))),
        RouteNetlinkMessage::DelLink(link) => is_link(link).then(|| link_gone(link)),
        RouteNetlinkMessage::NewAddress(address) => Address::from_message(address).map(KernelEvent::Address),
        RouteNetlinkMessage::DelAddress(address) => Address::from_message(address).map(KernelEvent::AddressGone),
        RouteNetlinkMessage::NewRoute(message) => {
            route::from_message(message).map(|(key, route)| KernelEvent::Route { key, route: Some(route) })
        }
        RouteNetlinkMessage::DelRoute(message) => {
            route::from_message(message).map(|(key, _)| KernelEvent::Route { key, route: None })
        }
        RouteNetlinkMessage::NewNeighbour(entry) => neighbour(entry, true),
        RouteNetlinkMessage::DelNeighbour(entry) => neighbour(entry, false),
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => Some(KernelEvent::Rules),
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
        return Some(KernelEvent::Fdb { key, dst: present.then_some(dst) });
    }
    let (key, mac) = NeighbourKey::from_message(message)?;
    let mac = if present && is_permanent(message) { mac } else { None };
    Some(KernelEvent::Neighbour { key, mac })
}
