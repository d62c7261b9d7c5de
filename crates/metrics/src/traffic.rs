//! Traffic by peer and by pod. The number of series is bounded: that of peers by an option, and
//! pods have series only if they are asked for.

use flannel_common::abi::{entry_state::EntryState, peer::PeerEntry, stats::Counter};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::{ConfigMap, ModeMap, PeerMap},
    maps::{
        flows::PodMap,
        peers::{PinnedPeer, subnet_index},
        traffic::PeerCounters,
    },
};
use flannel_flows::{
    monitor::DeviceNames,
    pod_traffic::{AllLinkCounters, PodCounters},
};
use flannel_host::family::Family;
use ipnet::IpNet;

use super::{
    catalogue as metric,
    page::{Page, number},
};

/// The traffic of a peer or a pod, by its label.
pub(super) struct Labelled {
    pub(super) label: String,
    pub(super) to: Counter,
    pub(super) from: Counter,
}

/// Writes the traffic of these peers, of which `most` have series at most, and of pods, if the
/// counters of links were read for it.
pub(super) fn write(
    page: &mut Page,
    pins: &PinRoot,
    peers: &[IpNet],
    most: u32,
    links: Option<&AllLinkCounters>,
) {
    match of_peers(pins, peers, most) {
        Ok(peers) => write_peers(page, &peers),
        Err(error) => log(&error),
    }
    match links.map(|links| of_pods(pins, links)).transpose() {
        Ok(pods) => write_pods(page, &pods.unwrap_or_default()),
        Err(error) => log(&error),
    }
}

fn log(error: &DatapathError) {
    if !matches!(error, DatapathError::NotPinned { .. }) {
        tracing::debug!(%error, "the metrics lack the traffic of peers or pods");
    }
}

pub(super) fn write_peers(page: &mut Page, peers: &[Labelled]) {
    page.list(
        metric::PEER_PACKETS,
        samples(peers, |counter| counter.packets),
    );
    page.list(metric::PEER_BYTES, samples(peers, |counter| counter.bytes));
}

pub(super) fn write_pods(page: &mut Page, pods: &[Labelled]) {
    page.list(
        metric::POD_PACKETS,
        samples(pods, |counter| counter.packets),
    );
    page.list(metric::POD_BYTES, samples(pods, |counter| counter.bytes));
}

fn samples(
    rows: &[Labelled],
    value: fn(&Counter) -> u64,
) -> impl Iterator<Item = ([&str; 2], f64)> {
    rows.iter().flat_map(move |row| {
        [("to", row.to), ("from", row.from)]
            .map(|(direction, counter)| ([row.label.as_str(), direction], number(value(&counter))))
    })
}

/// The peers with series: those with the first slots, because a peer keeps its slot. So a peer that
/// comes or goes adds or removes only its series.
fn of_peers(pins: &PinRoot, subnets: &[IpNet], most: u32) -> Result<Vec<Labelled>, DatapathError> {
    if most == 0 || subnets.is_empty() {
        return Ok(Vec::new());
    }
    let (config, mode) = (
        ConfigMap::open(pins)?.get()?,
        ModeMap::open(pins)?.get()?.mode(),
    );
    let maps = (
        PeerMap::open(pins, Family::V4)?,
        PeerMap::open(pins, Family::V6)?,
    );
    let counters = PeerCounters::open(pins)?;
    let mut rows = Vec::new();
    for subnet in subnets {
        let Some(index) = subnet_index(&config, subnet.addr()) else {
            continue;
        };
        let entry = if subnet.addr().is_ipv4() {
            maps.0.get(index)?
        } else {
            maps.1.get(index)?
        };
        let peer = PinnedPeer {
            index,
            subnet: *subnet,
            entry,
        };
        if !has_series(&entry, most) || !peer.is_counted(mode) {
            continue;
        }
        if let Some(traffic) = counters.of(&peer)? {
            rows.push(Labelled {
                label: subnet.to_string(),
                to: traffic.sent,
                from: traffic.received,
            });
        }
    }
    Ok(rows)
}

fn has_series(entry: &PeerEntry, most: u32) -> bool {
    entry.word.has(EntryState::VALID) && u32::from(entry.traffic) <= most
}

fn of_pods(pins: &PinRoot, links: &AllLinkCounters) -> Result<Vec<Labelled>, DatapathError> {
    let (counters, mut devices) = (
        PodCounters::open(pins, Some(links))?,
        DeviceNames::default(),
    );
    let mut rows = Vec::new();
    for entry in PodMap::open(pins)?.entries() {
        let (veth, pod) = entry?;
        if let (Some(traffic), Some(name)) = (counters.of(veth, &pod)?, devices.get(veth)) {
            rows.push(Labelled {
                label: name.to_owned(),
                to: traffic.to,
                from: traffic.from,
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_with_the_first_slots_have_series() {
        let entry = |traffic| PeerEntry {
            word: EntryState::new(EntryState::VALID, 1),
            traffic,
            ..PeerEntry::default()
        };
        assert_eq!(
            [1, 2, 3].map(|slot| has_series(&entry(slot), 2)),
            [true, true, false]
        );
        assert!(
            !has_series(
                &PeerEntry {
                    traffic: 1,
                    ..PeerEntry::default()
                },
                2
            ),
            "half written"
        );
    }
}
