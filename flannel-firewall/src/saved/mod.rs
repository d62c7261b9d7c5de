//! The reader of what the `save` tools of iptables and ebtables print, line by line. Pure.

mod ebtables;
mod iptables;

use std::collections::BTreeSet;

use super::{
    catalogue::{Element, ElementFacts, ElementKind},
    model::{ChainHook, Ruleset},
};
use crate::tools::{
    saved::{self, SavedLine},
    words,
};

pub(super) use self::iptables::add_section;

/// The family of bridges, which has forms of its own.
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
        Self { family, table: String::new(), chains: BTreeSet::new(), found }
    }

    /// Reads a line.
    pub(super) fn read(&mut self, line: &str) {
        match saved::line(line) {
            Some(SavedLine::Table(name)) => {
                self.table = format!("{} {name}", self.family);
                self.chains.clear();
            }
            Some(SavedLine::Chain { name, rest }) => {
                let hook =
                    if self.is_bridge() { ebtables::hook(name, rest) } else { iptables::hook(&self.table, name, rest) };
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
            (ebtables::rule(&self.table, chain, &words), ElementKind::Bridge)
        } else {
            (iptables::rule(&self.table, chain, &words), ElementKind::Target)
        };
        // A target that is not a chain of the table is an extension.
        let extensions: Vec<String> =
            rule.targets.iter().filter(|name| !self.chains.contains(*name)).cloned().collect();
        for name in extensions {
            rule.targets.remove(&name);
            rule.add(&Element::new(kind, &name, ElementFacts::Hidden));
        }
        self.found.add(rule);
    }
}

/// A hook by the name of a built-in chain.
fn built_in(name: &str, nat: bool, drops: bool) -> ChainHook {
    ChainHook { at: name.to_ascii_lowercase(), nat, drops, devices: Vec::new() }
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
