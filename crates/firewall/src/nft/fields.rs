//! The fields of headers that a load of bytes covers. Pure.
//!
//! nf_tables loads bytes at an offset of a header; the rules in front of a load say which header
//! that is. Headers are those of [RFC 791](https://www.rfc-editor.org/rfc/rfc791) (IPv4), [RFC
//! 8200](https://www.rfc-editor.org/rfc/rfc8200) (IPv6), [RFC
//! 9293](https://www.rfc-editor.org/rfc/rfc9293) (TCP) and [RFC
//! 768](https://www.rfc-editor.org/rfc/rfc768) (UDP).

use super::keys;

/// Protocols of the network layer, by `EtherType`.
const ETHERTYPES: [(u64, Network); 3] = [
    (0x0800, Network::V4),
    (0x86dd, Network::V6),
    (0x0806, Network::Arp),
];
const VLAN: u64 = 0x8100;
/// The name of a load that is of no known field.
const RAW: &str = "raw payload";

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A field: its name, first bit and number of bits.
type Field = (&'static str, u32, u32);

const ETHER: [Field; 3] = [
    ("ether daddr", 0, 48),
    ("ether saddr", 48, 48),
    ("ether type", 96, 16),
];
const VLAN_FIELDS: [Field; 4] = [
    ("vlan pcp", 112, 3),
    ("vlan dei", 115, 1),
    ("vlan id", 116, 12),
    ("vlan type", 128, 16),
];
const IP: [Field; 12] = [
    ("ip version", 0, 4),
    ("ip hdrlength", 4, 4),
    ("ip dscp", 8, 6),
    ("ip ecn", 14, 2),
    ("ip length", 16, 16),
    ("ip id", 32, 16),
    ("ip frag-off", 48, 16),
    ("ip ttl", 64, 8),
    ("ip protocol", 72, 8),
    ("ip checksum", 80, 16),
    ("ip saddr", 96, 32),
    ("ip daddr", 128, 32),
];
const IP6: [Field; 9] = [
    ("ip6 version", 0, 4),
    ("ip6 dscp", 4, 6),
    ("ip6 ecn", 10, 2),
    ("ip6 flowlabel", 12, 20),
    ("ip6 length", 32, 16),
    ("ip6 nexthdr", 48, 8),
    ("ip6 hoplimit", 56, 8),
    ("ip6 saddr", 64, 128),
    ("ip6 daddr", 192, 128),
];
const TCP_FIELDS: [Field; 10] = [
    ("tcp sport", 0, 16),
    ("tcp dport", 16, 16),
    ("tcp sequence", 32, 32),
    ("tcp ackseq", 64, 32),
    ("tcp doff", 96, 4),
    ("tcp reserved", 100, 4),
    ("tcp flags", 104, 8),
    ("tcp window", 112, 16),
    ("tcp checksum", 128, 16),
    ("tcp urgptr", 144, 16),
];
const UDP_FIELDS: [Field; 4] = [
    ("udp sport", 0, 16),
    ("udp dport", 16, 16),
    ("udp length", 32, 16),
    ("udp checksum", 48, 16),
];
const PORTS: [Field; 2] = [("th sport", 0, 16), ("th dport", 16, 16)];

/// The headers of the packets that a rule is limited to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    network: Option<Network>,
    transport: Option<u8>,
    vlan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    V4,
    V6,
    Arp,
}

/// Bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// `NFT_PAYLOAD_*`.
    pub(super) base: u64,
    /// The first byte.
    pub(super) offset: u32,
    /// The number of bytes.
    pub(super) length: u32,
}

/// A field that a load covers, in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) name: String,
    /// The first bit of the field within the load, which may begin in the middle of a field.
    pub(super) first: u32,
    /// The number of its bits within the load.
    pub(super) bits: u32,
}

impl Headers {
    /// The headers of all packets that a table of this family sees.
    pub(super) fn of_family(family: u8) -> Self {
        let network = match family {
            keys::IPV4 => Some(Network::V4),
            keys::IPV6 => Some(Network::V6),
            keys::ARP => Some(Network::Arp),
            _ => None,
        };
        Self {
            network,
            ..Self::default()
        }
    }

    /// Notes that a field has a value in all packets that the next expressions see.
    pub(super) fn limit(&mut self, name: &str, value: u64) {
        match name {
            "meta nfproto" => {
                *self = Self {
                    network: Self::of_family(u8::try_from(value).unwrap_or(0)).network,
                    ..*self
                }
            }
            "meta protocol" | "ether type" | "vlan type" => {
                self.vlan |= value == VLAN;
                let known = ETHERTYPES.iter().find(|(number, _)| *number == value);
                self.network = known.map(|(_, network)| *network).or(self.network);
            }
            "meta l4proto" | "ip protocol" | "ip6 nexthdr" => {
                self.transport = u8::try_from(value).ok();
            }
            _ => {}
        }
    }

    /// Returns the fields of which a load covers bits that `looks_at` selects, by their place in
    /// the load.
    pub(super) fn fields(self, span: Span, looks_at: impl Fn(u32) -> bool) -> Vec<Covered> {
        let (first, bits) = (span.offset.saturating_mul(8), span.length.saturating_mul(8));
        let whole = |name: String| {
            vec![Covered {
                name,
                first: 0,
                bits,
            }]
        };
        let link;
        let table: &[Field] = match (span.base, self.network, self.transport) {
            (0, ..) => {
                link = self.link();
                &link
            }
            (1, Some(Network::V4), _) => &IP,
            (1, Some(Network::V6), _) => &IP6,
            (1, Some(Network::Arp), _) => return whole("arp field".to_owned()),
            (2, _, Some(TCP)) => &TCP_FIELDS,
            (2, _, Some(UDP)) => &UDP_FIELDS,
            (2, _, Some(protocol)) => match other_protocol(protocol) {
                Some(name) => return whole(format!("{name} field")),
                None => &PORTS,
            },
            (2, _, None) => &PORTS,
            _ => return whole(RAW.to_owned()),
        };
        covered(table, first, bits, looks_at).unwrap_or_else(|| whole(RAW.to_owned()))
    }

    /// The fields of the link layer.
    fn link(self) -> Vec<Field> {
        let mut table = ETHER.to_vec();
        if self.vlan {
            table.extend(VLAN_FIELDS);
        }
        table
    }
}

/// `None` if what is looked at is not whole fields. Only addresses may be cut off, by a prefix.
fn covered(
    table: &[Field],
    first: u32,
    bits: u32,
    looks_at: impl Fn(u32) -> bool,
) -> Option<Vec<Covered>> {
    let end = first.saturating_add(bits);
    let mut known = 0;
    let mut found = Vec::new();
    for (name, start, length) in table.iter().copied() {
        let (from, to) = (start.max(first), (start + length).min(end));
        if from >= to {
            continue;
        }
        known += to - from;
        let covered = Covered {
            name: name.to_owned(),
            first: from - first,
            bits: to - from,
        };
        if !(covered.first..covered.first + covered.bits).any(&looks_at) {
            continue;
        }
        let is_prefix = from == start && name.starts_with("ip") && name.ends_with("addr");
        if to - from < length && !is_prefix {
            return None;
        }
        found.push(covered);
    }
    (known == bits).then_some(found)
}

/// Protocols whose packets are never replayed, by the numbers of
/// <https://www.iana.org/assignments/protocol-numbers>.
const fn other_protocol(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "icmp",
        2 => "igmp",
        33 => "dccp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        108 => "comp",
        132 => "sctp",
        136 => "udplite",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(headers: Headers, base: u64, offset: u32, length: u32) -> Vec<String> {
        headers
            .fields(
                Span {
                    base,
                    offset,
                    length,
                },
                |_| true,
            )
            .into_iter()
            .map(|covered| covered.name)
            .collect()
    }

    #[test]
    fn fields_are_those_of_the_headers_that_are_known() {
        let inet = Headers::of_family(keys::INET);
        let ip = Headers::of_family(keys::IPV4);
        let mut tcp = ip;
        tcp.limit("meta l4proto", 6);
        let mut ipv6 = inet;
        ipv6.limit("meta nfproto", 10);
        for (headers, base, offset, length, expected) in [
            (inet, 1, 12, 4, vec!["raw payload"]),
            (ip, 1, 12, 4, vec!["ip saddr"]),
            (ip, 1, 12, 1, vec!["ip saddr"]),
            (ip, 1, 13, 1, vec!["raw payload"]),
            (ip, 1, 12, 8, vec!["ip saddr", "ip daddr"]),
            (ip, 1, 20, 4, vec!["raw payload"]),
            (ip, 1, 0, 1, vec!["ip version", "ip hdrlength"]),
            (ipv6, 1, 8, 16, vec!["ip6 saddr"]),
            (ip, 2, 0, 4, vec!["th sport", "th dport"]),
            (ip, 2, 4, 4, vec!["raw payload"]),
            (tcp, 2, 0, 4, vec!["tcp sport", "tcp dport"]),
            (tcp, 2, 13, 1, vec!["tcp flags"]),
            (tcp, 2, 20, 4, vec!["raw payload"]),
            (ip, 3, 0, 4, vec!["raw payload"]),
            (ip, 0, 6, 8, vec!["ether saddr", "ether type"]),
            (ip, 0, 0, 1, vec!["raw payload"]),
            (ip, 0, 14, 2, vec!["raw payload"]),
        ] {
            assert_eq!(
                names(headers, base, offset, length),
                expected,
                "{headers:?} {base} {offset} {length}"
            );
        }
    }

    #[test]
    fn a_mask_selects_fields_of_a_byte() {
        let span = Span {
            base: 1,
            offset: 1,
            length: 1,
        };
        let of = |mask: u8| {
            let found =
                Headers::of_family(keys::IPV4).fields(span, |bit| mask & (0x80 >> bit) != 0);
            found
                .into_iter()
                .map(|covered| covered.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(0xfc), of(0x03)),
            (vec!["ip dscp".to_owned()], vec!["ip ecn".to_owned()])
        );
        assert_eq!(of(0xff), ["ip dscp", "ip ecn"]);
    }

    #[test]
    fn protocols_that_are_never_replayed_have_one_field() {
        let mut headers = Headers::of_family(keys::INET);
        headers.limit("meta l4proto", 132);
        assert_eq!(names(headers, 2, 2, 2), ["sctp field"]);
        headers.limit("meta protocol", 0x0806);
        assert_eq!(names(headers, 1, 6, 2), ["arp field"]);
        headers.limit("ether type", 0x8100);
        assert_eq!(
            names(headers, 0, 14, 2),
            ["vlan pcp", "vlan dei", "vlan id"]
        );
    }
}
