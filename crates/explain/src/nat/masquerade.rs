//! The rules of masquerade, followed for one packet: the chain `POSTROUTING` of iptables, and
//! flannel's table of nftables. Pure.
//!
//! The packet has no mark: marks for masquerade are set on packets that a Service's rules
//! translate, and kube-proxy sets none on pods' packets to other pods.

use std::net::IpAddr;

use flannel_firewall_tools::listed::{ListedChain, ListedTable};
use flannel_host::family::Family;
use ipnet::IpNet;

use super::chains::{NatChains, Words};

/// The answer to the question if a packet's source address is translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MasqueradeAnswer {
    /// It is, by this rule.
    Yes {
        /// Tool, chain and rule.
        rule: String,
    },
    /// No rule does that.
    No,
    /// A rule has a condition that is not understood here, or rules cannot be read.
    Unknown(String),
}

/// Calls of chains below each other. The kernel allows sixteen (`NFT_JUMP_STACK_SIZE` in
/// [include/net/netfilter/nf_tables.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/netfilter/nf_tables.h)).
const DEPTH: usize = 16;

/// The packet at the hook.
#[derive(Clone, Copy, Debug)]
struct Leaving<'a> {
    source: IpAddr,
    destination: IpAddr,
    device: Option<&'a str>,
}

/// The end of a chain for the packet.
enum Outcome {
    /// The end of its rules, or a return.
    Returned,
    /// A verdict that keeps the address.
    Accepted,
    Masqueraded(String),
    Unknown(String),
}

/// Follows the chain `POSTROUTING`.
pub(super) fn by_iptables(
    tool: &str,
    chains: &mut NatChains,
    source: IpAddr,
    destination: IpAddr,
    device: Option<&str>,
) -> MasqueradeAnswer {
    match chain(
        chains,
        "POSTROUTING",
        Leaving {
            source,
            destination,
            device,
        },
        DEPTH,
    ) {
        Outcome::Masqueraded(rule) => MasqueradeAnswer::Yes {
            rule: format!("{tool}, {rule}"),
        },
        Outcome::Unknown(rule) => MasqueradeAnswer::Unknown(format!("{tool}, {rule}")),
        Outcome::Returned | Outcome::Accepted => MasqueradeAnswer::No,
    }
}

fn chain(chains: &mut NatChains, name: &str, packet: Leaving<'_>, depth: usize) -> Outcome {
    for rule in &chains.rules(name) {
        let shown = || format!("chain {name}: {}", rule.join(" "));
        match matches(rule, packet) {
            Some(true) => {}
            None if translates(chains, rule, depth) => return Outcome::Unknown(shown()),
            Some(false) | None => continue,
        }
        match target(rule) {
            Some("MASQUERADE" | "SNAT") => return Outcome::Masqueraded(shown()),
            Some("ACCEPT") => return Outcome::Accepted,
            Some("RETURN") => return Outcome::Returned,
            Some(next) if depth > 0 => match chain(chains, next, packet, depth - 1) {
                Outcome::Returned => {}
                outcome => return outcome,
            },
            _ => {}
        }
    }
    Outcome::Returned
}

/// True if a rule decides about the address, itself or by the chain it calls.
fn translates(chains: &mut NatChains, rule: &Words, depth: usize) -> bool {
    match target(rule) {
        Some("MASQUERADE" | "SNAT" | "ACCEPT" | "RETURN") => true,
        Some(next) if depth > 0 => chains
            .rules(next)
            .iter()
            .any(|rule| translates(chains, rule, depth - 1)),
        _ => false,
    }
}

/// The chain or extension that a rule leads to.
fn target(rule: &Words) -> Option<&str> {
    let place = rule.iter().position(|word| word == "-j")?;
    rule.get(place + 1).map(String::as_str)
}

/// An address or a prefix.
fn net(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// True if the packet fits the rule; `None` if the rule has a condition that is not understood.
fn matches(rule: &Words, packet: Leaving<'_>) -> Option<bool> {
    let mut words = rule.iter().map(String::as_str);
    let (mut fits, mut negated) = (true, false);
    while let Some(word) = words.next() {
        let fitting = match word {
            "!" => {
                negated = true;
                continue;
            }
            "-s" => net(words.next()?)?.contains(&packet.source),
            "-d" => net(words.next()?)?.contains(&packet.destination),
            "-o" => is_device(words.next()?, packet.device?),
            // The mark is zero.
            "--mark" => {
                let (value, mask) = words.next()?.split_once('/')?;
                number(value)? == 0 || number(mask)? == 0
            }
            "-m" => match words.next()? {
                "comment" | "mark" => continue,
                _ => return (!fits).then_some(false),
            },
            "--comment" => {
                words.next()?;
                continue;
            }
            "-j" => return Some(fits),
            // One condition that does not fit is enough.
            _ => return (!fits).then_some(false),
        };
        fits &= fitting != negated;
        negated = false;
    }
    Some(fits)
}

/// `eth+` stands for all names that begin with `eth`.
fn is_device(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('+')
        .map_or(pattern == name, |start| name.starts_with(start))
}

fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |digits| u32::from_str_radix(digits, 16).ok(),
    )
}

/// Follows the chain of masquerade in flannel's table.
pub(super) fn by_nftables(
    listing: &str,
    family: Family,
    source: IpAddr,
    destination: IpAddr,
) -> MasqueradeAnswer {
    let table = ListedTable::parse(listing);
    let nat = |chain: &&ListedChain| chain.hook.contains("type nat hook postrouting");
    for rule in table
        .chains
        .values()
        .filter(nat)
        .flat_map(|chain| &chain.rules)
    {
        let shown = format!(
            "nftables, table {}: {rule}",
            flannel_traffic::nft_table(family)
        );
        match listed_rule(rule, source, destination) {
            None => return MasqueradeAnswer::Unknown(shown),
            Some((true, "masquerade")) => return MasqueradeAnswer::Yes { rule: shown },
            Some((true, _)) => return MasqueradeAnswer::No,
            Some((false, _)) => {}
        }
    }
    MasqueradeAnswer::No
}

/// True if the packet fits a rule of nft, and its verdict; `None` if it is not understood.
fn listed_rule(rule: &str, source: IpAddr, destination: IpAddr) -> Option<(bool, &str)> {
    let mut words = rule.split_whitespace().peekable();
    let mut fits = true;
    loop {
        match words.next()? {
            "ip" | "ip6" => {
                let address = match words.next()? {
                    "saddr" => source,
                    "daddr" => destination,
                    _ => return None,
                };
                let negated = words.next_if_eq(&"!=").is_some();
                fits &= net(words.next()?)?.contains(&address) != negated;
            }
            // The mark is zero, and the rule for marked packets is kube-proxy's.
            "meta" | "mark" => {
                while !matches!(*words.peek()?, "return" | "masquerade" | "accept") {
                    words.next();
                }
                fits = false;
            }
            verdict @ ("return" | "masquerade" | "accept") => return Some((fits, verdict)),
            _ => return None,
        }
    }
}
