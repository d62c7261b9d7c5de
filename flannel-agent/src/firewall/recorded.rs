//! Each entry of the catalogue against the text of a rule, as the tools print it. `tests/firewall`
//! installs the same rules and reads them back, as far as a machine can.

use std::collections::BTreeSet;

use super::{PerPacket, catalogue, ebtables, model::Ruleset, nft, save};

#[path = "../../tests/firewall/cases.rs"]
mod cases;

const IPTABLES: &str = include_str!("../../tests/firewall/iptables.txt");
const EBTABLES: &str = include_str!("../../tests/firewall/ebtables.txt");
const NFT: &str = include_str!("../../tests/firewall/nft.txt");

/// Sets and chains that rules of nft refer to.
const OBJECTS: &str = r#"
    {"chain": {"family": "inet", "table": "t", "name": "other"}},
    {"chain": {"family": "inet", "table": "t", "name": "limited"}},
    {"rule": {"family": "inet", "table": "t", "chain": "limited", "expr": [{"limit": {"rate": 5, "per": "second"}}]}},
    {"set": {"family": "inet", "table": "t", "name": "dyn", "type": "ipv4_addr", "timeout": 60}},
    {"set": {"family": "inet", "table": "t", "name": "limited", "type": "ipv4_addr", "stmt": [{"limit": {"rate": 5, "per": "second"}}]}}"#;

fn check(case: &cases::Case<'_>, rules: &Ruleset, chain: &str) {
    let found = rules.per_packet(Some(8472));
    assert_eq!(cases::named(&found, chain), case.named, "{}: {}", case.entry, case.rule);
}

#[test]
fn rules_of_iptables_are_judged_as_the_catalogue_says() {
    for case in cases::read(IPTABLES) {
        let [family, table, hook] = case.place[..] else { panic!("{}", case.entry) };
        let text = format!("*{table}\n:{hook} ACCEPT [0:0]\n:c - [0:0]\n-A {hook} -j c\n-A c {}\nCOMMIT\n", case.rule);
        check(&case, &save::parse(family, &text), &format!("{family} {table} c"));
    }
}

#[test]
fn rules_of_ebtables_are_judged_as_the_catalogue_says() {
    for case in cases::read(EBTABLES) {
        let [table, hook] = case.place[..] else { panic!("{}", case.entry) };
        let text = format!("*{table}\n:{hook} ACCEPT\n:c ACCEPT\n-A {hook} -j c\n-A c {}\n", case.rule);
        check(&case, &ebtables::parse(&text), &format!("bridge {table} c"));
    }
}

#[test]
fn rules_of_nft_are_judged_as_the_catalogue_says() {
    for case in cases::read(NFT) {
        let [family, hook] = case.place[..] else { panic!("{}", case.entry) };
        let kind = if hook.starts_with("nat-") { "nat" } else { "filter" };
        let hook = hook.trim_start_matches("nat-");
        let place = format!(r#""family": "{family}", "table": "t""#);
        let chain = format!(r#"{{"chain": {{{place}, "name": "c", "type": "{kind}", "hook": "{hook}"}}}}"#);
        let rule = format!(r#"{{"rule": {{{place}, "chain": "c", "expr": {}}}}}"#, case.json);
        let rules = nft::parse(&format!(r#"{{"nftables": [{OBJECTS}, {chain}, {rule}]}}"#)).expect("a document");
        let chain = if case.rule == "jump limited" { "limited" } else { "c" };
        check(&case, &rules, &format!("{family} t {chain}"));
    }
}

#[test]
fn every_entry_has_a_rule() {
    let cases: Vec<_> = [IPTABLES, EBTABLES, NFT].into_iter().flat_map(cases::read).collect();
    let entries: BTreeSet<&str> = cases.iter().map(|case| case.entry).collect();
    let named: BTreeSet<&str> = cases.iter().filter(|case| !case.named.is_empty()).map(|case| case.entry).collect();
    for (entry, is_per_packet) in catalogue::entries() {
        assert!(entries.contains(entry.as_str()), "no rule for {entry}");
        assert!(!is_per_packet || named.contains(entry.as_str()), "no rule that is named for {entry}");
    }
    let known: BTreeSet<String> = catalogue::entries().into_iter().map(|(entry, _)| entry).collect();
    for entry in entries {
        assert!(known.contains(entry), "{entry} is not in the catalogue");
    }
}
