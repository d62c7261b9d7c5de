//! The entries of the catalogue against rules, as the tools print them. `tests/firewall` installs
//! the same rules and reads them back.

use std::collections::BTreeSet;

use super::{PerPacket, catalogue, model::Ruleset, saved};

#[path = "../tests/firewall/cases.rs"]
mod cases;

const IPTABLES: &str = include_str!("../tests/firewall/iptables.txt");
const EBTABLES: &str = include_str!("../tests/firewall/ebtables.txt");
const NFT: &str = include_str!("../tests/firewall/nft.txt");

const PORT: Option<u16> = Some(8472);

fn check(case: &cases::Case<'_>, rules: &Ruleset, chain: &str) {
    let found = rules.per_packet();
    assert_eq!(
        cases::named(&found, chain),
        case.named,
        "{}: {}",
        case.entry,
        case.rule
    );
}

#[test]
fn rules_of_iptables_are_judged_as_the_catalogue_says() {
    for case in cases::read(IPTABLES) {
        let [family, table, hook] = case.place[..] else {
            panic!("{}", case.entry)
        };
        let text = format!(
            "*{table}\n:{hook} ACCEPT [0:0]\n:c - [0:0]\n-A {hook} -j c\n-A c {}\nCOMMIT\n",
            case.rule
        );
        check(
            &case,
            &saved::parse(family, &text, PORT),
            &format!("{family} {table} c"),
        );
    }
}

#[test]
fn rules_of_ebtables_are_judged_as_the_catalogue_says() {
    for case in cases::read(EBTABLES) {
        let [table, hook] = case.place[..] else {
            panic!("{}", case.entry)
        };
        let text = format!(
            "*{table}\n:{hook} ACCEPT\n:c ACCEPT\n-A {hook} -j c\n-A c {}\n",
            case.rule
        );
        check(
            &case,
            &saved::parse("bridge", &text, PORT),
            &format!("bridge {table} c"),
        );
    }
}

#[test]
fn every_entry_has_a_rule() {
    let cases: Vec<_> = [IPTABLES, EBTABLES, NFT]
        .into_iter()
        .flat_map(cases::read)
        .collect();
    let entries: BTreeSet<&str> = cases.iter().map(|case| case.entry).collect();
    let named: BTreeSet<&str> = cases
        .iter()
        .filter(|case| !case.named.is_empty())
        .map(|case| case.entry)
        .collect();
    for (entry, is_per_packet) in catalogue::entries() {
        assert!(entries.contains(entry.as_str()), "no rule for {entry}");
        assert!(
            !is_per_packet || named.contains(entry.as_str()),
            "no rule that is named for {entry}"
        );
    }
    let known: BTreeSet<String> = catalogue::entries()
        .into_iter()
        .map(|(entry, _)| entry)
        .collect();
    for entry in entries {
        assert!(known.contains(entry), "{entry} is not in the catalogue");
    }
}
