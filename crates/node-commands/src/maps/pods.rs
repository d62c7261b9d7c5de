//! The pods mode `fast` knows.

use flannel_common::abi::fast::PodEntry;
use flannel_datapath::{DatapathError, PinRoot, maps::flows::PodMap};
use flannel_flows::{
    monitor::DeviceNames,
    pod_traffic::{AllLinkCounters, PodCounters, PodTraffic},
};
use flannel_terminal::table;
use serde::Serialize;

/// A pod.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
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
    /// Packets to the pod since its veth was made: those that the veth counted, and those that were
    /// put into the pod past it. Absent if the veth is gone, or the command runs in another network
    /// namespace.
    to_packets: Option<u64>,
    /// Their bytes, from the Ethernet header on; likewise.
    to_bytes: Option<u64>,
    /// Packets from the pod, as its veth counted them; likewise.
    from_packets: Option<u64>,
    /// Their bytes, likewise.
    from_bytes: Option<u64>,
}

/// The pods by interface index; none where an older agent pinned no such map.
pub(super) fn rows(
    pins: &PinRoot,
    links: Option<&AllLinkCounters>,
    devices: &mut DeviceNames,
) -> Result<Vec<PodRow>, DatapathError> {
    let map = match PodMap::open(pins) {
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        other => other?,
    };
    let counters = PodCounters::open(pins, links)?;
    let mut rows = Vec::new();
    for entry in map.entries() {
        let (ifindex, entry) = entry?;
        rows.push(row(
            (ifindex, entry),
            counters.of(ifindex, &entry)?,
            devices,
        ));
    }
    rows.sort_by_key(|row| row.ifindex);
    Ok(rows)
}

pub(super) fn row(
    (ifindex, entry): (u32, PodEntry),
    traffic: Option<PodTraffic>,
    devices: &mut DeviceNames,
) -> PodRow {
    PodRow {
        ifindex,
        veth: devices.get(ifindex).map(str::to_owned),
        mac: entry.mac.to_string(),
        mtu: entry.mtu,
        sends: entry.has(PodEntry::SENDS),
        receives: entry.has(PodEntry::RECEIVES),
        merged: entry.has(PodEntry::MERGED),
        to_packets: traffic.map(|traffic| traffic.to.packets),
        to_bytes: traffic.map(|traffic| traffic.to.bytes),
        from_packets: traffic.map(|traffic| traffic.from.packets),
        from_bytes: traffic.map(|traffic| traffic.from.bytes),
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
        let bytes =
            |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let [index, mtu] = [row.ifindex, row.mtu].map(|number| number.to_string());
        let [to, from] = [row.to_bytes, row.from_bytes].map(bytes);
        [
            index,
            veth,
            row.mac.clone(),
            mtu,
            ways.to_owned(),
            merged.to_owned(),
            to,
            from,
        ]
    };
    let header = [
        "INDEX",
        "VETH",
        "POD-MAC",
        "MTU",
        "WAYS",
        "MERGED",
        "TO-BYTES",
        "FROM-BYTES",
    ];
    table::render(header, &rows.iter().map(cells).collect::<Vec<_>>())
}
