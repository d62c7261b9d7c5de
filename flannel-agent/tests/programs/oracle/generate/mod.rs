//! Packets for each hook, and nodes to meet them: good ones of every kind, of flows the node knows
//! and of others, and what chance makes of them.

mod mutate;
mod node;
mod too_big;

use flannel_common::{abi::program::Program, packet::addr::Mac};

use super::{
    parse::{ETHERNET, Layout},
    random::Random,
    world::{FORMER_SUBNET, Known, OUR_SUBNET, Reached, Tuple, UNLEASED, World, pod},
};
use crate::{
    fast::packet::{ChecksumField, Packet, tcp},
    packets::{self, OUR_MAC},
};

/// A packet, and how it came about.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) bytes: Vec<u8>,
    pub(super) gso: u32,
    pub(super) story: Vec<String>,
}

/// Returns a packet that any sender could send, valid or damaged.
pub(super) fn case(random: &mut Random, world: &World, program: Program) -> Case {
    let mut case = framed(random, world, program);
    if random.percent(65) {
        for _ in 0..=random.below(3) {
            mutate::mutate(random, world, is_tunnelled(program), &mut case);
        }
    }
    at_device(program, case)
}

/// The packet as it is at the device of the program.
fn at_device(program: Program, mut case: Case) -> Case {
    if is_without_link(program) {
        case.bytes.drain(..ETHERNET);
    }
    case
}

/// Returns true if packets have no Ethernet header there.
pub(super) const fn is_without_link(program: Program) -> bool {
    matches!(program, Program::FromL3Tunnel | Program::ToL3Tunnel)
}

pub(super) const fn is_tunnelled(program: Program) -> bool {
    matches!(program, Program::FromUnderlay | Program::ToUnderlay)
}

/// A packet as a well-behaved sender makes it.
pub(super) fn valid(random: &mut Random, world: &World, program: Program) -> Case {
    at_device(program, framed(random, world, program))
}

/// The same in an Ethernet frame.
fn framed(random: &mut Random, world: &World, program: Program) -> Case {
    let seen = match program {
        Program::FromPod => entering(random, world, Direction::Out),
        Program::FromTunnel | Program::FromUnderlay | Program::FromL3Tunnel => {
            entering(random, world, Direction::In)
        }
        // What ends the way back of a flow is a packet that leaves as the flow's packets come.
        Program::ToPod => reversed(entering(random, world, Direction::Out)),
        Program::ToTunnel | Program::ToUnderlay | Program::ToL3Tunnel => to_peer(random, world),
    };
    let inner = framed_as(random, &seen);
    let inner = shaped(random, world, inner);
    let is_direct = |address| {
        world
            .peer_of(address)
            .is_some_and(|peer| peer.reached == Reached::Directly)
    };
    let bytes = match program {
        Program::FromUnderlay if world.net.our_vtep.is_ipv6() && random.percent(8) => {
            too_big::report(random, world)
        }
        Program::FromUnderlay if is_direct(inner.source) && random.percent(80) => inner.bytes(),
        Program::FromUnderlay => from_peer(random, world, &inner),
        Program::ToUnderlay if is_direct(inner.destination) && random.percent(60) => inner.bytes(),
        Program::ToUnderlay => kernels_own(random, world, &inner),
        _ => inner.bytes(),
    };
    let gso = if random.percent(6) {
        u32::from(random.pick(&[1_u16, 40, 100, 1300]))
    } else {
        0
    };
    Case {
        bytes,
        gso,
        story: vec![format!("{inner:?}")],
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

/// Addresses, ports and frame of a packet of a known flow, or of one like it.
fn entering(random: &mut Random, world: &World, direction: Direction) -> Known {
    // What comes in comes from a peer's pod, or by the tunnel.
    let comes_in =
        |flow: &Known| world.peer_of(flow.enters.source).is_some() || flow.frame[..6] == OUR_MAC.0;
    let wanted = |flow: &&Known| comes_in(flow) == (direction == Direction::In);
    let flows: Vec<Known> = world.flows.iter().filter(wanted).copied().collect();
    let mut flow = random.pick(&flows);
    if random.percent(15) {
        let others = [8080, world.helper_port, random.word()];
        flow.enters.ports = [random.word(), random.pick(&others)];
    }
    flow
}

fn reversed(flow: Known) -> Known {
    Known {
        enters: flow.enters.reversed(),
        ..flow
    }
}

/// A packet of the host's, or of a pod's after the kernel's translation, in the frame of its peer.
fn to_peer(random: &mut Random, world: &World) -> Known {
    let mut flow = reversed(entering(random, world, Direction::In));
    if random.percent(20) {
        let subnet = random.pick(&[7, 8, 9, 11, UNLEASED, FORMER_SUBNET]);
        flow.enters.destination = pod(world.net, subnet, 3);
    }
    let mac = world
        .peer_of(flow.enters.destination)
        .map_or([2, 0, 0, 0, 0, 99], |peer| peer.mac);
    flow.frame = [mac, OUR_MAC.0]
        .concat()
        .try_into()
        .expect("twice six bytes");
    flow
}

fn framed_as(random: &mut Random, flow: &Known) -> Packet {
    let Tuple {
        source,
        destination,
        ports,
        protocol,
    } = flow.enters;
    let net = if source.is_ipv4() {
        packets::V4
    } else {
        packets::V6
    };
    let mac = |at: usize| Mac(flow.frame[at..at + 6].try_into().expect("six bytes"));
    let flags = if random.percent(92) {
        0x10
    } else {
        random.byte()
    };
    let (tos, ttl) = (flow.tos ^ random.byte() & 3, flow.ttl);
    Packet {
        to: mac(0),
        from: mac(6),
        source,
        destination,
        ports,
        protocol,
        flags,
        tos,
        ttl,
        ..tcp(net)
    }
}

/// Varies what differs between the packets of a flow: TOS, TTL, payload and UDP checksum.
fn shaped(random: &mut Random, world: &World, packet: Packet) -> Packet {
    let payload = match random.below(10) {
        0 => 0,
        9 => 1000 + random.below(400),
        _ => random.below(200),
    };
    let may_lack = packet.protocol == 17 && world.net.our_pod.is_ipv4();
    let checksum = match random.below(20) {
        0..=3 if may_lack => ChecksumField::Absent,
        4..=12 => ChecksumField::Partial,
        13 => ChecksumField::Wrong,
        _ => ChecksumField::Right,
    };
    let tos = if random.percent(10) {
        random.byte()
    } else {
        packet.tos
    };
    let ttl = if random.percent(10) {
        random.pick(&[64, 64, 63, 2, 255])
    } else {
        packet.ttl
    };
    Packet {
        tos,
        ttl,
        payload,
        checksum,
        ..packet
    }
}

/// In the outer headers of the peer in whose subnet the packet's source lies.
fn from_peer(random: &mut Random, world: &World, inner: &Packet) -> Vec<u8> {
    let vtep = world
        .peer_of(inner.source)
        .map_or_else(|| random.pick(&world.others).address, |peer| peer.vtep);
    let tos = random.byte();
    let mut bytes = world
        .net
        .tunnel_of(vtep, world.net.our_vtep, tos, &inner.bytes());
    bytes[..6].fill(0);
    if random.percent(85) {
        let udp = world.net.at().udp;
        bytes[udp + 6..udp + 8].fill(0);
    }
    bytes
}

/// As the vxlan device sends it.
fn kernels_own(random: &mut Random, world: &World, inner: &Packet) -> Vec<u8> {
    let net = world.net;
    let peer = world
        .peer_of(inner.destination)
        .map_or_else(|| random.pick(&world.others).address, |peer| peer.vtep);
    let frame = inner.bytes();
    let tos = Layout::of(net).tos(&frame[ETHERNET..]) & 3;
    let tos = if random.percent(4) {
        random.byte()
    } else {
        [0, 1, 2, 2][usize::from(tos)]
    };
    net.tunnel_of(net.our_vtep, peer, tos, &frame)
}

/// Addresses of every kind there is.
fn somebody(random: &mut Random, world: &World) -> std::net::IpAddr {
    let net = world.net;
    let subnet = random.pick(&[OUR_SUBNET, 7, 8, 9, 11, UNLEASED, FORMER_SUBNET]);
    let mut all = vec![
        pod(net, subnet, 9),
        net.outside[0],
        net.outside[1],
        net.our_vtep,
    ];
    all.extend(
        world
            .peers
            .iter()
            .map(|peer| peer.vtep)
            .chain(world.others.iter().map(|other| other.address)),
    );
    random.pick(&all)
}
