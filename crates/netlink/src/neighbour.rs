//! Permanent neighbour entries: the Ethernet address behind an IP address on a link.
//!
//! Only permanent entries are state here. What ARP and ND learn comes and goes on its own;
//! [`Netlink::neighbour`] shows it.

use std::{fmt, net::IpAddr};

use flannel_common::packet::addr::Mac;
use flannel_host::family::Family;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
};
use nix::errno::Errno;

use super::{
    Netlink,
    error::{NetlinkError, Verb},
};
use crate::family::{from_kernel, to_kernel};
use crate::links::{device_name::DeviceName, link::mac_from_bytes};

/// The identity of a neighbour: link and IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    /// Interface index.
    pub ifindex: u32,
    /// The neighbour's IP address.
    pub addr: IpAddr,
}

impl fmt::Display for NeighbourKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour {} on {}", self.addr, DeviceName(self.ifindex))
    }
}

impl NeighbourKey {
    /// The entry a message is about: its key and, unless the message takes it away, its address.
    /// `None` for the FDB and for proxy entries.
    pub(super) fn from_message(message: &NeighbourMessage) -> Option<(Self, Option<Mac>)> {
        from_kernel(message.header.family)?;
        let addr = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(addr)) => {
                    Some(IpAddr::from(*addr))
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(addr)) => {
                    Some(IpAddr::from(*addr))
                }
                _ => None,
            })?;
        Some((
            Self {
                ifindex: message.header.ifindex,
                addr,
            },
            link_layer_address(message),
        ))
    }

    fn to_message(self, state: NeighbourState) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = to_kernel(Family::of(self.addr));
        message.header.ifindex = self.ifindex;
        message.header.state = state;
        message
            .attributes
            .push(NeighbourAttribute::Destination(self.addr.into()));
        message
    }
}

/// The Ethernet address in a neighbour or FDB message.
pub(super) fn link_layer_address(message: &NeighbourMessage) -> Option<Mac> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac_from_bytes(bytes),
            _ => None,
        })
}

/// Returns true if the entry stays until it is deleted explicitly.
pub(super) fn is_permanent(message: &NeighbourMessage) -> bool {
    // A bit set of which the library names the single bits only.
    u16::from(message.header.state) & u16::from(NeighbourState::Permanent) != 0
}

/// The kernel's entry for a neighbour, learned or permanent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its Ethernet address, once it is known.
    pub mac: Option<Mac>,
    /// It was asked for and did not answer.
    pub failed: bool,
}

impl Netlink {
    /// Returns the kernel's entry for a neighbour as it is now (kernel 5.0; `neigh_get()` in
    /// [net/core/neighbour.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/neighbour.c)); `None` if the
    /// kernel has none, because the address was not resolved recently.
    pub async fn neighbour(&self, key: NeighbourKey) -> Result<Option<Neighbour>, NetlinkError> {
        let message = RouteNetlinkMessage::GetNeighbour(key.to_message(NeighbourState::None));
        match self.route.fetch(message).await {
            Ok(RouteNetlinkMessage::NewNeighbour(message)) => {
                let failed =
                    u16::from(message.header.state) & u16::from(NeighbourState::Failed) != 0;
                Ok(Some(Neighbour {
                    mac: link_layer_address(&message),
                    failed,
                }))
            }
            Ok(_) => Ok(None),
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => Ok(None),
            Err(fault) => Err(fault.on(Verb::Read, key)),
        }
    }

    /// The permanent neighbours of both families, on one link or on all.
    pub async fn neighbours(
        &self,
        ifindex: Option<u32>,
    ) -> Result<Vec<(NeighbourKey, Mac)>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Unspec;
        message
            .attributes
            .extend(ifindex.map(NeighbourAttribute::IfIndex));
        let dump = self
            .route
            .dump(RouteNetlinkMessage::GetNeighbour(message))
            .await;
        let entries = dump
            .map_err(|fault| fault.on(Verb::Read, "the neighbours"))?
            .readable();
        let wanted = |key: &NeighbourKey| ifindex.is_none_or(|ifindex| ifindex == key.ifindex);
        Ok(entries
            .iter()
            .filter_map(neighbour_of)
            .filter(|(key, _)| wanted(key))
            .collect())
    }

    /// Adds a permanent neighbour, or changes an existing one of any state.
    pub async fn replace_neighbour(&self, key: NeighbourKey, mac: Mac) -> Result<(), NetlinkError> {
        let mut message = key.to_message(NeighbourState::Permanent);
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        let done = self
            .route
            .command(
                RouteNetlinkMessage::NewNeighbour(message),
                NLM_F_CREATE | NLM_F_REPLACE,
            )
            .await;
        done.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Deletes a neighbour; [`NetlinkError::is_gone`] when it was not there.
    pub async fn del_neighbour(&self, key: NeighbourKey) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelNeighbour(key.to_message(NeighbourState::None));
        self.route
            .command(message, 0)
            .await
            .map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn neighbour_of(message: &RouteNetlinkMessage) -> Option<(NeighbourKey, Mac)> {
    match message {
        RouteNetlinkMessage::NewNeighbour(neighbour) if is_permanent(neighbour) => {
            let (key, mac) = NeighbourKey::from_message(neighbour)?;
            Some((key, mac?))
        }
        _ => None,
    }
}
