//! Elements whose options decide.

use super::{
    entry::Finding,
    facts::{ElementFacts, FlagTest},
};

/// FIN, SYN and RST: packets with one of them always take the kernel's path.
pub(crate) const CONTROL: u8 = 0x07;
/// The ECN bits of a traffic class; the others are the DSCP, which is part of a flow.
const ECN: u64 = 0x03;
/// `IP_DF` and the reserved bit; the others of the field make a packet a fragment.
pub(crate) const NOT_FRAGMENT: u64 = 0xc000;
/// Options of TCP that stand in SYN packets only: MSS, window scale, SACK permitted.
const SYN_OPTIONS: [&str; 6] = ["2", "3", "4", "mss", "wscale", "sack-permitted"];

/// The flags of TCP, by the names both tools use, lowest bit first.
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// The bit of a flag; `ecn` is nft's name for ECE.
fn flag(name: &str) -> Option<u8> {
    let name = if name == "ecn" { "ece" } else { name };
    FLAGS
        .iter()
        .position(|flag| flag.eq_ignore_ascii_case(name))
        .map(|bit| 1 << bit)
}

/// Flags as iptables prints them: a list, `ALL` or `NONE`.
fn flags(list: &str) -> Option<u8> {
    match list {
        "NONE" => Some(0),
        "ALL" => Some(0x3f),
        list => list
            .split(',')
            .try_fold(0, |all, name| Some(all | flag(name)?)),
    }
}

pub(super) fn tcp_flags(facts: &ElementFacts<'_>) -> Finding {
    match facts {
        ElementFacts::Flags(test) => test.finding(),
        _ => Finding::PerPacket,
    }
}

impl FlagTest {
    /// Replayed packets have none of the control flags, which settles some tests for all of them.
    fn finding(self) -> Finding {
        let settled = |negated: bool| {
            if negated {
                Finding::Exact
            } else {
                Finding::KernelPath
            }
        };
        match self {
            Self::Equal { value, negated, .. } if value & CONTROL != 0 => settled(negated),
            Self::Equal { mask, .. } if mask & !CONTROL == 0 => Finding::Exact,
            Self::Any { mask, negated } if mask & !CONTROL == 0 => settled(negated),
            _ => Finding::PerPacketIn("tcp flags"),
        }
    }
}

/// `-m tcp`.
pub(super) fn tcp(facts: &ElementFacts<'_>) -> Finding {
    let tests = arguments(facts, "--tcp-flags", 2).map(|(words, negated)| match words {
        [mask, value] => match (flags(mask), flags(value)) {
            (Some(mask), Some(value)) => FlagTest::Equal {
                mask,
                value,
                negated,
            }
            .finding(),
            _ => FlagTest::Other.finding(),
        },
        _ => FlagTest::Other.finding(),
    });
    let options = arguments(facts, "--tcp-option", 1).map(|(words, _)| match words {
        [number] if SYN_OPTIONS.contains(number) => Finding::Exact,
        _ => Finding::PerPacketIn("tcp option"),
    });
    strongest(tests.chain(options))
}

/// `-m conntrack` and `-m state`.
pub(super) fn conntrack(facts: &ElementFacts<'_>) -> Finding {
    let expiry = arguments(facts, "--ctexpire", 1).map(|_| Finding::PerPacketIn("ct expiration"));
    let states = arguments(facts, "--ctstate", 1).chain(arguments(facts, "--state", 1));
    let limits = states.map(|(words, negated)| {
        let list: Vec<&str> = words.iter().flat_map(|word| word.split(',')).collect();
        states_finding(&list, negated)
    });
    strongest(expiry.chain(limits))
}

/// `ct state` of nft.
pub(super) fn ct_state(facts: &ElementFacts<'_>) -> Finding {
    if let ElementFacts::States(states) = facts {
        states_finding(states, false)
    } else {
        Finding::Exact
    }
}

/// Packets that conntrack calls invalid teach nothing, and none of a known flow is replayed: it has
/// the flags of a connection and a right checksum, and conntrack does not check the connection's
/// windows. kube-proxy counts and drops invalid packets.
fn states_finding(states: &[&str], negated: bool) -> Finding {
    let are_among = |names: &[&str]| {
        let is_one = |state: &&str| names.iter().any(|name| state.eq_ignore_ascii_case(name));
        !negated && !states.is_empty() && states.iter().all(is_one)
    };
    match (are_among(&["invalid"]), are_among(&["new", "invalid"])) {
        (true, _) => Finding::KernelPath,
        (_, true) => Finding::NewConnections,
        _ => Finding::Exact,
    }
}

/// `-m set`: membership is the flow's, counters of members are not.
pub(super) fn ipset(facts: &ElementFacts<'_>) -> Finding {
    let counts = |word: &&str| word.starts_with("--packets-") || word.starts_with("--bytes-");
    if words(facts).iter().any(counts) {
        Finding::PerPacketIn("set counters")
    } else {
        Finding::Exact
    }
}

/// `-j SET`: the set's own timeout is not known here.
pub(super) fn ipset_target(facts: &ElementFacts<'_>) -> Finding {
    let adds = words(facts).contains(&"--add-set");
    let is_permanent = arguments(facts, "--timeout", 1).any(|(words, _)| words == ["0"]);
    if adds && !is_permanent {
        Finding::PerPacket
    } else {
        Finding::Exact
    }
}

/// `add @set` and `update @set` of nft. An element with a timeout lives from a packet that the
/// kernel sees to some time after another one; in between are packets that it does not see.
pub(super) fn timed(facts: &ElementFacts<'_>) -> Finding {
    if matches!(facts, ElementFacts::Timeout(Some(_))) {
        Finding::PerPacket
    } else {
        Finding::Exact
    }
}

/// `-m tos`: a value with a mask, which is all bits unless given.
pub(super) fn tos(facts: &ElementFacts<'_>) -> Finding {
    let ecn = arguments(facts, "--tos", 1)
        .any(|(words, _)| masked(words).is_none_or(|(_, mask)| mask & ECN != 0));
    if ecn {
        Finding::PerPacket
    } else {
        Finding::Exact
    }
}

/// `-j TOS`: bits of the mask are cleared, those of the value toggled.
pub(super) fn tos_target(facts: &ElementFacts<'_>) -> Finding {
    let mut set = arguments(facts, "--set-tos", 1);
    let spares_ecn = |(words, _): (&[&str], bool)| {
        masked(words).is_some_and(|(value, mask)| (value | mask) & ECN == 0)
    };
    if set.any(spares_ecn) {
        Finding::Exact
    } else {
        Finding::PerPacket
    }
}

/// `-j TCPOPTSTRIP`.
pub(super) fn option_strip(facts: &ElementFacts<'_>) -> Finding {
    let of_syn = |(words, _): (&[&str], bool)| {
        words
            .first()
            .is_some_and(|list| list.split(',').all(|option| SYN_OPTIONS.contains(&option)))
    };
    if arguments(facts, "--strip-options", 1).any(of_syn) {
        Finding::Exact
    } else {
        Finding::PerPacket
    }
}

/// `ip frag-off` of nft.
pub(super) fn fragment_offset(facts: &ElementFacts<'_>) -> Finding {
    match facts {
        ElementFacts::Mask(mask) if mask & NOT_FRAGMENT == 0 => Finding::Exact,
        _ => Finding::PerPacket,
    }
}

/// `ip` and `ip6` of ebtables: the traffic class as a whole has the ECN bits.
pub(super) fn bridge_ip(facts: &ElementFacts<'_>) -> Finding {
    let looks = |word: &&str| ["--ip-tos", "--ip6-tclass"].contains(word);
    if words(facts).iter().any(looks) {
        Finding::PerPacketIn("traffic class")
    } else {
        Finding::Exact
    }
}

fn words<'a>(facts: &ElementFacts<'a>) -> &'a [&'a str] {
    if let ElementFacts::Words(words) = facts {
        words
    } else {
        &[]
    }
}

/// The words after each occurrence of an option, and whether `!` stands before it.
fn arguments<'a>(
    facts: &ElementFacts<'a>,
    option: &'a str,
    count: usize,
) -> impl Iterator<Item = (&'a [&'a str], bool)> + use<'a> {
    let words = words(facts);
    let places = words
        .iter()
        .enumerate()
        .filter(move |(_, word)| **word == option)
        .map(|(place, _)| place);
    places.map(move |place| {
        let end = words.len().min(place + 1 + count);
        (
            &words[place + 1..end],
            place
                .checked_sub(1)
                .is_some_and(|before| words[before] == "!"),
        )
    })
}

/// `0x10/0xfc`.
fn masked(words: &[&str]) -> Option<(u64, u64)> {
    let (value, mask) = words.first()?.split_once('/')?;
    Some((number(value)?, number(mask)?))
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |digits| u64::from_str_radix(digits, 16).ok(),
    )
}

/// All conditions of one match have to hold, so one that spares replayed packets spares them all.
/// New connections do not count as such: of UDP they are replayed.
fn strongest(findings: impl Iterator<Item = Finding>) -> Finding {
    let rank = |finding: &Finding| match finding {
        Finding::Exact => 0,
        Finding::NewConnections => 1,
        Finding::PerPacket | Finding::PerPacketIn(_) => 2,
        Finding::KernelPath => 3,
    };
    findings.max_by_key(rank).unwrap_or(Finding::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(condition: fn(&ElementFacts<'_>) -> Finding, line: &str) -> Finding {
        let words: Vec<&str> = line.split(' ').collect();
        condition(&ElementFacts::Words(&words))
    }

    #[test]
    fn flags_are_exact_where_replayed_packets_cannot_differ_in_the_test() {
        let flags = Finding::PerPacketIn("tcp flags");
        for (line, finding) in [
            ("--tcp-flags FIN,SYN,RST,ACK SYN", Finding::KernelPath),
            ("! --tcp-flags FIN,SYN,RST,ACK SYN", Finding::Exact),
            ("--tcp-flags FIN,SYN,RST NONE", Finding::Exact),
            ("--tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE", flags),
            ("--tcp-flags ALL FIN,PSH,URG", Finding::KernelPath),
            ("--tcp-flags SYN,ACK ACK", flags),
            ("--tcp-flags FIN,BOGUS FIN", flags),
            ("--tcp-flags FIN", flags),
            ("--dport 80", Finding::Exact),
            ("--tcp-option 2", Finding::Exact),
            ("! --tcp-option 5", Finding::PerPacketIn("tcp option")),
            (
                "--tcp-flags FIN,SYN,RST,ACK SYN --tcp-option 5",
                Finding::KernelPath,
            ),
        ] {
            assert_eq!(of(tcp, line), finding, "{line}");
        }
    }

    #[test]
    fn states_of_replayed_packets_limit_nothing() {
        for (line, finding) in [
            ("--ctstate NEW", Finding::NewConnections),
            ("! --ctstate NEW", Finding::Exact),
            ("--ctstate NEW,RELATED", Finding::Exact),
            ("--ctstate INVALID", Finding::KernelPath),
            ("! --ctstate INVALID", Finding::Exact),
            ("--ctstate INVALID,NEW", Finding::NewConnections),
            ("--ctstate INVALID,RELATED", Finding::Exact),
            ("--ctexpire 1:5", Finding::PerPacketIn("ct expiration")),
        ] {
            assert_eq!(of(conntrack, line), finding, "{line}");
        }
        assert_eq!(of(conntrack, "--state NEW"), Finding::NewConnections);
    }

    #[test]
    fn classes_are_exact_without_the_ecn_bits() {
        assert_eq!(of(tos, "--tos 0x10/0xfc"), Finding::Exact);
        assert_eq!(of(tos, "--tos 0x10/0xff"), Finding::PerPacket);
        assert_eq!(of(tos, "--tos 0x10"), Finding::PerPacket);
        assert_eq!(of(tos_target, "--set-tos 0x10/0xfc"), Finding::Exact);
        assert_eq!(of(tos_target, "--set-tos 0x11/0xfc"), Finding::PerPacket);
        assert_eq!(of(tos_target, "--and-tos 0xfc"), Finding::PerPacket);
        assert_eq!(of(bridge_ip, "--ip-proto udp"), Finding::Exact);
        assert_eq!(
            of(bridge_ip, "--ip-tos 0x10"),
            Finding::PerPacketIn("traffic class")
        );
    }

    #[test]
    fn elements_of_sets_are_exact_if_they_stay() {
        assert_eq!(of(ipset_target, "--add-set s src"), Finding::PerPacket);
        assert_eq!(
            of(ipset_target, "--add-set s src --exist --timeout 60"),
            Finding::PerPacket
        );
        assert_eq!(
            of(ipset_target, "--add-set s src --timeout 0"),
            Finding::Exact
        );
        assert_eq!(of(ipset_target, "--del-set s src"), Finding::Exact);
        assert_eq!(
            timed(&ElementFacts::Timeout(Some(3600))),
            Finding::PerPacket
        );
        assert_eq!(timed(&ElementFacts::Timeout(None)), Finding::Exact);
        assert_eq!(
            of(ipset, "--match-set s src ! --packets-lt 5"),
            Finding::PerPacketIn("set counters")
        );
        assert_eq!(of(ipset, "--match-set s src"), Finding::Exact);
    }

    #[test]
    fn options_of_syn_packets_are_exact() {
        assert_eq!(
            of(option_strip, "--strip-options mss,wscale"),
            Finding::Exact
        );
        assert_eq!(
            of(option_strip, "--strip-options timestamp,mss"),
            Finding::PerPacket
        );
        assert_eq!(fragment_offset(&ElementFacts::Mask(0x1fff)), Finding::Exact);
        assert_eq!(
            fragment_offset(&ElementFacts::Mask(0x4000)),
            Finding::PerPacket
        );
        assert_eq!(fragment_offset(&ElementFacts::None), Finding::PerPacket);
    }
}
