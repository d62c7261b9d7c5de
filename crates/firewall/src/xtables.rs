//! Options of extensions of iptables and ebtables that nftables holds as the structures of the
//! kernel's `xt` modules. Pure.
//!
//! Only options that the catalogue asks for are read, in the words of `iptables-save`. The
//! structures are those of include/uapi/linux/netfilter of Linux 6.12:
//! <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter>. They have the byte
//! order of the machine, but for what says otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A structure of the kernel.
#[derive(Clone, Copy, Debug)]
struct Info<'a>(&'a [u8]);

impl Info<'_> {
    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn half(self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn word(self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

/// Words of a command line.
type Words = Vec<String>;

/// Returns the options of a match; `None` if this structure is not known.
pub(super) fn match_options(name: &str, revision: u64, info: &[u8]) -> Option<Words> {
    let info = Info(info);
    match (name, revision) {
        ("tcp", 0) => tcp(info),
        ("udp", 0) => udp(info),
        ("multiport", 1) => multiport(info),
        ("state", 0) => Some(states("--state", info.word(0)?, false)),
        ("conntrack", 1) => conntrack(info, info.byte(150)?.into()),
        ("conntrack", 2 | 3) => conntrack(info, info.half(150)?.into()),
        ("tos", 1) => Some(vec![
            "--tos".to_owned(),
            masked(info.byte(1)?, info.byte(0)?),
        ]),
        ("set", 0..=2) => Some(Words::new()),
        ("set", 3) => Some(set_counters(info.byte(8)?, info.byte(24)?)),
        ("set", 4) => Some(set_counters(info.byte(16)?, info.byte(32)?)),
        _ => None,
    }
}

/// The same of a target.
pub(super) fn target_options(name: &str, revision: u64, info: &[u8]) -> Option<Words> {
    let info = Info(info);
    match (name, revision) {
        ("SET", 0 | 1) => Some(set_target(info.half(0)?, NO_TIMEOUT)),
        ("SET", 2) => Some(set_target(info.half(0)?, info.word(12)?)),
        ("SET", 3) => Some(set_target(info.half(0)?, info.word(16)?)),
        ("TCPOPTSTRIP", 0) => Some(vec!["--strip-options".to_owned(), stripped(info)?]),
        ("TOS", 0 | 1) => Some(vec![
            "--set-tos".to_owned(),
            masked(info.byte(0)?, info.byte(1)?),
        ]),
        _ => None,
    }
}

/// Returns the destination that target `DNAT` translates to; `None` if it is a range, or has no
/// port.
pub(super) fn translation(revision: u64, info: &[u8]) -> Option<SocketAddr> {
    let info = Info(info);
    // struct nf_nat_ipv4_multi_range_compat, nf_nat_range and nf_nat_range2
    let (address, last_address, port) = match revision {
        0 => (info.0.get(8..12)?, info.0.get(12..16)?, 16),
        1 | 2 => (info.0.get(4..20)?, info.0.get(20..36)?, 36),
        _ => return None,
    };
    let ports = info.0.get(port..port + 4)?;
    if address != last_address || ports[..2] != ports[2..] || ports[..2] == [0, 0] {
        return None;
    }
    let address: IpAddr = match address.first_chunk::<16>() {
        // An IPv4 address is followed by zeros.
        Some(v6) if v6[4..] != [0; 12] => Ipv6Addr::from(*v6).into(),
        _ => Ipv4Addr::from(*address.first_chunk::<4>()?).into(),
    };
    Some(SocketAddr::new(
        address,
        u16::from_be_bytes(*ports.first_chunk()?),
    ))
}

/// The same of an extension of ebtables.
pub(super) fn bridge_options(name: &str, info: &[u8]) -> Option<Words> {
    /// `EBT_IP_TOS` and `EBT_IP6_TCLASS`.
    const CLASS: u8 = 0x04;
    let info = Info(info);
    let (bits, option) = match name {
        "ip" => (info.byte(18)?, "--ip-tos"),
        "ip6" => (info.byte(66)?, "--ip6-tclass"),
        _ => return None,
    };
    Some(if bits & CLASS == 0 {
        Words::new()
    } else {
        vec![option.to_owned()]
    })
}

/// `struct xt_tcp`.
fn tcp(info: Info<'_>) -> Option<Words> {
    const INVERTED: [u8; 4] = [0x01, 0x02, 0x04, 0x08];
    let flags = info.byte(11)?;
    let [source, destination, tests, option] = INVERTED.map(|bit| flags & bit != 0);
    let mut words = ports("--sport", [info.half(0)?, info.half(2)?], source);
    words.extend(ports(
        "--dport",
        [info.half(4)?, info.half(6)?],
        destination,
    ));
    let (mask, value) = (info.byte(9)?, info.byte(10)?);
    if mask != 0 || tests {
        words.extend(negation(tests));
        words.extend([
            "--tcp-flags".to_owned(),
            flag_names(mask),
            flag_names(value),
        ]);
    }
    if info.byte(8)? != 0 || option {
        words.extend(negation(option));
        words.extend(["--tcp-option".to_owned(), info.byte(8)?.to_string()]);
    }
    Some(words)
}

/// `struct xt_udp`.
fn udp(info: Info<'_>) -> Option<Words> {
    let flags = info.byte(8)?;
    let mut words = ports("--sport", [info.half(0)?, info.half(2)?], flags & 0x01 != 0);
    words.extend(ports(
        "--dport",
        [info.half(4)?, info.half(6)?],
        flags & 0x02 != 0,
    ));
    Some(words)
}

/// `struct xt_multiport_v1`. Ports of either direction limit nothing here.
fn multiport(info: Info<'_>) -> Option<Words> {
    let option = match info.byte(0)? {
        0 => "--sports",
        1 => "--dports",
        _ => return Some(Words::new()),
    };
    let count = usize::from(info.byte(1)?);
    let (mut list, mut place) = (Vec::new(), 0);
    while place < count {
        let first = info.half(2 + 2 * place)?;
        // A flag says that the next one is the end of a range.
        let is_range = info.byte(32 + place)? != 0;
        place += 1;
        if is_range {
            list.push(format!("{first}:{}", info.half(2 + 2 * place)?));
            place += 1;
        } else {
            list.push(first.to_string());
        }
    }
    let mut words = negation(info.byte(47)? != 0);
    words.extend([option.to_owned(), list.join(",")]);
    Some(words)
}

/// `struct xt_conntrack_mtinfo1` to `3`, which differ in the size of the states.
fn conntrack(info: Info<'_>, mask: u32) -> Option<Words> {
    const STATE: u16 = 1 << 0;
    const EXPIRES: u16 = 1 << 7;
    let (tests, inverted) = (info.half(146)?, info.half(148)?);
    let mut words = Words::new();
    if tests & STATE != 0 {
        words = states("--ctstate", mask, inverted & STATE != 0);
    }
    if tests & EXPIRES != 0 {
        words.extend([
            "--ctexpire".to_owned(),
            format!("{}:{}", info.word(128)?, info.word(132)?),
        ]);
    }
    Some(words)
}

/// `XT_CONNTRACK_STATE_*` and `XT_STATE_*`. The bits that are not named are neither of a new nor of
/// an invalid packet.
fn states(option: &str, mask: u32, inverted: bool) -> Words {
    const NAMES: [&str; 4] = ["INVALID", "ESTABLISHED", "RELATED", "NEW"];
    let mut names: Vec<&str> = NAMES
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| mask & (1 << bit) != 0)
        .map(|(_, name)| name)
        .collect();
    if mask >> NAMES.len() != 0 {
        names.push("OTHER");
    }
    let mut words = negation(inverted);
    words.extend([option.to_owned(), names.join(",")]);
    words
}

/// Nothing for all ports.
fn ports(option: &str, [first, last]: [u16; 2], inverted: bool) -> Words {
    if (first, last, inverted) == (0, u16::MAX, false) {
        return Words::new();
    }
    let mut words = negation(inverted);
    words.extend([option.to_owned(), format!("{first}:{last}")]);
    words
}

fn negation(inverted: bool) -> Words {
    if inverted {
        vec!["!".to_owned()]
    } else {
        Words::new()
    }
}

fn flag_names(flags: u8) -> String {
    const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let names: Vec<&str> = NAMES
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| flags & (1 << bit) != 0)
        .map(|(_, name)| name)
        .collect();
    if names.is_empty() {
        "NONE".to_owned()
    } else {
        names.join(",")
    }
}

fn masked(value: u8, mask: u8) -> String {
    format!("{value:#x}/{mask:#x}")
}

/// Comparisons of counters: `IPSET_COUNTER_NONE` is zero.
fn set_counters(packets: u8, bytes: u8) -> Words {
    if packets == 0 && bytes == 0 {
        Words::new()
    } else {
        vec!["--packets-eq".to_owned()]
    }
}

/// The timeout of a rule that leaves it to the set.
const NO_TIMEOUT: u32 = u32::MAX;

/// The set to which elements are added, by number, and their timeout in seconds.
fn set_target(add: u16, timeout: u32) -> Words {
    /// `IPSET_INVALID_ID`.
    const NONE: u16 = u16::MAX;
    let mut words = Words::new();
    if add != NONE {
        words.push("--add-set".to_owned());
    }
    if timeout != NO_TIMEOUT {
        words.extend(["--timeout".to_owned(), timeout.to_string()]);
    }
    words
}

/// `struct xt_tcpoptstrip_target_info`: a bitmap of options.
fn stripped(info: Info<'_>) -> Option<String> {
    let maps = (0..8)
        .map(|place| info.word(4 * place))
        .collect::<Option<Vec<u32>>>()?;
    let is_set = |option: &usize| maps[option / 32] & (1 << (option % 32)) != 0;
    let options: Vec<String> = (0..256)
        .filter(is_set)
        .map(|option| option.to_string())
        .collect();
    Some(options.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: Option<Words>) -> String {
        words.expect("a known structure").join(" ")
    }

    #[test]
    fn ports_and_flags_are_read() {
        let any = [0, 0, 0xff, 0xff];
        let port = u16::to_ne_bytes(8472);
        let udp = [&any[..], &port, &port, &[0x02, 0]].concat();
        assert_eq!(line(match_options("udp", 0, &udp)), "! --dport 8472:8472");
        let tcp = [&any[..], &any, &[0, 0x07, 0x02, 0x04]].concat();
        assert_eq!(
            line(match_options("tcp", 0, &tcp)),
            "! --tcp-flags FIN,SYN,RST SYN"
        );
        assert_eq!(match_options("tcp", 0, &tcp[..11]), None);
        assert_eq!(match_options("tcp", 1, &tcp), None);
    }

    #[test]
    fn lists_of_ports_are_read() {
        let mut info = vec![1, 3];
        info.extend([53_u16, 8000, 9000].into_iter().flat_map(u16::to_ne_bytes));
        info.resize(48, 0);
        info[33] = 1;
        assert_eq!(
            line(match_options("multiport", 1, &info)),
            "--dports 53,8000:9000"
        );
        info[47] = 1;
        assert_eq!(
            line(match_options("multiport", 1, &info)),
            "! --dports 53,8000:9000"
        );
    }

    #[test]
    fn states_are_read() {
        let mut info = vec![0; 160];
        info[146..148].copy_from_slice(&1_u16.to_ne_bytes());
        info[150..152].copy_from_slice(&0x09_u16.to_ne_bytes());
        assert_eq!(
            line(match_options("conntrack", 3, &info)),
            "--ctstate INVALID,NEW"
        );
        info[148..150].copy_from_slice(&1_u16.to_ne_bytes());
        info[150..152].copy_from_slice(&0x108_u16.to_ne_bytes());
        assert_eq!(
            line(match_options("conntrack", 3, &info)),
            "! --ctstate NEW,OTHER"
        );
    }

    #[test]
    fn options_of_targets_are_read() {
        assert_eq!(
            line(target_options("TOS", 0, &[0x10, 0xff])),
            "--set-tos 0x10/0xff"
        );
        let set = |add: u32, timeout| {
            [add, 0xffff, 0xffff, 1, timeout]
                .map(u32::to_ne_bytes)
                .concat()
        };
        assert_eq!(
            line(target_options("SET", 3, &set(7, 60))),
            "--add-set --timeout 60"
        );
        assert_eq!(line(target_options("SET", 3, &set(0xffff, NO_TIMEOUT))), "");
        assert_eq!(line(target_options("SET", 1, &set(7, 0))), "--add-set");
        let mut options = [0_u8; 32];
        options[..4].copy_from_slice(&0x104_u32.to_ne_bytes());
        assert_eq!(
            line(target_options("TCPOPTSTRIP", 0, &options)),
            "--strip-options 2,8"
        );
    }
}
