//! The guard in `from_underlay`: a fixture per verdict and mode, of either family.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_common::{
    abi::{
        entry_state::EntryState,
        guard::{Checks, DeviceKey, GuardMode, Violation},
        mode::Mode,
        node::HEARTBEAT_LIMIT_NS,
        peer::VtepEntry,
        program::Program::FromUnderlay,
        reason::Reason,
    },
    packet::addr::Addr,
};
use flannel_datapath::kernel::clock;

use crate::{
    bench::{Bench, TC_ACT_SHOT, on_bench},
    packets::{
        BOTH, Net, PEER_INDEX, PEER_MAC, V4, V6, first_fragment, later_fragment, with_options,
    },
};

/// Puts both checks into these modes.
fn guard(bench: &mut Bench, outer: GuardMode, inner: GuardMode) {
    bench
        .maps
        .guard
        .set(Checks { outer, inner }, Checks::default())
        .expect("GUARD");
}

fn enforced(bench: &mut Bench) {
    guard(bench, GuardMode::Enforce, GuardMode::Enforce);
}

#[track_caller]
fn passes(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(FromUnderlay, packet).passed(reason, packet);
}

#[track_caller]
fn drops(bench: &mut Bench, packet: &[u8], reason: Reason) {
    let outcome = bench.run(FromUnderlay, packet);
    assert_eq!(
        (outcome.action, outcome.reasons),
        (TC_ACT_SHOT, vec![reason])
    );
}

fn good(net: Net) -> Vec<u8> {
    net.tunnel_from_peer(net.peer_pod)
}

/// The same from an address no peer has.
fn strange(net: Net, packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[net.at().addresses + net.address_len() - 1] = 77;
    packet
}

fn stranger(net: Net) -> Addr {
    let mut addr = Addr::from(net.peer_vtep);
    addr.0[15] = 77;
    addr
}

fn suspects(bench: &Bench) -> Vec<(Addr, Violation)> {
    bench
        .maps
        .suspects
        .entries()
        .collect::<Result<_, _>>()
        .expect("VIOLATIONS")
}

#[test]
fn each_mode_does_what_it_says_to_strangers() {
    on_bench(|bench| {
        for net in BOTH {
            let packet = strange(net, &good(net));
            for inner in GuardMode::ALL {
                guard(bench, GuardMode::Off, inner);
                passes(bench, &packet, Reason::UnknownVtep);
                guard(bench, GuardMode::Audit, inner);
                passes(bench, &packet, Reason::UnknownVtep);
                guard(bench, GuardMode::Enforce, inner);
                drops(bench, &packet, Reason::RefusedVtep);
            }
        }
    });
}

#[test]
fn each_mode_does_what_it_says_to_other_inner_sources() {
    on_bench(|bench| {
        for net in BOTH {
            for source in [net.unleased, net.outside[0], net.our_pod] {
                let packet = net.tunnel_from_peer(source);
                for outer in GuardMode::ALL {
                    guard(bench, outer, GuardMode::Off);
                    passes(bench, &packet, Reason::InnerOtherSource);
                    guard(bench, outer, GuardMode::Audit);
                    passes(bench, &packet, Reason::InnerOtherSource);
                    guard(bench, outer, GuardMode::Enforce);
                    drops(bench, &packet, Reason::RefusedSource);
                }
            }
        }
    });
}

#[test]
fn peers_pass_whatever_is_enforced_with_and_without_checksum_and_in_every_mode() {
    on_bench(|bench| {
        enforced(bench);
        for mode in [Mode::Kernel, Mode::Encap] {
            bench.maps.mode.set(mode, None).expect("MODE");
            for net in BOTH {
                let mut without_checksum = good(net);
                without_checksum[net.at().udp + 6..net.at().udp + 8].fill(0);
                for packet in [
                    good(net),
                    without_checksum,
                    net.tunnel_from_peer(net.peer_host),
                ] {
                    passes(bench, &packet, Reason::TunnelGood);
                }
                drops(bench, &strange(net, &good(net)), Reason::RefusedVtep);
            }
        }
        // Mode `fast` goes on to find that the bench's frames are addressed to no device of it.
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        for net in BOTH {
            passes(bench, &good(net), Reason::NotPlain);
            drops(bench, &strange(net, &good(net)), Reason::RefusedVtep);
            drops(
                bench,
                &net.tunnel_from_peer(net.unleased),
                Reason::RefusedSource,
            );
        }
    });
}

/// A peer that is reached directly, or not plainly, may send through the tunnel all the same.
#[test]
fn peers_pass_whatever_way_leads_to_them() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            for flags in [EntryState::DIRECT, 0] {
                bench.peer(net, net.peer(), flags);
                passes(bench, &good(net), Reason::TunnelGood);
            }
        }
    });
}

#[test]
fn what_is_not_of_our_tunnel_is_not_examined() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let (at, packet) = (net.at(), strange(net, &good(net)));
            let with = |offset: usize, value: u8| {
                let mut packet = packet.clone();
                packet[offset] = value;
                packet
            };
            passes(bench, &with(at.udp + 3, 53), Reason::NotTunnel);
            passes(bench, &with(at.vxlan + 6, 2), Reason::OtherVni);
            passes(bench, &with(at.vxlan, 0x88), Reason::BadVxlanHeader);
            for hidden in [
                with_options(net, &with(at.vxlan + 6, 2)),
                first_fragment(net, &with(at.vxlan + 6, 2)),
            ] {
                passes(bench, &hidden, Reason::OtherVni);
            }
            passes(
                bench,
                &with_options(net, &with(at.udp + 3, 53)),
                Reason::NotTunnel,
            );
        }
        passes(
            bench,
            &later_fragment(V6, &strange(V6, &good(V6))),
            Reason::NotTunnel,
        );
        passes(
            bench,
            &later_fragment(V4, &strange(V4, &good(V4))),
            Reason::OuterFragment,
        );
    });
}

/// Makes the bench's namespace a router, with this address and a route to its neighbours.
fn route(net: Net, own: IpAddr) {
    let (family, length, switch) = match net.our_vtep {
        IpAddr::V4(_) => ("-4", 24, "/proc/sys/net/ipv4/conf/all/forwarding"),
        IpAddr::V6(_) => ("-6", 64, "/proc/sys/net/ipv6/conf/all/forwarding"),
    };
    std::fs::write(switch, "1").expect("a namespace of our own");
    for line in [
        "link set lo up".to_owned(),
        format!("{family} address add {own} dev lo"),
        format!("{family} route add {}/{length} dev lo", net.base()),
    ] {
        let done = std::process::Command::new("ip")
            .args(line.split(' '))
            .status()
            .expect("ip runs");
        assert!(done.success(), "ip {line}");
    }
    // The kernel makes the route of an IPv6 address from a work queue.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_local(own) {
        assert!(Instant::now() < deadline, "{own} got no route of its own");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_local(own: IpAddr) -> bool {
    let own = own.to_string();
    let asked = std::process::Command::new("ip")
        .args(["route", "get", &own])
        .output()
        .expect("ip runs");
    asked.stdout.starts_with(b"local ")
}

/// The socket of the vxlan device is bound to no address.
#[test]
fn any_address_of_this_host_is_guarded_and_what_is_forwarded_is_not() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let to = |last: u8, packet: &[u8]| {
                let mut packet = packet.to_vec();
                packet[net.at().udp - 1] = last;
                packet
            };
            route(net, {
                let mut own = Addr::from(net.our_vtep);
                own.0[15] = 78;
                own.into()
            });
            for packet in [good(net), first_fragment(net, &good(net))] {
                passes(bench, &to(78, &packet), Reason::NotForUs);
                passes(bench, &to(79, &strange(net, &packet)), Reason::NotForUs);
                drops(bench, &to(78, &strange(net, &packet)), Reason::RefusedVtep);
            }
        }
    });
}

/// The guard sees every packet that the vxlan device would accept: fragments, options, and frames
/// that hold no IP packet for us.
#[test]
fn a_stranger_cannot_hide() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let at = net.at();
            let mut broadcast = good(net);
            broadcast[at.inner..at.inner + 6].fill(0xff);
            let mut arp = good(net);
            arp[at.inner + 12..at.inner_ip].copy_from_slice(&[0x08, 0x06]);
            let fragment = first_fragment(net, &good(net));
            let udp_alone = fragment.len() - good(net).len() + at.udp + 8;
            let hidden = [
                (broadcast.clone(), Reason::InnerOtherMac),
                (arp, Reason::OtherProtocol),
                (good(net)[..at.inner_ip + 6].to_vec(), Reason::Malformed),
                (good(net)[..at.inner].to_vec(), Reason::OuterUnusual),
                (fragment.clone(), Reason::OuterFragment),
                (fragment[..udp_alone].to_vec(), Reason::OuterFragment),
                (with_options(net, &good(net)), Reason::OuterUnusual),
                (
                    with_options(net, &with_options(net, &good(net))),
                    Reason::OuterUnusual,
                ),
            ];
            for (packet, of_a_peer) in hidden {
                passes(bench, &packet, of_a_peer);
                drops(bench, &strange(net, &packet), Reason::RefusedVtep);
            }
        }
    });
}

/// The answer to a datagram that masquerade sent from the tunnel's port, as it does once in 64,512.
#[test]
fn what_is_too_short_for_a_tunnel_packet_is_nobodys_business() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let whole = good(net);
            for len in 0..8 {
                passes(
                    bench,
                    &strange(net, &whole[..net.at().udp + 8 + len]),
                    Reason::NotTunnel,
                );
            }
            drops(
                bench,
                &strange(net, &whole[..net.at().udp + 8 + 8]),
                Reason::RefusedVtep,
            );
        }
    });
}

/// The peer's lease has one address, and its packets come from another.
#[test]
fn a_peer_behind_a_nat_is_known_by_its_device() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let family = net.ethertype.to_be_bytes();
            let key = DeviceKey {
                mac: PEER_MAC,
                family,
            };
            bench
                .maps
                .elsewhere
                .add(DeviceKey {
                    family: [0, 0],
                    ..key
                })
                .expect("NAT_VTEPS");
            let packets = [
                good(net),
                net.tunnel_from_peer(net.outside[0]),
                first_fragment(net, &good(net)),
            ];
            for packet in &packets {
                drops(bench, &strange(net, packet), Reason::RefusedVtep);
            }
            bench.maps.elsewhere.add(key).expect("NAT_VTEPS");
            for packet in &packets {
                passes(bench, &strange(net, packet), Reason::UnknownVtep);
            }
            let mut other_device = strange(net, &good(net));
            other_device[net.at().inner + 11] ^= 1;
            drops(bench, &other_device, Reason::RefusedVtep);
        }
    });
}

#[test]
fn a_subnet_of_another_size_is_not_judged_by_the_peer_map() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            let vtep = VtepEntry {
                index: VtepEntry::UNNUMBERED,
                reserved: 0,
            };
            bench.maps.vteps.write(stranger(net), vtep).expect("VTEPS");
            let from_odd = |source: IpAddr| strange(net, &net.tunnel_from_peer(source));
            passes(bench, &from_odd(net.unleased), Reason::SenderUnnumbered);
            drops(bench, &from_odd(net.peer_pod), Reason::RefusedSource);
        }
    });
}

/// Also for as long as an agent stays dead that was killed over it.
#[test]
fn a_peer_whose_entry_is_being_rewritten_passes() {
    on_bench(|bench| {
        enforced(bench);
        for net in BOTH {
            bench.half_written(net, net.peer());
            passes(bench, &good(net), Reason::PeerChanging);
            drops(
                bench,
                &net.tunnel_from_peer(net.unleased),
                Reason::RefusedSource,
            );
            bench.peers(net).remove(PEER_INDEX).expect("a peer map");
            drops(bench, &good(net), Reason::RefusedSource);
        }
    });
}

#[test]
fn without_an_agent_nothing_is_refused() {
    on_bench(|bench| {
        enforced(bench);
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000)
            .expect("CONFIG");
        for net in BOTH {
            passes(bench, &strange(net, &good(net)), Reason::AgentGone);
        }
        bench.maps.config.invalidate().expect("CONFIG");
        for net in BOTH {
            passes(bench, &strange(net, &good(net)), Reason::NotConfigured);
        }
    });
}

#[test]
fn sources_are_remembered_unless_the_guard_is_off() {
    on_bench(|bench| {
        for net in BOTH {
            guard(bench, GuardMode::Off, GuardMode::Off);
            passes(bench, &strange(net, &good(net)), Reason::UnknownVtep);
            passes(
                bench,
                &net.tunnel_from_peer(net.unleased),
                Reason::InnerOtherSource,
            );
        }
        assert_eq!(suspects(bench), []);
        guard(bench, GuardMode::Audit, GuardMode::Audit);
        passes(bench, &strange(V4, &good(V4)), Reason::UnknownVtep);
        enforced(bench);
        drops(bench, &strange(V4, &good(V4)), Reason::RefusedVtep);
        drops(bench, &strange(V4, &good(V4)), Reason::RefusedVtep);
        let [(source, suspect)] = suspects(bench).try_into().expect("one source");
        assert_eq!(
            (source, suspect.packets, suspect.dropped),
            (stranger(V4), 3, 2)
        );
        assert_eq!(
            Reason::from_number(suspect.reason),
            Some(Reason::RefusedVtep)
        );
        assert!(suspect.last_ns.abs_diff(clock::now_ns()) < 10_000_000_000);
        drops(
            bench,
            &V6.tunnel_from_peer(V6.unleased),
            Reason::RefusedSource,
        );
        assert_eq!(suspects(bench).len(), 2);
    });
}
