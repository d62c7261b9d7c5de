//! The pods mode `fast` knows.

use flannel_common::fast::PodEntry;
use flannel_datapath::{DatapathError, PinRoot, flows::PodMap};
use flannel_terminal::table;
use serde::Serialize;

use crate::monitor::DeviceNames;

/// A pod.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PodRow {
    /// Interface index of the host side of the pod's veth.
    ifindex: u32,
    /// Name of the host side of the veth; absent if the veth is gone, or the command runs in
    /// another network namespace.
    veth: Option<String>,
    /// The pod's MAC.
    mac: String,
    /// The MTU of the pod's interface, in bytes.
    mtu: u32,
    /// True if packets of the pod may be replayed.
    sends: bool,
    /// True if packets to the pod may be replayed.
    receives: bool,
    /// True if the kernel merges packets to the pod (GRO).
    merged: bool,
}

/// The pods by interface index; none where an older agent pinned no such map.
pub(super) fn rows(pins: &PinRoot, devices: &mut DeviceNames) -> Result<Vec<PodRow>, DatapathError> {
    let map = match PodMap::open(pins) {
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        other => other?,
    };
    let mut rows: Vec<PodRow> =
        map.entries().map(|entry| entry.map(|entry| row(entry, devices))).collect::<Result<_, _>>()?;
    rows.sort_by_key(|row| row.ifindex);
    Ok(rows)
}

pub(super) fn row((ifindex, entry): (u32, PodEntry), devices: &mut DeviceNames) -> PodRow {
    PodRow {
        ifindex,
        veth: devices.get(ifindex).map(str::to_owned),
        mac: entry.mac.to_string(),
        mtu: entry.mtu,
        sends: entry.has(PodEntry::SENDS),
        receives: entry.has(PodEntry::RECEIVES),
        merged: entry.has(PodEntry::MERGED),
    }
}

pub(super) fn table(rows: &[PodRow]) -> String {
    let cells = |row: &PodRow| {
        let veth = row.veth.clone().unwrap_or_else(|| "-".to_owned());
        let ways = match (row.sends, row.receives) {
            (true, true) => "both",
            (true, false) => "from",
            (false, true) => "to",
            (false, false) => "none",
        };
        let merged = if row.merged { "yes" } else { "no" };
        [row.ifindex.to_string(), veth, row.mac.clone(), row.mtu.to_string(), ways.to_owned(), merged.to_owned()]
    };
    table::render(["INDEX", "VETH", "POD-MAC", "MTU", "WAYS", "MERGED"], &rows.iter().map(cells).collect::<Vec<_>>())
}
