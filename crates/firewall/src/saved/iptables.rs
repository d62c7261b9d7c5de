//! The lines of `iptables-save` and `ip6tables-save`. Pure.

use super::{
    super::{
        catalogue::{Element, ElementFacts, ElementKind},
        model::{ChainHook, HostRule, Packets, Ports},
    },
    built_in::built_in,
};

/// Options whose argument is free text, which may read like an option.
const TEXTS: [&str; 8] = [
    "--comment",
    "--hex-string",
    "--log-prefix",
    "--name",
    "--nflog-prefix",
    "--prefix",
    "--string",
    "--ulog-prefix",
];

/// `FORWARD DROP [0:0]`; a chain that others call has no policy.
pub(super) fn hook(table: &str, name: &str, rest: &str) -> Option<ChainHook> {
    let policy = rest.split_ascii_whitespace().next().unwrap_or("-");
    (policy != "-").then(|| built_in(name, table.ends_with(" nat"), policy == "DROP"))
}

pub(super) fn rule(table: &str, chain: &str, words: &[&str]) -> HostRule {
    let mut rule = HostRule::new(table, chain);
    let mut sections = sections(words).into_iter();
    let base = sections.next().unwrap_or_default();
    rule.add_base(base);
    rule.is_for_all = base.is_empty();
    for section in sections {
        rule.is_for_all &= matches!(section, ["-j" | "-g", ..] | ["-m", "comment", ..]);
        add_section(&mut rule, section);
    }
    rule
}

/// The options in front of all extensions, and then those of each extension with its name.
fn sections<'w, 'a>(words: &'w [&'a str]) -> Vec<&'w [&'a str]> {
    let mut starts = vec![0];
    for place in 0..words.len() {
        let is_text = place > 0 && TEXTS.contains(&words[place - 1]);
        if ["-m", "-j", "-g"].contains(&words[place]) && !is_text {
            starts.push(place);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([words.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &words[*start..end])
        .collect()
}

impl HostRule {
    /// `-p udp`, `-f` and the like.
    fn add_base(&mut self, words: &[&str]) {
        for (place, word) in words.iter().enumerate() {
            let negated = place
                .checked_sub(1)
                .is_some_and(|before| words[before] == "!");
            match (*word, words.get(place + 1)) {
                ("-p", Some(protocol)) => self.limit_to(protocols(protocol, negated)),
                ("-f", _) if !negated => self.limit_to(Packets::KernelPath),
                _ => {}
            }
        }
    }

    fn add_ports(&mut self, options: &[&str]) {
        for (place, option) in options.iter().enumerate() {
            let negated = place
                .checked_sub(1)
                .is_some_and(|before| options[before] == "!");
            let Some(list) = options.get(place + 1) else {
                continue;
            };
            let ports = || Ports {
                ranges: list.split(',').filter_map(range).collect(),
                negated,
            };
            match *option {
                "--dport" | "--dports" => self.limit_to(Packets::Ports(ports())),
                "--sport" | "--sports" => self.limit_to(Packets::SourcePorts(ports())),
                _ => {}
            }
        }
    }
}

/// Adds the options of one extension: `-m limit --limit 5/sec`, `-j DROP`.
pub(crate) fn add_section(rule: &mut HostRule, words: &[&str]) {
    match words {
        ["-m", name, options @ ..] => {
            rule.add_ports(options);
            rule.add(&Element::new(
                ElementKind::Match,
                name,
                ElementFacts::Words(options),
            ));
        }
        ["-j", name, options @ ..] if is_target(name) => {
            rule.drops |= ["DROP", "REJECT"].contains(name);
            rule.accepts |= *name == "ACCEPT";
            rule.add(&Element::new(
                ElementKind::Target,
                name,
                ElementFacts::Words(options),
            ));
        }
        // Targets that others wrote have options; calls of chains have none.
        ["-j", name, options @ ..] if !options.is_empty() => {
            rule.add(&Element::new(
                ElementKind::Target,
                name,
                ElementFacts::Words(options),
            ));
        }
        ["-j" | "-g", chain, ..] => {
            rule.targets.insert((*chain).to_owned());
        }
        _ => {}
    }
}

/// True for names of the catalogue; others are chains, or unknown.
fn is_target(name: &str) -> bool {
    ElementKind::Target.knows(name)
}

fn protocols(name: &str, negated: bool) -> Packets {
    let is = |names: [&str; 2]| names.contains(&name) != negated;
    if ["all", "0"].contains(&name) {
        return Packets::Protocols {
            tcp: true,
            udp: true,
        };
    }
    Packets::Protocols {
        tcp: is(["tcp", "6"]),
        udp: is(["udp", "17"]),
    }
}

/// `53` or `1024:65535`.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}
