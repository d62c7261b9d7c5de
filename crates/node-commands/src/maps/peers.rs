//! Peers of both families, in one table.

use std::net::IpAddr;

use flannel_common::abi::{
    ecmp::EcmpPath, entry_state::EntryState, peer::PathProbe, traffic::PeerTraffic,
};
use flannel_datapath::maps::{
    ecmp_paths::{self, PinnedEcmpPaths},
    peers::PinnedPeer,
};
use flannel_flows::monitor::DeviceNames;
use flannel_host::family::Family;
use flannel_terminal::table;
use serde::Serialize;

/// A peer.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub(super) struct PeerRow {
    /// The number of the subnet in the pod network, which is the index in the map.
    index: u32,
    /// The peer's subnet.
    subnet: String,
    /// The address of the peer's VTEP.
    vtep: String,
    /// The MAC of the peer's VTEP; `-` where the backend has none.
    vtep_mac: String,
    /// The address of the next hop on the way to the VTEP.
    next_hop: String,
    /// Interface index of the device that packets leave by; 0 with several next hops.
    oif: u32,
    /// Name of that device; absent with several next hops, and if the device is gone.
    oif_name: Option<String>,
    /// The MTU of the route to the VTEP, in bytes; 0 if it is not known.
    mtu: u32,
    /// Flags of the path: `plain` (the programs may encapsulate), `direct` (a route, no tunnel),
    /// `ecmp` (several next hops), `keyed` (the device, an ipip device, takes the tunnel key of
    /// each packet).
    #[cfg_attr(any(test, feature = "schema"), schemars(schema_with = "flag_names"))]
    flags: Vec<&'static str>,
    /// The generation of the entry, which grows with every rewrite.
    generation: u32,
    /// Milliseconds for which the path is still validated; with ECMP paths, the longest of their
    /// times.
    path_seen_ms: u64,
    /// Largest outer packet seen to leave whole, in bytes.
    path_seen_len: u32,
    /// The devices packets may leave by, where the kernel chooses among several next hops; empty
    /// with one next hop.
    ecmp_paths: Vec<EcmpPathRow>,
    /// Packets to the peer's pods since the entry was made, by all paths on which the programs
    /// count; absent for a peer beyond the first 8191.
    to_packets: Option<u64>,
    /// Their bytes, from the Ethernet header on, without outer headers; likewise.
    to_bytes: Option<u64>,
    /// Packets from the peer's pods, likewise.
    from_packets: Option<u64>,
    /// Their bytes, likewise.
    from_bytes: Option<u64>,
}

/// A device by which packets to a peer may leave.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct EcmpPathRow {
    /// Interface index of the device.
    oif: u32,
    /// Name of the device; absent if it is gone.
    oif_name: Option<String>,
    /// The MTU of the path, in bytes.
    mtu: u32,
    /// Milliseconds for which the path is still validated.
    path_seen_ms: u64,
    /// Largest outer packet seen to leave whole, in bytes.
    path_seen_len: u32,
}

/// Names of the flags of an entry.
const FLAGS: [(u32, &str); 4] = [
    (EntryState::PLAIN, "plain"),
    (EntryState::DIRECT, "direct"),
    (EntryState::ECMP, "ecmp"),
    (EntryState::KEYED, "keyed"),
];

#[cfg(any(test, feature = "schema"))]
fn flag_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": flannel_json_schema::name(FLAGS.map(|(_, name)| name)),
    })
}

/// Returns the milliseconds for which a path is still validated, and the largest outer packet in
/// bytes that was seen on it. Both are 0 if it is not validated.
const fn seen(seen: &PathProbe, word: EntryState, now: u64) -> (u64, u32) {
    let left = if seen.is_validated(word, now) {
        (seen.until_ns - now) / 1_000_000
    } else {
        0
    };
    (left, if left == 0 { 0 } else { seen.max_len })
}

impl PeerRow {
    pub(super) fn new(
        peer: PinnedPeer,
        traffic: Option<PeerTraffic>,
        ecmp_paths: &PinnedEcmpPaths,
        now: u64,
        devices: &mut DeviceNames,
    ) -> Self {
        let PinnedPeer {
            index,
            subnet,
            entry,
        } = peer;
        let ecmp_path = |(oif, ecmp_path): (u32, &EcmpPath)| {
            let (path_seen_ms, path_seen_len) =
                seen(&ecmp_paths::seen(&entry, ecmp_path, now), entry.word, now);
            let oif_name = devices.get(oif).map(str::to_owned);
            EcmpPathRow {
                oif,
                oif_name,
                mtu: ecmp_path.mtu,
                path_seen_ms,
                path_seen_len,
            }
        };
        let family = Family::of(IpAddr::from(entry.vtep));
        let has_ecmp_paths = entry.word.has(EntryState::ECMP);
        let ecmp_paths: Vec<EcmpPathRow> = ecmp_paths
            .of(family, index)
            .filter(|_| has_ecmp_paths)
            .map(ecmp_path)
            .collect();
        let whole = seen(&entry.seen, entry.word, now);
        let longest = ecmp_paths
            .iter()
            .map(|ecmp_path| (ecmp_path.path_seen_ms, ecmp_path.path_seen_len))
            .max();
        let (path_seen_ms, path_seen_len) = longest.unwrap_or(whole);
        Self {
            index,
            subnet: subnet.to_string(),
            vtep: entry.vtep.to_string(),
            vtep_mac: peer.vtep_mac(),
            next_hop: entry.next_hop.to_string(),
            oif: entry.oif,
            oif_name: devices.get(entry.oif).map(str::to_owned),
            mtu: entry.mtu,
            flags: FLAGS
                .into_iter()
                .filter(|(flag, _)| entry.word.has(*flag))
                .map(|(_, name)| name)
                .collect(),
            generation: entry.word.generation(),
            path_seen_ms,
            path_seen_len,
            ecmp_paths,
            to_packets: traffic.map(|traffic| traffic.sent.packets),
            to_bytes: traffic.map(|traffic| traffic.sent.bytes),
            from_packets: traffic.map(|traffic| traffic.received.packets),
            from_bytes: traffic.map(|traffic| traffic.received.bytes),
        }
    }

    /// The device, or all that it may be.
    fn oifs(&self) -> String {
        let oifs: Vec<_> = self
            .ecmp_paths
            .iter()
            .map(|ecmp_path| device(ecmp_path.oif, ecmp_path.oif_name.as_ref()))
            .collect();
        if oifs.is_empty() {
            device(self.oif, self.oif_name.as_ref())
        } else {
            oifs.join(", ")
        }
    }

    /// Up to which size packets were seen, by each of them.
    fn seen(&self) -> String {
        let up_to = |ms, len| {
            if ms == 0 {
                "-".to_owned()
            } else {
                format!("<={len} B")
            }
        };
        let ecmp_paths: Vec<_> = self
            .ecmp_paths
            .iter()
            .map(|ecmp_path| up_to(ecmp_path.path_seen_ms, ecmp_path.path_seen_len))
            .collect();
        if ecmp_paths.is_empty() {
            up_to(self.path_seen_ms, self.path_seen_len)
        } else {
            ecmp_paths.join(", ")
        }
    }
}

/// Returns a device's name with its index, or only the index if the device is gone.
pub(super) fn device(index: u32, name: Option<&String>) -> String {
    name.map_or_else(|| table_number(index), |name| format!("{name} ({index})"))
}

fn table_number(number: u32) -> String {
    if number == 0 {
        "-".to_owned()
    } else {
        number.to_string()
    }
}

const HEADER: [&str; 10] = [
    "SUBNET",
    "VTEP",
    "VTEP-MAC",
    "NEXT-HOP",
    "OIF",
    "MTU",
    "PATH",
    "SEEN",
    "TO-BYTES",
    "FROM-BYTES",
];

pub(super) fn table(rows: &[PeerRow]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let flags = if row.flags.is_empty() {
                "kernel".to_owned()
            } else {
                row.flags.join(",")
            };
            let (vtep, mac, next_hop) =
                (row.vtep.clone(), row.vtep_mac.clone(), row.next_hop.clone());
            let bytes = |bytes: Option<u64>| {
                bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
            };
            let [to, from] = [row.to_bytes, row.from_bytes].map(bytes);
            [
                row.subnet.clone(),
                vtep,
                mac,
                next_hop,
                row.oifs(),
                table_number(row.mtu),
                flags,
                row.seen(),
                to,
                from,
            ]
        })
        .collect();
    table::render(HEADER, &rows)
}
