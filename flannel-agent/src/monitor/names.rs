//! Names of what packets show as numbers: devices, and pods of this node.

use std::{collections::BTreeMap, net::IpAddr};

use super::{DeviceNames, packet::PacketAddresses};

/// The names known so far.
#[derive(Debug, Default)]
pub struct Names {
    /// Of devices, by index.
    pub devices: DeviceNames,
    /// Of pods, with their namespace (`default/db`), by address, as a running agent knows them.
    pub pods: BTreeMap<IpAddr, String>,
}

impl Names {
    /// The pods at both ends, as far as they are known.
    pub fn ends(&self, addresses: Option<PacketAddresses>) -> [Option<&str>; 2] {
        let name = |address: IpAddr| self.pods.get(&address).map(String::as_str);
        addresses.map_or([None; 2], |ends| [name(ends.source), name(ends.destination)])
    }
}
