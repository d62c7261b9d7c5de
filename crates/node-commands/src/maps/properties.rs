//! Whatever is in the maps, a dump shows it.

use flannel_common::{
    abi::{fast::PodEntry, mode::ModeWord, stats::Counter, traffic::PeerTraffic},
    packet::addr::Mac,
};
use flannel_datapath::{
    maps::{
        ecmp_paths::PinnedEcmpPaths,
        peers::{PinnedPeer, subnet},
    },
    testing::{any_family, any_node, any_peer},
};
use flannel_flows::monitor::DeviceNames;
use flannel_host::family::Family;
use proptest::prelude::*;

use super::{config, peers, pods};

proptest! {
    #[test]
    fn any_node_has_its_lines(node in any_node(), mode: u64, now: u64) {
        let row = config::ConfigRow::new(&node, ModeWord(mode), now, &mut DeviceNames::default());
        prop_assert!(config::table(&row).starts_with("mode"));
        prop_assert!(serde_json::to_string(&row).is_ok());
    }

    #[test]
    fn any_peer_has_a_row(
        config in any_family(),
        entry in any_peer(),
        index: u32,
        traffic: Option<u64>,
        now: u64,
    ) {
        for family in [Family::V4, Family::V6] {
            let row = peers::PeerRow::new(
                PinnedPeer {
                    index,
                    subnet: subnet(family, &config, index),
                    entry,
                },
                traffic.map(|bytes| PeerTraffic {
                    sent: Counter { packets: 1, bytes },
                    ..PeerTraffic::default()
                }),
                &PinnedEcmpPaths::default(),
                now,
                &mut DeviceNames::default(),
            );
            prop_assert!(serde_json::to_string(&row).is_ok());
            prop_assert_eq!(peers::table(&[row]).lines().count(), 2);
        }
    }

    #[test]
    fn any_pod_has_a_row(ifindex: u32, mac: [u8; 6], flags: u16, mtu: u32) {
        let row = pods::row(
            (
                ifindex,
                PodEntry {
                    mac: Mac(mac),
                    flags,
                    mtu,
                    ..PodEntry::default()
                },
            ),
            None,
            &mut DeviceNames::default(),
        );
        prop_assert_eq!(pods::table(&[row]).lines().count(), 2);
    }
}
