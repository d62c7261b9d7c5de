//! The catalogue: of everything a rule may consist of, how it goes with packets that are replayed.
//!
//! Owns the verdicts, one table for each kind of element, with the reason in a few words. The page
//! `docs/reference/firewall-rules.md` is made from these tables. Elements that are not in a table
//! count as per-packet and are named as unknown.
//!
//! `Exact` means: the verdict for a replayed packet is the one its flow's last packet got in the
//! kernel, and the kernel would give the same one now, or changed its mind within the refresh
//! interval. Programs compare for each packet: device, addresses, protocol, ports, Ethernet
//! addresses, DSCP, TTL. Packets with SYN, FIN or RST, fragments, packets with IPv4 options or IPv6
//! extension headers, tagged frames and all protocols except TCP and UDP always take the kernel's
//! path.

mod conditions;
mod ebtables;
mod entry;
mod facts;
mod nft_fields;
mod nft_statements;
#[cfg(test)]
mod page;
mod xtables_matches;
mod xtables_targets;

use std::{collections::HashMap, sync::LazyLock};

use self::entry::{Entry, Finding, Rating};
pub(super) use self::{
    conditions::{CONTROL, NOT_FRAGMENT},
    facts::{ElementFacts, FlagTest},
};

/// The kinds of elements, each with its own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ElementKind {
    /// `-m` of iptables and ip6tables.
    Match,
    /// `-j` of iptables and ip6tables.
    Target,
    /// Matches, watchers and targets of ebtables.
    Bridge,
    /// Statements of nft.
    Statement,
    /// Expressions of nft: fields of a packet and of its surroundings.
    Field,
    /// Fields that nft writes.
    Rewrite,
}

impl ElementKind {
    const ALL: [(Self, &'static [&'static [Entry]]); 6] = [
        (Self::Match, &[xtables_matches::ENTRIES]),
        (Self::Target, &[xtables_targets::ENTRIES]),
        (Self::Bridge, &[ebtables::ENTRIES]),
        (Self::Statement, &[nft_statements::ENTRIES]),
        (Self::Field, &[nft_fields::PACKET, nft_fields::SURROUNDINGS]),
        (Self::Rewrite, &[nft_statements::REWRITES]),
    ];

    /// True if there is an entry of this name.
    pub(super) fn knows(self, name: &str) -> bool {
        find(self, name).is_some()
    }

    /// The word for an element that is in no table.
    const fn noun(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Target => "target",
            Self::Bridge => "bridge extension",
            Self::Statement => "statement",
            Self::Field => "expression",
            Self::Rewrite => "rewrite",
        }
    }

    /// Puts what is done in front, where only the name would read as a match.
    fn label(self, name: &str) -> String {
        if self == Self::Rewrite {
            format!("set {name}")
        } else {
            name.to_owned()
        }
    }
}

/// An element of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) kind: ElementKind,
    pub(super) name: &'a str,
    pub(super) facts: ElementFacts<'a>,
}

/// The meaning of an element for replayed packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The same for all of a flow.
    Exact,
    /// It matches only packets that always take the kernel's path.
    KernelPath,
    /// It matches only packets of connections without a reply.
    NewConnections,
    /// It may differ between packets of a flow; what it is.
    PerPacket(String),
    /// It may differ between tunnel packets to one peer; what it is.
    PerTunnelPacket(String),
    /// Its options decide, and they are not known; what it is.
    Hidden(String),
}

impl<'a> Element<'a> {
    pub(super) const fn new(kind: ElementKind, name: &'a str, facts: ElementFacts<'a>) -> Self {
        Self { kind, name, facts }
    }

    /// Looks it up.
    pub(super) fn verdict(&self) -> Judgement {
        let label = || self.kind.label(self.name);
        let Some(entry) = find(self.kind, self.name) else {
            return Judgement::PerPacket(format!("unknown {} {}", self.kind.noun(), self.name));
        };
        let finding = match entry.rating {
            Rating::Exact => return Judgement::Exact,
            Rating::PerPacket => return Judgement::PerPacket(label()),
            Rating::PerTunnelPacket => return Judgement::PerTunnelPacket(label()),
            Rating::Depends(_) if self.facts == ElementFacts::Hidden => {
                return Judgement::Hidden(label());
            }
            Rating::Depends(condition) => condition(&self.facts),
        };
        match finding {
            Finding::Exact => Judgement::Exact,
            Finding::KernelPath => Judgement::KernelPath,
            Finding::NewConnections => Judgement::NewConnections,
            Finding::PerPacket => Judgement::PerPacket(label()),
            Finding::PerPacketIn(part) => Judgement::PerPacket(part.to_owned()),
        }
    }
}

/// All entries by kind and name; true for those that may be per-packet.
#[cfg(test)]
pub(super) fn entries() -> Vec<(String, bool)> {
    let name = |kind| match kind {
        ElementKind::Match => "match",
        ElementKind::Target => "target",
        ElementKind::Bridge => "bridge",
        ElementKind::Statement => "statement",
        ElementKind::Field => "field",
        ElementKind::Rewrite => "rewrite",
    };
    let tables = ElementKind::ALL
        .into_iter()
        .flat_map(|(kind, tables)| tables.iter().map(move |table| (kind, *table)));
    let entries = tables.flat_map(|(kind, table)| table.iter().map(move |entry| (kind, entry)));
    // Those of connections without a reply limit a rule, and are never named.
    let states = ["state", "ct state"];
    entries
        .map(|(kind, entry)| {
            let is_exact = matches!(entry.rating, Rating::Exact) || states.contains(&entry.name);
            (format!("{} {}", name(kind), entry.name), !is_exact)
        })
        .collect()
}

static INDEX: LazyLock<HashMap<(ElementKind, &'static str), &'static Entry>> =
    LazyLock::new(|| {
        let tables = ElementKind::ALL
            .into_iter()
            .flat_map(|(kind, tables)| tables.iter().map(move |table| (kind, *table)));
        tables
            .flat_map(|(kind, table)| table.iter().map(move |entry| ((kind, entry.name), entry)))
            .collect()
    });

/// By the whole name, else by that of its group.
fn find(kind: ElementKind, name: &str) -> Option<&'static Entry> {
    let group = || name.rsplit_once(' ').map(|(group, _)| format!("{group} *"));
    INDEX
        .get(&(kind, name))
        .copied()
        .or_else(|| INDEX.get(&(kind, group()?.as_str())).copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_element_has_one_entry_and_a_reason() {
        for (kind, tables) in ElementKind::ALL {
            let entries: Vec<&Entry> = tables.iter().copied().flatten().collect();
            let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name).collect();
            assert_eq!(names.len(), entries.len(), "{kind:?}");
            assert!(
                entries.iter().all(|entry| !entry.why.is_empty()),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn unknown_elements_count_as_per_packet_and_say_so() {
        for (kind, name, label) in [
            (ElementKind::Match, "geoip", "unknown match geoip"),
            (ElementKind::Target, "DELUDE", "unknown target DELUDE"),
            (ElementKind::Bridge, "foo", "unknown bridge extension foo"),
            (
                ElementKind::Statement,
                "teleport",
                "unknown statement teleport",
            ),
            (
                ElementKind::Field,
                "meta phase",
                "unknown expression meta phase",
            ),
            (
                ElementKind::Rewrite,
                "meta phase",
                "unknown rewrite meta phase",
            ),
        ] {
            let verdict = Element::new(kind, name, ElementFacts::Hidden).verdict();
            assert_eq!(verdict, Judgement::PerPacket(label.to_owned()));
        }
    }

    #[test]
    fn groups_stand_for_what_has_no_entry_of_its_own() {
        let verdict = |name| Element::new(ElementKind::Field, name, ElementFacts::None).verdict();
        assert_eq!(verdict("icmp type"), Judgement::Exact);
        assert_eq!(verdict("tcp option maxseg"), Judgement::Exact);
        assert_eq!(
            verdict("tcp option sack"),
            Judgement::PerPacket("tcp option sack".to_owned())
        );
    }
}
