//! The packets of a flow, each with its number. Pure.

use std::net::SocketAddr;

use super::{
    generate::{DSCPS, TTLS},
    random::Random,
    scenario::{Direction, Flow, Phases},
};
use crate::packet::{Packet, pattern};

/// The first bytes of every payload.
const MAGIC: [u8; 4] = *b"fdif";
/// Bytes of a label: magic, flow, direction, number.
pub const LABEL: usize = 4 + 2 + 1 + 4;

/// The identity of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The flow's number.
    pub flow: u16,
    /// From whom.
    pub direction: Direction,
    /// The number of the packet.
    pub number: u32,
}

impl Key {
    /// The first bytes of the payload.
    pub fn label(self) -> [u8; LABEL] {
        let mut bytes = [0; LABEL];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.flow.to_be_bytes());
        bytes[6] = u8::from(self.direction == Direction::Reply);
        bytes[7..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// The key a payload begins with.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let label: &[u8; LABEL] = payload.first_chunk()?;
        if label[..4] != MAGIC {
            return None;
        }
        let direction = if label[6] == 0 {
            Direction::Forward
        } else {
            Direction::Reply
        };
        let number = u32::from_be_bytes(*label[7..].first_chunk()?);
        Some(Self {
            flow: u16::from_be_bytes([label[4], label[5]]),
            direction,
            number,
        })
    }

    /// Returns a payload of `length` bytes, at least the label's.
    pub fn payload(self, length: usize) -> Vec<u8> {
        let mut bytes = pattern(length.max(LABEL));
        bytes[..LABEL].copy_from_slice(&self.label());
        bytes
    }
}

/// The fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// DSCP.
    pub dscp: u8,
    /// ECN.
    pub ecn: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Bytes of payload.
    pub length: usize,
    /// DF, in IPv4.
    pub df: bool,
    /// The flow label, in IPv6.
    pub label: u32,
    /// Sent in two fragments.
    pub fragmented: bool,
}

impl Fields {
    /// DSCP and ECN as they lie in the header.
    pub const fn tos(&self) -> u8 {
        self.dscp << 2 | self.ecn
    }
}

/// The fields of the packet with this number.
pub fn fields(flow: &Flow, direction: Direction, number: u32, phases: Phases) -> Fields {
    let mut base = Random::new(flow.seed);
    let fields = Fields {
        dscp: base.pick(&[0, 0, 0, 46]),
        ecn: 0,
        ttl: base.pick(&[64, 64, 128]),
        length: 20 + usize::try_from(base.below(150)).expect("small"),
        df: base.one_in(2),
        label: if base.one_in(2) {
            u32::try_from(base.below(1 << 20)).expect("20 bits")
        } else {
            0
        },
        fragmented: false,
    };
    if number < phases.warm_up {
        return fields;
    }
    let number = u64::from(number) << 1 | u64::from(direction == Direction::Reply);
    varied(
        flow,
        fields,
        &mut Random::new(flow.seed ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95)),
    )
}

/// Each field that varies has another value every second time.
fn varied(flow: &Flow, mut fields: Fields, random: &mut Random) -> Fields {
    let varying = &flow.varying;
    let mut changes = |varies: bool| random.one_in(2) && varies;
    let [dscp, ecn, ttl, length, label, fragments] = [
        varying.dscp,
        varying.ecn,
        varying.ttl,
        varying.length,
        varying.label,
        varying.fragments,
    ]
    .map(&mut changes);
    if dscp {
        fields.dscp = random.pick(&DSCPS);
    }
    if ecn {
        fields.ecn = random.pick(&[1, 2, 3]);
    }
    if ttl {
        fields.ttl = random.pick(&TTLS);
    }
    if length {
        fields.length = random.pick(&[LABEL, 64, 300, 1000, 1300]);
    }
    if label {
        fields.df = !fields.df;
        fields.label ^= 0x5_a5a5;
    }
    if fragments && random.one_in(2) {
        fields.fragmented = true;
        fields.df = false;
        fields.length = 900;
    }
    fields
}

/// The datagram as IP packets, as one pod sends them to an address.
///
/// # Panics
///
/// If the addresses are of two families.
pub fn datagrams(
    key: Key,
    fields: &Fields,
    source: SocketAddr,
    destination: SocketAddr,
) -> Vec<Packet> {
    let id = u16::try_from(key.number % 65_000).expect("16 bits") + 1;
    let &Fields { ttl, df, label, .. } = fields;
    let whole = Packet::datagram(source, destination, id, &key.payload(fields.length));
    let whole = Packet {
        class: fields.tos(),
        ttl,
        df,
        label,
        ..whole
    };
    if fields.fragmented {
        whole.fragments(CUT).into()
    } else {
        vec![whole]
    }
}

/// Bytes of the first fragment's payload.
const CUT: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate::scenario;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let key = Key {
            flow: 0x1234,
            direction: Direction::Reply,
            number: 77,
        };
        assert_eq!(Key::read(&key.payload(100)), Some(key));
        assert_eq!(Key::read(&[0; 40]), None);
        assert_eq!(Key::read(&key.label()[..5]), None);
    }

    #[test]
    fn nothing_varies_before_its_time_and_only_what_is_to() {
        for seed in 0..100 {
            let scenario = scenario(seed);
            for flow in &scenario.flows {
                let of = |number| fields(flow, Direction::Forward, number, scenario.phases);
                let (first, end) = (of(0), scenario.phases.warm_up);
                assert!((0..end).all(|number| of(number) == first));
                let later: Vec<_> = (end..end + 100).map(of).collect();
                let differs = |field: fn(&Fields) -> usize| {
                    later.iter().any(|other| field(other) != field(&first))
                };
                assert_eq!(
                    differs(|fields| usize::from(fields.dscp)),
                    flow.varying.dscp,
                    "{flow}"
                );
                assert_eq!(
                    differs(|fields| usize::from(fields.ttl)),
                    flow.varying.ttl,
                    "{flow}"
                );
                assert_eq!(
                    differs(|fields| usize::from(fields.ecn)),
                    flow.varying.ecn,
                    "{flow}"
                );
            }
        }
    }

    #[test]
    fn fragments_make_the_datagram() {
        let fields = Fields {
            dscp: 46,
            ecn: 1,
            ttl: 40,
            length: 900,
            df: false,
            label: 0,
            fragmented: true,
        };
        let key = Key {
            flow: 1,
            direction: Direction::Forward,
            number: 5,
        };
        for (from, to) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let (from, to) = (
                from.parse().expect("an address"),
                to.parse().expect("an address"),
            );
            let halves = datagrams(key, &fields, from, to);
            let parts: Vec<u8> = halves.into_iter().flat_map(|half| half.payload).collect();
            assert_eq!(Key::read(&parts[8..]), Some(key));
            let whole = datagrams(
                key,
                &Fields {
                    fragmented: false,
                    ..fields
                },
                from,
                to,
            )
            .remove(0);
            assert_eq!(parts, whole.payload);
        }
    }
}
