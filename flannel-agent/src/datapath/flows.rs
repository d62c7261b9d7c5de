//! Typed views of the maps of mode `fast`: what was learned, about which pods, and what is never learned.
//!
//! The programs write `FLOWS`; here it is read and emptied. What is no longer to be used is not searched for and removed, but
//! outlived: by the next generation of the mode word ([`super::maps::ModeMap::bump`]).

use std::io;

use aya::maps::{Array, HashMap, MapData, MapError};
use flannel_common::{
    end::End,
    fast::{PORT_WORDS, PodEntry, port_bit},
    flow::Flow,
    maps::{FLOWS, HELPER_PORTS, PODS},
};

use crate::datapath::{DatapathError, PinRoot, maps::from_pin};

/// The key of an IPv4 flow.
pub type Key4 = End<[u32; 1]>;
/// An IPv4 flow.
pub type Flow4 = Flow<[u32; 1]>;

/// The `FLOWS` map.
pub struct FlowMap(HashMap<MapData, Key4, Flow4>);

impl FlowMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, FLOWS)?).map(Self).map_err(DatapathError::map(FLOWS))
    }

    /// Every flow, usable or not. One that is removed meanwhile may end the list early.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Key4, Flow4), DatapathError>> + '_ {
        self.0.iter().map(|entry| entry.map_err(DatapathError::map(FLOWS)))
    }

    /// One flow.
    pub fn get(&self, key: &Key4) -> Result<Option<Flow4>, DatapathError> {
        match self.0.get(key, 0) {
            Ok(flow) => Ok(Some(flow)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(DatapathError::map(FLOWS)(error)),
        }
    }

    /// Writes a flow, as the programs do.
    pub fn write(&mut self, key: Key4, flow: Flow4) -> Result<(), DatapathError> {
        self.0.insert(key, flow, 0).map_err(DatapathError::map(FLOWS))
    }
}

/// The `PODS` map.
pub struct PodMap(HashMap<MapData, u32, PodEntry>);

impl PodMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, PODS)?).map(Self).map_err(DatapathError::map(PODS))
    }

    /// Every pod, by the interface index of its veth.
    pub fn entries(&self) -> impl Iterator<Item = Result<(u32, PodEntry), DatapathError>> + '_ {
        self.0.iter().map(|entry| entry.map_err(DatapathError::map(PODS)))
    }

    /// Writes a pod.
    pub fn write(&mut self, ifindex: u32, entry: PodEntry) -> Result<(), DatapathError> {
        self.0.insert(ifindex, entry, 0).map_err(DatapathError::map(PODS))
    }

    /// Removes a pod; one that is not there is no error.
    pub fn remove(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        match self.0.remove(&ifindex) {
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(DatapathError::map(PODS)),
        }
    }
}

/// Writes the ports whose flows are never learned, in place of those that were there.
pub fn write_helper_ports(pins: &PinRoot, ports: &[u16]) -> Result<(), DatapathError> {
    let map = from_pin(pins, HELPER_PORTS)?;
    let mut map: Array<_, u64> = Array::try_from(map).map_err(DatapathError::map(HELPER_PORTS))?;
    for word in 0..PORT_WORDS {
        let bits = ports.iter().map(|port| port_bit(*port)).filter(|(at, _)| *at == word);
        map.set(word, bits.fold(0, |all, (_, bit)| all | bit), 0).map_err(DatapathError::map(HELPER_PORTS))?;
    }
    Ok(())
}
