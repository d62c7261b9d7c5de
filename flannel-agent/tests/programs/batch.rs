//! Whole maps, read many entries at a call.

use std::collections::BTreeMap;

use flannel_common::{
    abi::{entry_state::EntryState, peer::PeerEntry},
    flow::Flow,
    flow::flow_key::FlowKey,
    packet::PROTO_UDP,
};

use crate::{bench::on_bench, packets::SUBNETS};

/// More than are read at a call, and so few that the table keeps them all.
const FLOWS: u32 = 400;

fn key(number: u32) -> FlowKey<[u32; 1]> {
    FlowKey {
        source: [number],
        destination: [7],
        ports: 9,
        protocol: u32::from(PROTO_UDP),
        device: 3,
    }
}

#[test]
fn every_flow_is_read_once_whatever_the_number_at_a_call() {
    on_bench(|bench| {
        let flows = &mut bench.maps.flows;
        for number in 0..FLOWS {
            flows
                .write(
                    key(number),
                    Flow {
                        bytes: number.into(),
                        ..Flow::default()
                    },
                )
                .expect("room");
        }
        let expected: BTreeMap<u32, u64> =
            (0..FLOWS).map(|number| (number, number.into())).collect();
        // One at a call is too few for a bucket of the hash with two: the reader makes room.
        for size in [1, 2, 256, 4096] {
            let read: Vec<_> = flows
                .table_in_batches_of(size)
                .collect::<Result<_, _>>()
                .expect("the flows");
            assert_eq!(read.len(), expected.len(), "{size} at a call");
            let read: BTreeMap<u32, u64> = read
                .into_iter()
                .map(|(key, flow)| (key.source[0], flow.bytes))
                .collect();
            assert_eq!(read, expected, "{size} at a call");
        }
        assert_eq!(flows.entries().count(), expected.len());
    });
}

#[test]
fn every_valid_peer_is_read() {
    on_bench(|bench| {
        let peers = &mut bench.maps.peers;
        let before: Vec<u32> = peers
            .entries()
            .map(|entry| entry.expect("a peer").0)
            .collect();
        let last = SUBNETS - 1;
        assert!(!before.contains(&last), "{before:?}");
        peers
            .write(
                last,
                PeerEntry {
                    oif: 7,
                    ..PeerEntry::default()
                },
                0,
            )
            .expect("a peer");
        let after: Vec<_> = peers
            .entries()
            .map(|entry| entry.expect("a peer"))
            .collect();
        assert_eq!(after.len(), before.len() + 1);
        let (index, entry) = after.last().expect("a peer");
        assert!(
            (*index, entry.oif) == (last, 7) && entry.word.has(EntryState::VALID),
            "{entry:?}"
        );
    });
}
