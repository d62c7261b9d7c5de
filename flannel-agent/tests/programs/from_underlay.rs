//! `from_underlay`: what it says of each packet, of either family, with the guard off. It never
//! takes one then.

use flannel_common::abi::{
    node::{HEARTBEAT_LIMIT_NS, NodeConfig},
    program::Program::{FromUnderlay, ToTunnel, ToUnderlay},
    reason::Reason,
};
use flannel_datapath::kernel::clock;

use crate::{
    bench::{Bench, on_bench},
    packets::{self, BOTH, Net, V4, V6, first_fragment, later_fragment},
};

fn says(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(FromUnderlay, packet).passed(reason, packet);
}

fn from_pod(net: Net) -> Vec<u8> {
    net.tunnel_from_peer(net.peer_pod)
}

fn with(net: Net, at: usize, value: u8) -> Vec<u8> {
    let mut packet = from_pod(net);
    packet[at] = value;
    packet
}

#[test]
fn a_peers_packet_is_good() {
    on_bench(|bench| {
        for net in BOTH {
            says(bench, &from_pod(net), Reason::TunnelGood);
            says(
                bench,
                &net.tunnel_from_peer(net.peer_host),
                Reason::TunnelGood,
            );
            let mut without_checksum = from_pod(net);
            let udp = net.at().udp;
            without_checksum[udp + 6..udp + 8].fill(0);
            says(bench, &without_checksum, Reason::TunnelGood);
        }
    });
}

#[test]
fn what_is_wrong_with_a_tunnel_packet_is_named() {
    on_bench(|bench| {
        for net in BOTH {
            let at = net.at();
            says(
                bench,
                &with(net, at.addresses + net.address_len() - 1, 77),
                Reason::UnknownVtep,
            );
            says(bench, &with(net, at.udp - 1, 77), Reason::NotForUs);
            says(
                bench,
                &first_fragment(net, &from_pod(net)),
                Reason::OuterFragment,
            );
            says(bench, &with(net, at.vxlan + 6, 2), Reason::OtherVni);
            says(bench, &with(net, at.vxlan, 0x88), Reason::BadVxlanHeader);
            says(bench, &with(net, at.vxlan + 7, 1), Reason::BadVxlanHeader);
            says(bench, &with(net, at.inner + 5, 9), Reason::InnerOtherMac);
            says(
                bench,
                &with(net, at.inner + 13, 0x06),
                Reason::OtherProtocol,
            );
            for source in [net.unleased, net.outside[0], net.outside[1]] {
                says(
                    bench,
                    &net.tunnel_from_peer(source),
                    Reason::InnerOtherSource,
                );
            }
            let cut = from_pod(net)[..at.inner_ip + 6].to_vec();
            says(bench, &cut, Reason::Malformed);
        }
    });
}

/// Each family has its own tunnel.
#[test]
fn one_family_inside_the_other_is_another_protocol() {
    on_bench(|bench| {
        for net in BOTH {
            let at = net.at();
            let other = if net.our_vtep.is_ipv4() {
                [0x86, 0xdd]
            } else {
                [0x08, 0x00]
            };
            let mut packet = from_pod(net);
            packet[at.inner + 12..at.inner_ip].copy_from_slice(&other);
            says(bench, &packet, Reason::OtherProtocol);
        }
    });
}

#[test]
fn other_traffic_is_not_the_tunnels() {
    on_bench(|bench| {
        for net in BOTH {
            says(bench, &with(net, net.at().udp + 3, 53), Reason::NotTunnel);
            let protocol = if net.our_vtep.is_ipv4() { 9 } else { 6 };
            says(bench, &with(net, 14 + protocol, 6), Reason::NotTunnel);
        }
        let mut arp = packets::ethernet(packets::OUR_MAC, packets::PEER_MAC, 0x0806);
        arp.extend([0; 28]);
        says(bench, &arp, Reason::NotTunnel);
    });
}

/// A later fragment of IPv6 has no port to know it by, and another datagram's first has another
/// port.
#[test]
fn fragments_that_do_not_show_our_port_are_not_the_tunnels() {
    on_bench(|bench| {
        says(bench, &later_fragment(V6, &from_pod(V6)), Reason::NotTunnel);
        says(
            bench,
            &first_fragment(V6, &with(V6, V6.at().udp + 3, 53)),
            Reason::NotTunnel,
        );
        says(
            bench,
            &first_fragment(V6, &with(V6, V6.at().udp - 1, 77)),
            Reason::NotForUs,
        );
        let cut = first_fragment(V6, &from_pod(V6))[..V6.at().inner_ip].to_vec();
        says(bench, &cut, Reason::OuterFragment);
    });
}

/// Returns a router's ICMPv6 Packet Too Big (MTU 1400) for our tunnel packet to the peer. `change`
/// edits the quoted packet first.
pub(crate) fn too_big(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut quoted = V6.tunnel_to_peer(&V6.inner_to_peer(1200))[14..].to_vec();
    change(&mut quoted);
    let icmp = [&[2, 0, 0, 0, 0, 0, 5, 120][..], &quoted[..1232]].concat();
    let packet = packets::ip(0, 58, V6.outside[0], V6.our_vtep, &icmp);
    [
        packets::ethernet(packets::OUR_MAC, packets::PEER_MAC, V6.ethertype),
        packet,
    ]
    .concat()
}

/// The kernel answers pods with the route's new MTU, once it has their packets.
#[test]
fn a_report_of_a_packet_too_big_lets_the_path_rest() {
    on_bench(|bench| {
        let frame = V6.inner_to_peer(100);
        bench.validate_path(V6, 1200);
        assert_eq!(bench.run(ToTunnel, &frame).reasons, [Reason::Encapsulated]);
        says(bench, &too_big(|_| ()), Reason::TooBig);
        bench
            .run(ToTunnel, &frame)
            .passed(Reason::PathUnseen, &frame);
        let kernels = V6.tunnel_to_peer(&frame);
        bench
            .run(ToUnderlay, &kernels)
            .passed(Reason::PathHeld, &kernels);
    });
}

#[test]
fn reports_of_other_packets_do_not() {
    on_bench(|bench| {
        bench.validate_path(V6, 1200);
        let (ip, udp, vxlan) = (0, V6.at().udp - 14, V6.at().vxlan - 14);
        let others: [fn(&mut [u8], usize); 5] = [
            |quoted, ip| quoted[ip + 6] = 6,
            |quoted, ip| quoted[ip + 23] = 77,
            |quoted, ip| quoted[ip + 39] = 77,
            |quoted, udp| quoted[udp + 3] = 53,
            |quoted, vxlan| quoted[vxlan + 6] = 2,
        ];
        for (change, at) in others.into_iter().zip([ip, ip, ip, udp, vxlan]) {
            says(
                bench,
                &too_big(|quoted| change(quoted, at)),
                Reason::NotTunnel,
            );
        }
        let with = |at: usize, value| {
            let mut report = too_big(|_| ());
            report[at] = value;
            report
        };
        says(bench, &with(54, 1), Reason::NotTunnel);
        says(bench, &with(53, 77), Reason::NotTunnel);
        let frame = V6.inner_to_peer(100);
        assert_eq!(bench.run(ToTunnel, &frame).reasons, [Reason::Encapsulated]);
    });
}

#[test]
fn a_family_that_is_off_has_no_tunnel() {
    on_bench(|bench| {
        let config = NodeConfig {
            v4: V4.family(),
            ..NodeConfig::default()
        };
        bench
            .maps
            .config
            .write(config, clock::now_ns())
            .expect("CONFIG");
        says(bench, &from_pod(V6), Reason::NotTunnel);
        says(bench, &from_pod(V4), Reason::TunnelGood);
    });
}

#[test]
fn a_minute_without_the_agent_nothing_is_said() {
    on_bench(|bench| {
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000)
            .expect("CONFIG");
        for net in BOTH {
            says(bench, &from_pod(net), Reason::AgentGone);
        }
    });
}
