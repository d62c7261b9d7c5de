//! Values of maps, whatever is in them: those of a newer agent, torn ones, noise.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        node::{FamilyConfig, NodeConfig},
        peer::{PathProbe, PeerEntry},
    },
    flow::{Egress, Flow, FlowAction},
    flow::{arrival::Arrival, expiry::Expiry, flow_key::FlowKey, window::Window},
    packet::{
        addr::{Addr, Mac},
        inner::FrameAddresses,
    },
};
use proptest::{array::uniform16, prelude::*};

prop_compose! {
    pub fn any_end()(
        source: u32,
        destination: u32,
        ports: u32,
        protocol: u32,
        device: u32,
    ) -> FlowKey<[u32; 1]> {
        FlowKey {
            source: [source],
            destination: [destination],
            ports,
            protocol,
            device,
        }
    }
}

prop_compose! {
    fn any_action()(
        out in any_end(),
        generation: u32,
        mark: u32,
        priority: u32,
        hash: u32,
        flow_label: u32,
        to: [u8; 6],
        from: [u8; 6],
        mtu: u16,
        egress: u8,
        ttl_step: u8,
        needs_mirror: u8,
        rest: [u8; 3],
    ) -> FlowAction<[u32; 1]> {
        let entry = FrameAddresses::new(Mac(to), Mac(from));
        let egress = Egress(egress);
        let [takes_merged, tos, ttl] = rest;
        FlowAction {
            out,
            generation,
            mark,
            priority,
            egress_data: hash,
            flow_label,
            entry,
            exit: entry,
            mtu,
            egress,
            ttl_step,
            needs_mirror,
            takes_merged,
            tos,
            ttl,
        }
    }
}

prop_compose! {
    pub fn any_flow()(
        words: [u64; 4],
        first: u32,
        last: u32,
        action in any_action(),
    ) -> Flow<[u32; 1]> {
        let [seen, mirror, packets, bytes] = words;
        let (seen, mirror) = (Expiry(seen), Expiry(mirror));
        Flow {
            seen,
            mirror,
            packets,
            bytes,
            first,
            last,
            window: Window::default(),
            arrival: Arrival::NONE,
            action,
        }
    }
}

fn any_addr() -> impl Strategy<Value = Addr> {
    uniform16(any::<u8>()).prop_map(Addr)
}

prop_compose! {
    pub fn any_family()(
        network in any_addr(),
        vtep in any_addr(),
        mac: [u8; 6],
        port: [u8; 2],
        numbers: [u32; 5],
        ports: [u16; 2],
    ) -> FamilyConfig {
        let [
            vni,
            subnet_shift,
            subnet_count,
            tunnel_ifindex,
            underlay_ifindex,
        ] = numbers;
        let [source_port_min, source_port_max] = ports;
        FamilyConfig {
            network,
            vtep,
            vtep_mac: Mac(mac),
            port,
            vni,
            subnet_shift,
            subnet_count,
            tunnel_ifindex,
            underlay_ifindex,
            source_port_min,
            source_port_max,
        }
    }
}

prop_compose! {
    pub fn any_peer()(
        vtep in any_addr(), next_hop in any_addr(), mac: [u8; 6], traffic: u16, words: [u64; 4],
        numbers: [u32; 4], is_same: bool,
    ) -> PeerEntry {
        let [word, seen, until_ns, hold_ns] = words;
        let [oif, mtu, max_len, rest] = numbers;
        let seen = PathProbe {
            word: EntryState(if is_same { word } else { seen }),
            until_ns,
            hold_ns,
            max_len,
            check: rest,
        };
        PeerEntry {
            word: EntryState(word),
            vtep,
            next_hop,
            mac: Mac(mac),
            traffic,
            oif,
            mtu,
            seen,
        }
    }
}

prop_compose! {
    pub fn any_node()(
        v4 in any_family(),
        v6 in any_family(),
        word: u64,
        heartbeat_ns: u64,
        confirmed: u32,
        reserved: u32,
    ) -> NodeConfig {
        NodeConfig {
            word: EntryState(word),
            heartbeat_ns,
            confirmed,
            reserved,
            v4,
            v6,
        }
    }
}
