//! Mutations that damage a packet.

use super::{Case, somebody};
use crate::oracle::{
    parse::{ETHERNET, Layout},
    random::Random,
    sums::checksum,
    world::{World, octets},
};

type Mutation = fn(&mut Random, Target<'_>) -> String;

/// The packet that a mutation changes.
struct Target<'a> {
    world: &'a World,
    bytes: &'a mut Vec<u8>,
    at: At,
}

/// The IP header under attack: its offset and layout. If the packet is tunnelled, there is an outer
/// header as well.
#[derive(Clone, Copy)]
struct At {
    ip: usize,
    layout: Layout,
    is_tunnelled: bool,
}

impl At {
    const fn transport(self) -> usize {
        self.ip + self.layout.header
    }
}

const MUTATIONS: [Mutation; 21] = [
    flip_anywhere,
    flip_in_headers,
    byte_in_headers,
    cut,
    lengthen,
    noise,
    other_ethertype,
    vlan_tag,
    version_and_header_length,
    ip_length,
    fragment,
    options,
    protocol,
    ttl,
    tos,
    spoofed_source,
    spoofed_destination,
    ports,
    transport_length,
    tcp_flags,
    vxlan,
];

/// The most behind an IP header that a mutation touches: UDP, VXLAN and a frame's addresses.
const TALLEST: usize = 8 + 8 + 12;

/// Changes one thing.
pub(super) fn mutate(random: &mut Random, world: &World, is_tunnelled: bool, case: &mut Case) {
    if random.percent(4) {
        case.gso = u32::from(random.word() % 1500);
        case.story.push(format!("segments of {}", case.gso));
        return;
    }
    let layout = Layout::of(world.net);
    let is_inner = is_tunnelled && random.percent(50);
    let ip = if is_inner {
        world.net.at().inner_ip
    } else {
        ETHERNET
    };
    let at = At {
        ip,
        layout,
        is_tunnelled,
    };
    let mutation = random.pick(&MUTATIONS);
    // What a mutation before this one cut off cannot be changed.
    if case.bytes.len() >= at.transport() + TALLEST {
        let description = mutation(
            random,
            Target {
                world,
                bytes: &mut case.bytes,
                at,
            },
        );
        case.story.push(if is_inner {
            format!("inner {description}")
        } else {
            description
        });
        // With a wrong checksum no other field of the header would count.
        if random.percent(90) {
            seal(&mut case.bytes, at);
        }
    }
}

/// Makes the checksum of an IPv4 header without options right.
fn seal(bytes: &mut [u8], At { ip, layout, .. }: At) {
    let Some(header) = bytes
        .get_mut(ip..ip + layout.header)
        .filter(|header| header[0] == 0x45)
    else {
        return;
    };
    set_word(header, 10, 0);
    let right = checksum(header);
    set_word(header, 10, right);
}

fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn flip(random: &mut Random, bytes: &mut [u8], within: usize) -> String {
    let (at, bit) = (random.below(within.min(bytes.len())), random.below(8));
    bytes[at] ^= 1 << bit;
    format!("bit {bit} of byte {at} flipped")
}

fn flip_anywhere(random: &mut Random, Target { bytes, .. }: Target<'_>) -> String {
    let len = bytes.len();
    flip(random, bytes, len)
}

fn flip_in_headers(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    flip(random, bytes, at.transport() + 40)
}

fn byte_in_headers(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let (place, value) = (
        random.below((at.transport() + 40).min(bytes.len())),
        random.byte(),
    );
    bytes[place] = value;
    format!("byte {place} is {value:#x}")
}

fn cut(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let within = if random.percent(50) {
        bytes.len()
    } else {
        (at.transport() + 40).min(bytes.len())
    };
    bytes.truncate(ETHERNET + random.below(within - ETHERNET));
    format!("cut to {} bytes", bytes.len())
}

fn lengthen(random: &mut Random, Target { bytes, .. }: Target<'_>) -> String {
    let more = 1 + random.below(60);
    bytes.extend(random.bytes(more));
    format!("{more} bytes behind its end")
}

/// Replaces the packet by random bytes; at most the EtherType makes sense.
fn noise(random: &mut Random, Target { world, bytes, .. }: Target<'_>) -> String {
    let from = random.below(2) * ETHERNET;
    let len = bytes.len();
    bytes.truncate(from);
    bytes.extend(random.bytes(len - from));
    if random.percent(90) {
        set_word(bytes, 12, world.net.ethertype);
    }
    "noise".to_owned()
}

fn other_ethertype(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let value = random.pick(&[0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847, 0x0100]);
    set_word(bytes, at.ip - 2, value);
    format!("EtherType {value:#06x}")
}

fn vlan_tag(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let tag = random.pick(&[[0x81, 0x00], [0x88, 0xa8]]);
    bytes.splice(at.ip - 2..at.ip - 2, [tag[0], tag[1], 0, 5]);
    "a VLAN tag".to_owned()
}

fn version_and_header_length(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    bytes[at.ip] = random.pick(&[0x45, 0x46, 0x4f, 0x44, 0x40, 0x65, 0x60, 0x55, 0x05]);
    format!("version and header length {:#x}", bytes[at.ip])
}

fn ip_length(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let place = at.ip + if at.layout.is_v6 { 4 } else { 2 };
    let right = u16::from_be_bytes([bytes[place], bytes[place + 1]]);
    let wrong = [
        right.wrapping_add(1),
        right.wrapping_sub(1),
        0,
        19,
        20,
        28,
        0xffff,
        random.word(),
    ];
    set_word(bytes, place, random.pick(&wrong));
    "another IP length".to_owned()
}

/// IPv4: the fragment word. IPv6: the fragment header, in front of what was there.
fn fragment(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let word = random.pick(&[0x2000_u16, 0x2010, 0x0010, 0x4000, 0x8000, 0xe000, 0x1fff]);
    if !at.layout.is_v6 {
        set_word(bytes, at.ip + 6, word);
        return format!("fragment word {word:#06x}");
    }
    let next = std::mem::replace(&mut bytes[at.ip + 6], 44);
    let offset = random.pick(&[0_u8, 1, 6, 8, 9, 0xff]);
    bytes.splice(
        at.transport()..at.transport(),
        [next, 0, 0, offset, 0, 0, 0, 9],
    );
    let length = u16::from_be_bytes([bytes[at.ip + 4], bytes[at.ip + 5]]).wrapping_add(8);
    set_word(bytes, at.ip + 4, length);
    format!("a fragment header with offset {offset}")
}

/// Options, or extension headers: behind the addresses.
fn options(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let words = 1 + random.below(2);
    if !at.layout.is_v6 {
        bytes[at.ip] = bytes[at.ip].wrapping_add(u8::try_from(words).expect("small"));
        bytes.splice(at.transport()..at.transport(), vec![1; words * 4]);
        return format!("{words} words of options");
    }
    let count = 1 + random.below(7);
    for _ in 0..count {
        let kind = random.pick(&[0, 43, 60, 60]);
        let next = std::mem::replace(&mut bytes[at.ip + 6], kind);
        let header = [
            vec![next, u8::try_from(words - 1).expect("small")],
            vec![0; words * 8 - 2],
        ]
        .concat();
        bytes.splice(at.transport()..at.transport(), header);
    }
    format!("{count} extension headers")
}

fn protocol(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let values = [0, 1, 6, 17, 43, 44, 50, 58, 60, 132, random.byte()];
    let value = random.pick(&values);
    bytes[at.ip + at.layout.protocol] = value;
    format!("protocol {value}")
}

fn ttl(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let value = random.pick(&[0, 1, 2, 63, 64, 255]);
    bytes[at.ip + at.layout.ttl] = value;
    format!("TTL {value}")
}

/// DSCP and every combination of ECN.
fn tos(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    let value = random.byte();
    if at.layout.is_v6 {
        bytes[at.ip] = bytes[at.ip] & 0xf0 | value >> 4;
        bytes[at.ip + 1] = bytes[at.ip + 1] & 0x0f | value << 4;
    } else {
        bytes[at.ip + 1] = value;
    }
    format!("TOS {value:#x}")
}

fn spoofed(random: &mut Random, world: &World, bytes: &mut [u8], place: usize) -> String {
    let who = somebody(random, world);
    let who = octets(who);
    bytes[place..place + who.len()].copy_from_slice(&who);
    format!("address {who:?}")
}

fn spoofed_source(random: &mut Random, Target { world, bytes, at }: Target<'_>) -> String {
    format!(
        "source {}",
        spoofed(random, world, bytes, at.ip + at.layout.addresses)
    )
}

fn spoofed_destination(random: &mut Random, Target { world, bytes, at }: Target<'_>) -> String {
    format!(
        "destination {}",
        spoofed(
            random,
            world,
            bytes,
            at.ip + at.layout.addresses + at.layout.address
        )
    )
}

fn ports(random: &mut Random, Target { world, bytes, at }: Target<'_>) -> String {
    let (which, value) = (
        random.below(2) * 2,
        random.pick(&[0, 53, 80, 8080, 8472, world.helper_port]),
    );
    set_word(bytes, at.transport() + which, value);
    format!("port {value} at {which}")
}

/// UDP's length, or TCP's data offset.
fn transport_length(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    if bytes[at.ip + at.layout.protocol] == 17 {
        let values = [0, 7, 8, 9, 0xffff, random.word()];
        let value = random.pick(&values);
        set_word(bytes, at.transport() + 4, value);
        format!("UDP length {value}")
    } else {
        bytes[at.transport() + 12] = random.byte();
        format!("data offset {:#x}", bytes[at.transport() + 12])
    }
}

fn tcp_flags(random: &mut Random, Target { bytes, at, .. }: Target<'_>) -> String {
    bytes[at.transport() + 13] = random.byte();
    format!("flags {:#x}", bytes[at.transport() + 13])
}

/// Flags, reserved bits, VNI, inner addresses; or a tunnel in the tunnel.
fn vxlan(random: &mut Random, Target { world, bytes, at }: Target<'_>) -> String {
    if !at.is_tunnelled || random.percent(20) {
        let net = world.net;
        let frame = std::mem::take(bytes);
        *bytes = net.tunnel_of(somebody(random, world), somebody(random, world), 0, &frame);
        return "in a tunnel once more".to_owned();
    }
    let vxlan = world.net.at().vxlan;
    let place = vxlan + random.below(8 + 12);
    let value = random.pick(&[0, 1, 2, 0x08, 0x88, 0xff]);
    bytes[place] = value;
    format!("byte {} of VXLAN is {value:#x}", place - vxlan)
}
