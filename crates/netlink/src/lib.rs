//! The kernel's networking state: typed verbs and one stream of events.
//!
//! Everything here applies to one network namespace, the one of the thread that called
//! [`Netlink::connect`]. Verbs are independent: any number may be in flight on clones of the
//! handle, and each reports on exactly its own object. The handle has no cache, retries only an
//! interrupted read, and does not decide the desired state.
//!
//! `transport` sends requests and reads replies. The other modules have the types, messages and
//! verbs of one kind of object each.

#![forbid(unsafe_code)]

mod address;
pub mod attribute;
pub mod datagram;
mod error;
mod esp;
mod events;
mod family;
mod fdb;
mod generic;
mod links;
mod lookup;
mod neighbour;
mod nexthop;
mod reply;
mod route;
mod rule;
pub mod socket;
mod transport;
mod tunnel_policy;
mod wireguard;
mod xfrm;

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_xfrm::XfrmMessage;
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_XFRM};
use nix::errno::Errno;

pub use self::{
    address::{Address, AddressFlags, AddressKey, AddressScope},
    error::{Fault, NetlinkError, Verb},
    esp::TunnelAssociation,
    events::{KernelEvent, KernelEvents, NftablesChanges},
    fdb::FdbKey,
    links::{
        device_name::{DeviceName, device_name},
        ethtool::{DeviceFeatures, EthtoolNetlink},
        ipip::{IpipInfo, IpipSpec},
        link::{Link, LinkCounters, OffloadLimits},
        veth::VethSpec,
        vxlan::{VxlanInfo, VxlanSpec},
    },
    lookup::{MatchedRoute, RouteAnswer, RouteQuery},
    neighbour::{Neighbour, NeighbourKey},
    nexthop::{Nexthop, NexthopId},
    route::{MAIN_TABLE, Route, RouteHop, RouteKey, RouteScope, RouteType, protocol},
    rule::{Dependence, Rule, RuleAction, RuleSelector, tunnel_depends_on},
    tunnel_policy::{PolicyDirection, TunnelPolicy, TunnelPolicyKey},
    wireguard::{WireguardDevice, WireguardNetlink, WireguardPeer, WireguardPeerState},
    xfrm::{PortMask, TunnelFlow, XfrmAction, XfrmPolicy, XfrmSelector},
};
use self::{
    nexthop::NexthopMessage,
    transport::{Message, Transport},
};

/// A handle on the kernel's networking state. Clones share their sockets.
#[derive(Debug, Clone)]
pub struct Netlink {
    route: Transport<RouteNetlinkMessage>,
    /// A separate socket, because the library's messages do not include nexthop objects.
    nexthop: Transport<NexthopMessage>,
    /// `None` on a kernel without XFRM.
    xfrm: Option<Transport<XfrmMessage>>,
}

impl Netlink {
    /// Opens the sockets in the network namespace of the calling thread and subscribes to its
    /// events, so that no change after this call goes unseen. Call inside a Tokio runtime.
    pub fn connect() -> Result<(Self, KernelEvents), NetlinkError> {
        let route = open("a NETLINK_ROUTE socket", || {
            socket::for_requests(NETLINK_ROUTE)
        })?;
        let nexthop = open("a NETLINK_ROUTE socket", || {
            socket::for_requests(NETLINK_ROUTE)
        })?;
        let events = KernelEvents::subscribe(&[&route, &nexthop])?;
        let xfrm = unless_unsupported(open("a NETLINK_XFRM socket", || {
            socket::for_requests(NETLINK_XFRM)
        }))?;
        Ok((
            Self {
                route: spawn(route),
                nexthop: spawn(nexthop),
                xfrm: xfrm.map(spawn),
            },
            events,
        ))
    }
}

fn spawn<T: Message>(socket: netlink_sys::TokioSocket) -> Transport<T> {
    Transport::spawn(socket)
}

/// Opens a socket; `object` is its name in the error.
pub fn open<T>(object: &str, open: impl FnOnce() -> io::Result<T>) -> Result<T, NetlinkError> {
    open().map_err(|error| Fault::Socket(error).on(Verb::Open, object))
}

fn unless_unsupported<T>(socket: Result<T, NetlinkError>) -> Result<Option<T>, NetlinkError> {
    match socket {
        Err(error) if error.errno() == Some(Errno::EPROTONOSUPPORT) => Ok(None),
        other => other.map(Some),
    }
}
