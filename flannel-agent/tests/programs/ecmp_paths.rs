//! Peers whose route has several next hops: `to_tunnel` and `from_pod` on the ECMP path that the
//! kernel's FIB chooses, and what `to_underlay` sees of each path.
//!
//! The FIB is that of the bench's namespace: our VTEP on `lo`, and the peer behind one gateway on
//! each of `e2` and `e3`. A packet is encapsulated if the path it takes is validated, so the path
//! that has to be validated is the one taken.

use std::{net::IpAddr, process::Command};

use flannel_common::{
    abi::{
        ecmp::EcmpPathKey,
        entry_state::EntryState,
        peer::PeerEntry,
        program::Program::{FromUnderlay, ToTunnel, ToUnderlay},
        reason::Reason,
    },
    packet::PROTO_UDP,
    packet::addr::Addr,
};

use crate::{
    bench::{Bench, Outcome, TC_ACT_REDIRECT, on_bench},
    from_underlay::too_big,
    packets::{self, BOTH, Net, PEER_INDEX, V4, V6},
};

/// The devices of the ECMP paths: interface index, and the gateway's network in either family.
const ECMP_PATHS: [u32; 2] = [2, 3];

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("ip runs");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn sysctl(key: &str, value: &str) {
    let path = format!("/proc/sys/net/{key}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// The route to the peer, by these devices.
fn route(net: Net, by: &[u32]) {
    let (family, via) = if net.our_vtep.is_ipv4() {
        ("-4", "10.0.")
    } else {
        ("-6", "fd00:")
    };
    let gateway = |ecmp_path: &u32| {
        if net.our_vtep.is_ipv4() {
            format!("{via}{ecmp_path}.254")
        } else {
            format!("{via}{ecmp_path}::254")
        }
    };
    let hops: Vec<_> = by
        .iter()
        .map(|ecmp_path| format!("nexthop via {} dev e{ecmp_path}", gateway(ecmp_path)))
        .collect();
    ip(&format!(
        "{family} route replace {} {}",
        net.peer_vtep,
        hops.join(" ")
    ));
}

/// All gateways of an ECMP path that a route of these tests may name.
fn gateways(ecmp_path: u32) -> [String; 3] {
    [
        format!("10.0.{ecmp_path}.254"),
        format!("fd00:{ecmp_path}::254"),
        format!("fe80::{ecmp_path}"),
    ]
}

/// Runs a test on a node whose peers have two ECMP paths, both not yet validated.
fn on_ecmp_paths(test: impl FnOnce(&mut Bench) + Send + 'static) {
    on_bench(|bench| {
        lay(bench);
        test(bench);
    });
}

/// Gives the peers two ECMP paths each, both not yet validated.
pub(crate) fn lay(bench: &mut Bench) {
    for key in [
        "ipv4/ip_forward",
        "ipv6/conf/all/forwarding",
        "ipv4/fib_multipath_hash_policy",
    ] {
        sysctl(key, "1");
    }
    sysctl("ipv6/fib_multipath_hash_policy", "1");
    ip("link set lo up");
    for net in BOTH {
        ip(&format!("address add {} dev lo", net.our_vtep));
    }
    for ecmp_path in ECMP_PATHS {
        ip(&format!(
            "link add e{ecmp_path} index {ecmp_path} type veth peer name p{ecmp_path} index \
             1{ecmp_path}"
        ));
        ip(&format!("link set p{ecmp_path} up"));
        ip(&format!("link set e{ecmp_path} up"));
        ip(&format!(
            "address add 10.0.{ecmp_path}.1/24 dev e{ecmp_path}"
        ));
        ip(&format!(
            "address add fd00:{ecmp_path}::1/64 dev e{ecmp_path} nodad"
        ));
        // No host answers there, and the kernel handles packets of unresolved neighbours.
        for gateway in gateways(ecmp_path) {
            ip(&format!(
                "neigh add {gateway} lladdr 02:00:00:00:00:0{ecmp_path} dev e{ecmp_path} nud \
                 permanent"
            ));
        }
    }
    for net in BOTH {
        route(net, &ECMP_PATHS);
        peer(bench, net, &ECMP_PATHS);
    }
}

/// Lets `to_underlay` see a packet of the kernel's own by every ECMP path.
pub(crate) fn see_all(bench: &mut Bench, net: Net, payload: usize) {
    for ecmp_path in ECMP_PATHS {
        see(bench, net, ecmp_path, payload);
    }
}

/// Deletes the neighbour entries of an ECMP path's gateways.
fn forget_neighbours(ecmp_path: u32) {
    for gateway in gateways(ecmp_path) {
        ip(&format!("neigh del {gateway} dev e{ecmp_path}"));
    }
}

/// Leaves the peer without a route.
pub(crate) fn cut(net: Net) {
    ip(&format!("route del {}", net.peer_vtep));
}

/// Writes the peer, with these ECMP paths.
fn peer(bench: &mut Bench, net: Net, ecmp_paths: &[u32]) {
    for ecmp_path in ECMP_PATHS {
        bench
            .maps
            .ecmp_paths
            .remove(key(net, ecmp_path))
            .expect("ECMP_PATHS");
    }
    for ecmp_path in ecmp_paths {
        bench
            .maps
            .ecmp_paths
            .write(key(net, *ecmp_path), 1500)
            .expect("ECMP_PATHS");
    }
    let entry = PeerEntry {
        oif: 0,
        next_hop: Addr::NONE,
        ..net.peer()
    };
    bench.peer(net, entry, EntryState::PLAIN | EntryState::ECMP);
}

fn key(net: Net, ecmp_path: u32) -> EcmpPathKey {
    EcmpPathKey::new(net.ethertype.to_be_bytes(), PEER_INDEX, ecmp_path)
}

/// A packet of one of many flows.
fn of_flow(net: Net, flow: u16, payload: usize) -> Vec<u8> {
    let datagram = packets::udp(4000 + flow, 53, &vec![0xaa; payload]);
    net.framed_to_peer(&packets::ip(
        0,
        PROTO_UDP,
        net.our_pod,
        net.peer_pod,
        &datagram,
    ))
}

/// Lets `to_underlay` see a packet of the kernel's own by a device.
fn see(bench: &mut Bench, net: Net, ecmp_path: u32, payload: usize) {
    let packet = net.tunnel_to_peer(&net.inner_to_peer(payload));
    assert_eq!(
        bench.run_by(ToUnderlay, &packet, ecmp_path).reasons,
        [Reason::PathSeen],
        "by e{ecmp_path}"
    );
}

fn source_port(net: Net, packet: &[u8]) -> u16 {
    let udp = net.at().udp;
    u16::from_be_bytes([packet[udp], packet[udp + 1]])
}

/// The device by which the kernel's own tunnel packet of this flow would leave.
fn kernels_choice(net: Net, port: u16) -> u32 {
    let (ours, theirs): (IpAddr, IpAddr) = (net.our_vtep, net.peer_vtep);
    let text = ip(&format!(
        "route get {theirs} from {ours} ipproto udp sport {port} dport 8472"
    ));
    ECMP_PATHS
        .into_iter()
        .find(|ecmp_path| text.contains(&format!("dev e{ecmp_path} ")))
        .unwrap_or_else(|| panic!("{text}"))
}

/// Returns the ECMP path a flow takes: the only one that has to be validated for it.
fn ecmp_path_of(bench: &mut Bench, net: Net, frame: &[u8]) -> u32 {
    let taken = ECMP_PATHS.into_iter().filter(|ecmp_path| {
        peer(bench, net, &ECMP_PATHS);
        see(bench, net, *ecmp_path, 1000);
        bench.run(ToTunnel, frame).reasons == [Reason::Encapsulated]
    });
    let taken: Vec<u32> = taken.collect();
    assert_eq!(taken.len(), 1, "by {taken:?}");
    taken[0]
}

fn takes(bench: &mut Bench, frame: &[u8]) -> Outcome {
    let outcome = bench.run(ToTunnel, frame);
    assert_eq!(
        (&outcome.reasons[..], outcome.action),
        (&[Reason::Encapsulated][..], TC_ACT_REDIRECT)
    );
    outcome
}

/// The ECMP path of each of many flows, as the programs have it; the kernel's own agrees.
fn ecmp_paths_of_flows(bench: &mut Bench, net: Net) -> Vec<u32> {
    let ecmp_path = |flow| {
        let frame = of_flow(net, flow, 100);
        let ecmp_path = ecmp_path_of(bench, net, &frame);
        let port = source_port(net, &takes_after(bench, net, &frame));
        assert_eq!(
            ecmp_path,
            kernels_choice(net, port),
            "flow {flow} from port {port}"
        );
        ecmp_path
    };
    (0..24).map(ecmp_path).collect()
}

/// Returns the packet as it is encapsulated while both ECMP paths are validated.
fn takes_after(bench: &mut Bench, net: Net, frame: &[u8]) -> Vec<u8> {
    peer(bench, net, &ECMP_PATHS);
    see_all(bench, net, 1000);
    takes(bench, frame).packet
}

#[test]
fn each_flow_takes_the_path_the_kernel_would_give_it() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let ecmp_paths = ecmp_paths_of_flows(bench, net);
            assert!(
                ECMP_PATHS
                    .iter()
                    .all(|ecmp_path| ecmp_paths.contains(ecmp_path)),
                "spread over both: {ecmp_paths:?}"
            );
        }
    });
}

#[test]
fn under_the_policy_of_addresses_all_flows_take_one_ecmp_path() {
    on_ecmp_paths(|bench| {
        sysctl("ipv4/fib_multipath_hash_policy", "0");
        sysctl("ipv6/fib_multipath_hash_policy", "0");
        for net in BOTH {
            let ecmp_paths = ecmp_paths_of_flows(bench, net);
            assert!(
                ecmp_paths
                    .iter()
                    .all(|ecmp_path| *ecmp_path == ecmp_paths[0]),
                "{ecmp_paths:?}"
            );
        }
    });
}

#[test]
fn nothing_is_sent_by_a_path_that_was_not_seen() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
            let ecmp_path = ecmp_path_of(bench, net, &frame);
            let other = ECMP_PATHS
                .into_iter()
                .find(|other| *other != ecmp_path)
                .expect("two paths");
            peer(bench, net, &ECMP_PATHS);
            see(bench, net, other, 1000);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
            see(bench, net, ecmp_path, 1000);
            takes(bench, &frame);
        }
    });
}

/// The route follows at once; who may be used was said by the agent.
#[test]
fn a_path_that_is_withdrawn_hands_its_flows_to_the_other() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            for left in ECMP_PATHS {
                route(net, &[left]);
                assert_eq!(ecmp_path_of(bench, net, &frame), left);
            }
            route(net, &ECMP_PATHS);
            peer(bench, net, &ECMP_PATHS[..1]);
            see(bench, net, ECMP_PATHS[0], 1000);
            route(net, &ECMP_PATHS[1..]);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::NoEcmpPath, &frame);
        }
    });
}

#[test]
fn what_would_wait_for_its_neighbour_is_the_kernels() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            see_all(bench, net, 1000);
        }
        for net in BOTH {
            takes(bench, &of_flow(net, 1, 100));
        }
        ECMP_PATHS.into_iter().for_each(forget_neighbours);
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
        }
    });
}

#[test]
fn without_a_route_the_kernel_has_its_say() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            see_all(bench, net, 1000);
            takes(bench, &frame);
            for kind in ["blackhole", "unreachable", "prohibit"] {
                ip(&format!("route replace {kind} {}", net.peer_vtep));
                bench
                    .run(ToTunnel, &frame)
                    .passed(Reason::NoEcmpPath, &frame);
                ip(&format!("route del {kind} {}", net.peer_vtep));
            }
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::NoEcmpPath, &frame);
            route(net, &ECMP_PATHS);
            takes(bench, &frame);
        }
        sysctl("ipv4/conf/lo/forwarding", "0");
        sysctl("ipv6/conf/lo/forwarding", "0");
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::NoEcmpPath, &frame);
        }
    });
}

#[test]
fn each_path_has_its_own_size() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let (small, large) = (of_flow(net, 1, 100), of_flow(net, 1, 101));
            let ecmp_path = ecmp_path_of(bench, net, &small);
            peer(bench, net, &ECMP_PATHS);
            for other in ECMP_PATHS {
                see(
                    bench,
                    net,
                    other,
                    if other == ecmp_path { 100 } else { 1000 },
                );
            }
            takes(bench, &small);
            // It is to show that so large a one passes.
            bench
                .run(ToTunnel, &large)
                .passed(Reason::PathUnseen, &large);
            see(bench, net, ecmp_path, 101);
            takes(bench, &large);
            // What the agent says of the ECMP path, and what the kernel says of its device.
            let mtu = u32::try_from(net.udp_overhead() + 100).expect("small");
            bench
                .maps
                .ecmp_paths
                .write(key(net, ecmp_path), mtu)
                .expect("ECMP_PATHS");
            see(bench, net, ecmp_path, 1000);
            takes(bench, &small);
            bench.run(ToTunnel, &large).passed(Reason::TooBig, &large);
        }
        let large = of_flow(V4, 1, 1000);
        let ecmp_path = ecmp_path_of(bench, V4, &large);
        ip(&format!("link set e{ecmp_path} mtu 1000"));
        bench.run(ToTunnel, &large).passed(Reason::TooBig, &large);
    });
}

#[test]
fn what_differs_on_one_path_holds_that_path() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            let ecmp_path = ecmp_path_of(bench, net, &frame);
            let other = ECMP_PATHS
                .into_iter()
                .find(|other| *other != ecmp_path)
                .expect("two paths");
            let mut differs = net.tunnel_to_peer(&net.inner_to_peer(100));
            // TTL or hop limit.
            differs[net.at().ip + if net.our_vtep.is_ipv4() { 8 } else { 7 }] = 63;
            for (by, reason) in [
                (other, Reason::Encapsulated),
                (ecmp_path, Reason::PathUnseen),
            ] {
                peer(bench, net, &ECMP_PATHS);
                see_all(bench, net, 1000);
                bench
                    .run_by(ToUnderlay, &differs, by)
                    .passed(Reason::PathDiffers, &differs);
                assert_eq!(bench.run(ToTunnel, &frame).reasons, [reason]);
                let good = net.tunnel_to_peer(&net.inner_to_peer(100));
                bench
                    .run_by(ToUnderlay, &good, by)
                    .passed(Reason::PathHeld, &good);
            }
            peer(bench, net, &ECMP_PATHS);
            see_all(bench, net, 1000);
            let fragment =
                packets::first_fragment(net, &net.tunnel_to_peer(&net.inner_to_peer(100)));
            bench
                .run_by(ToUnderlay, &fragment, other)
                .passed(Reason::PathFragmented, &fragment);
            takes(bench, &frame);
            bench
                .run_by(ToUnderlay, &fragment, ecmp_path)
                .passed(Reason::PathFragmented, &fragment);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
        }
    });
}

/// A packet that the kernel sends by a device outside the ECMP paths, and a router's report on
/// tunnel packets, concern every ECMP path.
#[test]
fn what_concerns_the_peer_holds_all_its_ecmp_paths() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            takes_after(bench, net, &frame);
            let good = net.tunnel_to_peer(&net.inner_to_peer(100));
            bench
                .run_by(ToUnderlay, &good, packets::LO)
                .passed(Reason::PathDiffers, &good);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
        }
        let frame = of_flow(V6, 1, 100);
        takes_after(bench, V6, &frame);
        let report = too_big(|_| ());
        bench
            .run(FromUnderlay, &report)
            .passed(Reason::TooBig, &report);
        bench
            .run(ToTunnel, &frame)
            .passed(Reason::PathUnseen, &frame);
    });
}

#[test]
fn a_peer_that_is_rewritten_has_to_be_seen_again_by_every_ecmp_path() {
    on_ecmp_paths(|bench| {
        for net in BOTH {
            let frame = of_flow(net, 1, 100);
            takes_after(bench, net, &frame);
            let entry = bench.entry(net);
            bench.peer(net, entry, EntryState::PLAIN | EntryState::ECMP);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
        }
    });
}

/// IPv4 by gateways that are known by their IPv6 addresses ([RFC
/// 5549](https://www.rfc-editor.org/rfc/rfc5549)), and by nexthop groups.
#[test]
fn gateways_of_the_other_family_and_nexthop_groups_are_as_good() {
    on_ecmp_paths(|bench| {
        let frame = of_flow(V4, 1, 100);
        let hops = ECMP_PATHS
            .map(|ecmp_path| format!("nexthop via inet6 fe80::{ecmp_path} dev e{ecmp_path}"))
            .join(" ");
        ip(&format!("route replace {} {hops}", V4.peer_vtep));
        ecmp_path_of(bench, V4, &frame);
        for ecmp_path in ECMP_PATHS {
            ip(&format!(
                "nexthop add id {ecmp_path} via 10.0.{ecmp_path}.254 dev e{ecmp_path}"
            ));
        }
        ip("nexthop add id 9 group 2,1/3,200");
        ip(&format!("route replace {} nhid 9", V4.peer_vtep));
        let ecmp_paths = ecmp_paths_of_flows(bench, V4);
        assert!(
            ecmp_paths
                .iter()
                .filter(|ecmp_path| **ecmp_path == 3)
                .count()
                > 18,
            "by weight: {ecmp_paths:?}"
        );
    });
}
