//! Peers of both families, in one table.

use flannel_common::peer::Word;
use serde::Serialize;

use crate::{cli::table, datapath::peers::PinnedPeer};

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
    pub(super) fn new(peer: PinnedPeer, now: u64) -> Self {
        let PinnedPeer { index, subnet, entry } = peer;
        let names = [(Word::PLAIN, "plain"), (Word::DIRECT, "direct")];
        let left = if entry.path_vouches(now) { (entry.seen.until_ns - now) / 1_000_000 } else { 0 };
        Self {
            index,
            subnet: subnet.to_string(),
            vtep: entry.vtep.to_string(),
            vtep_mac: peer.vtep_mac(),
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
