//! Whatever is in the flow tables, there is a row for it.

use std::net::Ipv4Addr;

use flannel_common::abi::{fast::FastConfig, mode::ModeWord};
use flannel_datapath::testing::{any_end, any_flow, any_node, any_peer};
use proptest::prelude::*;

use super::{FlowRow, Gate, PeerPath};

proptest! {
    #[test]
    fn any_flow_has_a_row(
        key in any_end(),
        flow in any_flow(),
        peer in prop::option::of(any_peer()),
        config in any_node(),
        mode: u64,
        settings: [u32; 4],
        now_ns: u64,
    ) {
        let [flags, interval, tunnel_mtu, tunnel_mtu6] = settings;
        let settings = FastConfig {
            flags,
            interval,
            tunnel_mtu,
            tunnel_mtu6,
        };
        let gate = Gate {
            mode: ModeWord(mode),
            config,
            settings,
            now_ns,
        };
        let address = |[word]: [u32; 1]| Ipv4Addr::from_bits(word).into();
        gate.subnet_of(address(flow.action.out.destination));
        let peer = peer.map(|entry| PeerPath {
            entry,
            ecmp_paths: Vec::new(),
        });
        let row = FlowRow::new(&key, &flow, peer.as_ref(), &gate, address);
        prop_assert!(serde_json::to_string(&row).is_ok());
    }
}
