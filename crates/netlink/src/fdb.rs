//! Forwarding entries of a vxlan device: the VTEP behind an Ethernet address.
//!
//! These live in the device's own table (`NTF_SELF` of [include/uapi/linux/neighbour.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/neighbour.h)), not in a
//! bridge's. Only permanent entries with a destination are state here.

use std::{fmt, net::IpAddr};

use flannel_common::packet::addr::Mac;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
    },
};

use super::{
    Netlink,
    error::{NetlinkError, Verb},
    family::addr_from_bytes,
    neighbour::{is_permanent, link_layer_address},
};
use crate::links::device_name::DeviceName;

/// The identity of an FDB entry: vxlan device and Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbKey {
    /// Interface index of the vxlan device.
    pub ifindex: u32,
    /// The peer's VTEP address.
    pub mac: Mac,
}

impl fmt::Display for FdbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FDB entry {} on {}", self.mac, DeviceName(self.ifindex))
    }
}

impl FdbKey {
    /// The entry a message is about and its destination. `None` for anything but a permanent entry
    /// of a vxlan device's own table.
    pub(super) fn from_message(message: &NeighbourMessage) -> Option<(Self, IpAddr)> {
        let own = message.header.family == AddressFamily::Bridge
            && message.header.flags.contains(NeighbourFlags::Own);
        if !own || !is_permanent(message) {
            return None;
        }
        let dst = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(addr) => destination(addr),
                _ => None,
            })?;
        Some((
            Self {
                ifindex: message.header.ifindex,
                mac: link_layer_address(message)?,
            },
            dst,
        ))
    }

    fn to_message(self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.ifindex;
        message.header.state = NeighbourState::Permanent;
        message.header.flags = NeighbourFlags::Own;
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec()));
        message
    }
}

/// Decodes a destination. In a bridge-family message only the length shows its address family.
fn destination(addr: &NeighbourAddress) -> Option<IpAddr> {
    match addr {
        NeighbourAddress::Inet(addr) => Some((*addr).into()),
        NeighbourAddress::Inet6(addr) => Some((*addr).into()),
        NeighbourAddress::Other(bytes) => addr_from_bytes(bytes),
        _ => None,
    }
}

impl Netlink {
    /// The permanent entries of one vxlan device.
    pub async fn fdb(&self, ifindex: u32) -> Result<Vec<(FdbKey, IpAddr)>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message
            .attributes
            .push(NeighbourAttribute::IfIndex(ifindex));
        let dump = self
            .route
            .dump(RouteNetlinkMessage::GetNeighbour(message))
            .await;
        let object = format_args!("the FDB of {}", DeviceName(ifindex));
        let entries = dump
            .map_err(|fault| fault.on(Verb::Read, object))?
            .readable();
        Ok(entries
            .iter()
            .filter_map(fdb_of)
            .filter(|(key, _)| key.ifindex == ifindex)
            .collect())
    }

    /// Points an Ethernet address at a VTEP, whatever it pointed at before.
    pub async fn replace_fdb(&self, key: FdbKey, dst: IpAddr) -> Result<(), NetlinkError> {
        let mut message = key.to_message();
        message
            .attributes
            .push(NeighbourAttribute::Destination(dst.into()));
        let done = self
            .route
            .command(
                RouteNetlinkMessage::NewNeighbour(message),
                NLM_F_CREATE | NLM_F_REPLACE,
            )
            .await;
        done.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Deletes an entry; [`NetlinkError::is_gone`] when it was not there.
    pub async fn del_fdb(&self, key: FdbKey) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelNeighbour(key.to_message());
        self.route
            .command(message, 0)
            .await
            .map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn fdb_of(message: &RouteNetlinkMessage) -> Option<(FdbKey, IpAddr)> {
    match message {
        RouteNetlinkMessage::NewNeighbour(entry) => FdbKey::from_message(entry),
        _ => None,
    }
}
