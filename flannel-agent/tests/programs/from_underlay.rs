//! `from_underlay`: what it says of each packet. It never takes one.

use std::net::Ipv4Addr;

use flannel_agent::datapath::clock;
use flannel_common::{node::HEARTBEAT_LIMIT_NS, program::Program::FromUnderlay, reason::Reason};

use crate::{
    bench::{Bench, on_bench},
    packets::{self, PEER_POD, at, tunnel_from_peer},
};

fn says(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(FromUnderlay, packet).passed(reason, packet);
}

fn with(at: usize, value: u8) -> Vec<u8> {
    let mut packet = tunnel_from_peer(PEER_POD);
    packet[at] = value;
    packet
}

#[test]
fn a_peers_packet_is_good() {
    on_bench(|bench| {
        says(bench, &tunnel_from_peer(PEER_POD), Reason::TunnelGood);
        // The peer's own host speaks from its subnet's base address.
        says(bench, &tunnel_from_peer(Ipv4Addr::new(10, 244, 7, 0)), Reason::TunnelGood);
        let mut without_checksum = tunnel_from_peer(PEER_POD);
        without_checksum[at::UDP + 6..at::UDP + 8].fill(0);
        says(bench, &without_checksum, Reason::TunnelGood);
    });
}

#[test]
fn what_is_wrong_with_a_tunnel_packet_is_named() {
    on_bench(|bench| {
        says(bench, &with(at::IP + 15, 77), Reason::UnknownVtep);
        says(bench, &with(at::IP + 19, 77), Reason::NotForUs);
        says(bench, &with(at::IP + 6, 0x20), Reason::OuterFragment);
        says(bench, &with(at::VXLAN + 6, 2), Reason::OtherVni);
        says(bench, &with(at::VXLAN, 0x88), Reason::BadVxlanHeader);
        says(bench, &with(at::VXLAN + 7, 1), Reason::BadVxlanHeader);
        says(bench, &with(at::INNER + 5, 9), Reason::InnerOtherMac);
        says(bench, &with(at::INNER + 12, 0x86), Reason::OtherProtocol);
        says(bench, &tunnel_from_peer(Ipv4Addr::new(10, 244, 8, 1)), Reason::InnerOtherSource);
        says(bench, &tunnel_from_peer(Ipv4Addr::new(8, 8, 8, 8)), Reason::InnerOtherSource);
        let cut = tunnel_from_peer(PEER_POD)[..70].to_vec();
        says(bench, &cut, Reason::Malformed);
    });
}

#[test]
fn other_traffic_is_not_the_tunnels() {
    on_bench(|bench| {
        says(bench, &with(at::UDP + 3, 53), Reason::NotTunnel);
        says(bench, &with(at::IP + 9, 6), Reason::NotTunnel);
        let mut arp = packets::ethernet(packets::OUR_MAC, packets::PEER_MAC, 0x0806);
        arp.extend([0; 28]);
        says(bench, &arp, Reason::NotTunnel);
    });
}

#[test]
fn a_minute_without_the_agent_nothing_is_said() {
    on_bench(|bench| {
        bench.maps.config.beat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000).expect("CONFIG");
        says(bench, &tunnel_from_peer(PEER_POD), Reason::AgentGone);
    });
}
