//! Names of what packets show as numbers: devices, pods of this node, and Services.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use super::{DeviceNames, packet::PacketAddresses};

/// The names known so far.
#[derive(Debug, Default)]
pub struct Names {
    /// Of devices, by index.
    pub devices: DeviceNames,
    /// Of pods, with their namespace (`default/db`), by address, as a running agent knows them.
    pub pods: BTreeMap<IpAddr, String>,
    /// Of Services, likewise, as the rules of kube-proxy have them.
    pub services: BTreeMap<IpAddr, String>,
}

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndName<'a> {
    /// A pod of this node.
    Pod(&'a str),
    /// A Service, before its address is translated.
    Service(&'a str),
}

impl<'a> EndName<'a> {
    pub(super) const fn pod(self) -> Option<&'a str> {
        match self {
            Self::Pod(name) => Some(name),
            Self::Service(_) => None,
        }
    }

    pub(super) const fn service(self) -> Option<&'a str> {
        match self {
            Self::Service(name) => Some(name),
            Self::Pod(_) => None,
        }
    }
}

impl fmt::Display for EndName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(name) => write!(f, "pod {name}"),
            Self::Service(name) => write!(f, "service {name}"),
        }
    }
}

impl Names {
    /// Returns the names of both ends; `None` for an end whose name is unknown.
    pub fn ends(&self, addresses: Option<PacketAddresses>) -> [Option<EndName<'_>>; 2] {
        let service = |address: &IpAddr| {
            self.services
                .get(address)
                .map(|name| EndName::Service(name))
        };
        let name = |address: IpAddr| {
            self.pods
                .get(&address)
                .map(|name| EndName::Pod(name))
                .or_else(|| service(&address))
        };
        addresses.map_or([None; 2], |ends| {
            [name(ends.source), name(ends.destination)]
        })
    }
}
