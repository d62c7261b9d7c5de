//! The reader of what the `save` tools of iptables and ebtables print, line by line. Pure.

mod built_in;
mod ebtables;
mod iptables;

use std::collections::BTreeSet;

use flannel_firewall_tools::{
    saved::{self, SavedLine},
    words,
};

pub(super) use self::iptables::add_section;
use super::{
    catalogue::{Element, ElementFacts, ElementKind},
    model::Ruleset,
};

/// The family of bridges, which has its own forms.
pub(super) const BRIDGE: &str = "bridge";

/// The state of a reader: the table it is in.
#[derive(Debug)]
pub(super) struct SavedReader<'a> {
    family: &'a str,
    table: String,
    /// The chains of the table, which are listed before its rules.
    chains: BTreeSet<String>,
    found: &'a mut Ruleset,
}

impl<'a> SavedReader<'a> {
    /// A reader of the dump of a family (`ip`, `ip6`, `bridge`) that adds to `found`.
    pub(super) fn new(family: &'a str, found: &'a mut Ruleset) -> Self {
        Self {
            family,
            table: String::new(),
            chains: BTreeSet::new(),
            found,
        }
    }

    /// Reads a line.
    pub(super) fn read(&mut self, line: &str) {
        match saved::line(line) {
            Some(SavedLine::Table(name)) => {
                self.table = format!("{} {name}", self.family);
                self.chains.clear();
            }
            Some(SavedLine::Chain { name, rest }) => {
                let hook = if self.is_bridge() {
                    ebtables::hook(name, rest)
                } else {
                    iptables::hook(&self.table, name, rest)
                };
                self.found.add_chain(&self.table, name, hook);
                self.chains.insert(name.to_owned());
            }
            Some(SavedLine::Rule { chain, options }) => self.add_rule(chain, options),
            Some(SavedLine::Remark(_)) | None => {}
        }
    }

    fn is_bridge(&self) -> bool {
        self.family == BRIDGE
    }

    fn add_rule(&mut self, chain: &str, options: &str) {
        let words = words::split(options);
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let (mut rule, kind) = if self.is_bridge() {
            (
                ebtables::rule(&self.table, chain, &words),
                ElementKind::Bridge,
            )
        } else {
            (
                iptables::rule(&self.table, chain, &words),
                ElementKind::Target,
            )
        };
        // A target that is not a chain of the table is an extension.
        let extensions: Vec<String> = rule
            .targets
            .iter()
            .filter(|name| !self.chains.contains(*name))
            .cloned()
            .collect();
        for name in extensions {
            rule.targets.remove(&name);
            rule.add(&Element::new(kind, &name, ElementFacts::Hidden));
        }
        self.found.add(rule);
    }
}

/// Reads a whole dump.
#[cfg(test)]
pub(super) fn parse(family: &str, text: &str, port: Option<u16>) -> Ruleset {
    let mut found = Ruleset::new(port);
    let mut reader = SavedReader::new(family, &mut found);
    text.lines().for_each(|line| reader.read(line));
    found
}

/// The labels of a rule, for tests of the two forms.
#[cfg(test)]
fn labels(rule: &super::model::HostRule) -> Vec<&str> {
    use super::model::Part;

    let mut labels = Vec::new();
    for part in &rule.parts {
        if let Part::PerPacket(label) = part {
            labels.push(label.as_str());
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::rule::ServiceRule;

    /// The first byte is the family.
    #[test]
    fn fuzz_saved_rules() {
        const SEEDS: [&str; 5] = [
            "0*filter\n:FORWARD ACCEPT [0:0]\n:X - [0:0]\n-A FORWARD -p tcp -m tcp --dport 1:80 ! \
             --sport 5 -j X\nCOMMIT\n",
            "0*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m multiport --dports 8472,1:2 -m limit \
             --limit 5/sec -j DROP\n",
            "1*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate NEW,RELATED \
             -m comment --comment \"a \\\"b\" -j TOS --set-tos 0x01/0xff\n",
            "2*nat\n:OUTPUT ACCEPT\n-A OUTPUT -p IPv4 --ip-proto udp --ip-dport 8472 --limit 1/sec \
             -j DROP\n",
            "0*nat\n:KUBE-SEP - [0:0]\n-A KUBE-SEP -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j \
             DNAT --to-destination 10.244.1.2:8080\n",
        ];
        flannel_fuzz::run("saved_rules", &SEEDS.map(str::as_bytes), |input| {
            let Some((first, text)) = input.split_first() else {
                return;
            };
            let family = ["ip", "ip6", BRIDGE][usize::from(*first) % 3];
            let text = String::from_utf8_lossy(text);
            let rules = parse(family, &text, Some(8472));
            rules.per_packet();
            rules.at_port();
            text.lines()
                .for_each(|line| drop(ServiceRule::of_options(line)));
        });
    }
}
