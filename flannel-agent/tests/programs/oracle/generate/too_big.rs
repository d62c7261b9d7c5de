//! A router's report that one of our packets was too big ([RFC 4443, section
//! 3.2](https://www.rfc-editor.org/rfc/rfc4443#section-3.2)).

use super::somebody;
use crate::oracle::{
    random::Random,
    world::{World, octets},
};

const ICMPV6: u8 = 58;
/// Packet Too Big, mostly; or another.
const TYPES: [u8; 5] = [2, 2, 2, 1, 128];

/// Returns a report on a tunnel packet of this node, or of another sender.
pub(super) fn report(random: &mut Random, world: &World) -> Vec<u8> {
    let net = world.net;
    let peer = random.pick(&world.peers).vtep;
    let (from, to) = if random.percent(90) {
        (net.our_vtep, peer)
    } else {
        (somebody(random, world), net.our_vtep)
    };
    let quoted = net.tunnel_of(from, to, 0, &net.inner_to_peer(40))[14..].to_vec();
    let length = u16::try_from(8 + quoted.len())
        .expect("short")
        .to_be_bytes();
    let start = [0x60, 0, 0, 0, length[0], length[1], ICMPV6, 64];
    let icmp = [random.pick(&TYPES), 0, 0, 0, 0, 0, 5, 0];
    let addresses = [octets(somebody(random, world)), octets(net.our_vtep)].concat();
    let ethernet = [
        &[0; 6][..],
        &[2, 9, 9, 9, 9, 9],
        &net.ethertype.to_be_bytes(),
    ]
    .concat();
    [&ethernet[..], &start, &addresses, &icmp, &quoted].concat()
}
