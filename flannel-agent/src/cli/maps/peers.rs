//! Peers of both families, in one table.

use flannel_common::peer::Word;
use serde::Serialize;

<<<<<<< HEAD
use crate::{
    cli::table,
    datapath::{DatapathError, PinRoot, maps::PeerMap},
    family::Family,
};

/// A peer as its map has it.
pub(in crate::cli) struct PinnedPeer {
    index: u32,
    pub(in crate::cli) subnet: String,
    pub(in crate::cli) entry: PeerEntry,
}

/// The valid entries of the pinned peer maps, IPv4 first. An agent older than IPv6 pinned one map alone.
pub(in crate::cli) fn pinned_peers(pins: &PinRoot, config: &NodeConfig) -> Result<Vec<PinnedPeer>, DatapathError> {
    let mut peers = family_peers(&PeerMap::open(pins, Family::V4)?, Family::V4, &config.v4)?;
    match PeerMap::open(pins, Family::V6) {
        Ok(map) => peers.extend(family_peers(&map, Family::V6, &config.v6)?),
        Err(error) if error.is_absent() => {}
        Err(error) => return Err(error),
    }
    Ok(peers)
}

fn family_peers(map: &PeerMap, family: Family, config: &FamilyConfig) -> Result<Vec<PinnedPeer>, DatapathError> {
    map.entries().map(|found| found.map(|(index, entry)| PinnedPeer::new(family, config, index, entry))).collect()
}

impl PinnedPeer {
    pub(super) fn new(family: Family, config: &FamilyConfig, index: u32, entry: PeerEntry) -> Self {
        Self { index, subnet: subnet(family, config, index), entry }
    }
}

/// The subnet with this number.
fn subnet(family: Family, config: &FamilyConfig, index: u32) -> String {
    let shift = config.subnet_shift;
    let base: IpAddr = match family {
        Family::V4 => {
            let network = u32::from_be_bytes(config.network.v4_bytes());
            Ipv4Addr::from_bits(network.wrapping_add(index.checked_shl(shift).unwrap_or_default())).into()
        }
        Family::V6 => {
            let network = u128::from_be_bytes(config.network.0);
            let offset = u128::from(index).checked_shl(shift).unwrap_or_default();
            Ipv6Addr::from_bits(network.wrapping_add(offset)).into()
        }
    };
    format!("{base}/{}", u32::from(family.bits()).saturating_sub(shift))
}
=======
use crate::{cli::table, datapath::peers::PinnedPeer};
>>>>>>> main

#[derive(Debug, Serialize)]
pub(super) struct PeerRow {
    index: u32,
    subnet: String,
    vtep: String,
    vtep_mac: String,
    next_hop: String,
    oif: u32,
    mtu: u32,
    flags: Vec<&'static str>,
    generation: u32,
    /// Milliseconds for which the path is still vouched for.
    path_seen_ms: u64,
    /// Largest outer packet seen to leave whole.
    path_seen_len: u32,
}

impl PeerRow {
    pub(super) fn new(PinnedPeer { index, subnet, entry }: PinnedPeer, now: u64) -> Self {
        let names = [(Word::PLAIN, "plain"), (Word::DIRECT, "direct")];
        let left = if entry.path_vouches(now) { (entry.seen.until_ns - now) / 1_000_000 } else { 0 };
        Self {
            index,
            subnet: subnet.to_string(),
            vtep: entry.vtep.to_string(),
            vtep_mac: entry.mac.to_string(),
            next_hop: entry.next_hop.to_string(),
            oif: entry.oif,
            mtu: entry.mtu,
            flags: names.into_iter().filter(|(flag, _)| entry.word.has(*flag)).map(|(_, name)| name).collect(),
            generation: entry.word.generation(),
            path_seen_ms: left,
            path_seen_len: if left == 0 { 0 } else { entry.seen.max_len },
        }
    }
}

pub(super) fn table(rows: &[PeerRow]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let seen = if row.path_seen_ms == 0 { "-".to_owned() } else { format!("<={} B", row.path_seen_len) };
            let flags = if row.flags.is_empty() { "kernel".to_owned() } else { row.flags.join(",") };
            let [oif, mtu] =
                [row.oif, row.mtu].map(|number| if number == 0 { "-".to_owned() } else { number.to_string() });
            let (vtep, mac, next_hop) = (row.vtep.clone(), row.vtep_mac.clone(), row.next_hop.clone());
            [row.subnet.clone(), vtep, mac, next_hop, oif, mtu, flags, seen]
        })
        .collect();
    table::render(["SUBNET", "VTEP", "VTEP-MAC", "NEXT-HOP", "OIF", "MTU", "PATH", "SEEN"], &rows)
}
