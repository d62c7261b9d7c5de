use super::*;
use crate::{
    Engine, FamilyScope, TrafficError,
    rule::{Masquerade, Purpose, rules},
};

const NETWORK: &str = "10.244.0.0/16";

fn scope(network: &str, subnet: &str) -> FamilyScope {
    let net = |text: &str| text.parse().expect("a network");
    FamilyScope {
        network: net(network),
        subnet: net(subnet),
    }
}

fn ours(purpose: Purpose) -> Ours {
    let networks = vec![
        NETWORK.parse().expect("a network"),
        "fd00:10:244::/56".parse().expect("a network"),
    ];
    Ours::Naming {
        networks,
        remark: Some(Place::of(purpose).comment),
    }
}

fn specs(purpose: Purpose, scope: &FamilyScope, random_fully: bool) -> Vec<String> {
    specs_with(
        purpose,
        scope,
        &Masquerade {
            random_fully,
            exempt: Vec::new(),
        },
    )
}

fn specs_with(purpose: Purpose, scope: &FamilyScope, options: &Masquerade) -> Vec<String> {
    Place::of(purpose).specs(&rules(purpose, Engine::Iptables, scope, options))
}

fn installed(purpose: Purpose, scope: &FamilyScope, found: &SavedChain) -> String {
    install(
        &Place::of(purpose),
        found,
        &specs(purpose, scope, true),
        &ours(purpose),
    )
    .join("\n")
}

fn parse(saved: &str, place: &Place) -> Result<SavedChain, TrafficError> {
    let mut found = SavedChain::default();
    saved.lines().try_for_each(|line| found.add(line, place))?;
    Ok(found)
}

fn found(purpose: Purpose, saved: &str) -> SavedChain {
    parse(saved, &Place::of(purpose)).expect("readable")
}

/// The text flannel's own tests compare with, without the order of its jump, which it appends
/// first.
const MASQUERADE_V4: &str = r#":FLANNEL-POSTRTG - [0:0]
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG"#;

const MASQUERADE_V6: &str = r#":FLANNEL-POSTRTG - [0:0]
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244:1::/64 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244::/56 ! -d ff00::/8 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s fd00:10:244::/56 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG"#;

const FORWARD_V4: &str = r#":FLANNEL-FWD - [0:0]
-A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD"#;

#[test]
fn the_rules_are_flannels_to_the_letter() {
    let (v4, v6) = (
        scope(NETWORK, "10.244.1.0/24"),
        scope("fd00:10:244::/56", "fd00:10:244:1::/64"),
    );
    assert_eq!(
        installed(Purpose::Masquerade, &v4, &SavedChain::default()),
        MASQUERADE_V4
    );
    assert_eq!(
        installed(Purpose::Masquerade, &v6, &SavedChain::default()),
        MASQUERADE_V6
    );
    assert_eq!(
        installed(Purpose::Forward, &v4, &SavedChain::default()),
        FORWARD_V4
    );
    let plain = specs(Purpose::Masquerade, &v4, false).join("\n");
    assert!(
        plain.contains("-j MASQUERADE") && !plain.contains("random"),
        "{plain}"
    );
}

#[test]
fn exempt_destinations_come_before_masquerade_and_go_when_no_longer_asked_for() {
    let (scope, place) = (
        scope(NETWORK, "10.244.1.0/24"),
        Place::of(Purpose::Masquerade),
    );
    let exempt = ["10.0.0.0/8", "192.0.2.9/32"]
        .map(|prefix| prefix.parse().expect("a prefix"))
        .into();
    let specs = specs_with(
        Purpose::Masquerade,
        &scope,
        &Masquerade {
            random_fully: true,
            exempt,
        },
    );
    let remark = "-m comment --comment \"flanneld masq\"";
    assert_eq!(
        specs[4],
        format!("-s 10.244.0.0/16 -d 10.0.0.0/8 {remark} -j RETURN")
    );
    assert_eq!(
        specs[5],
        format!("-s 10.244.0.0/16 -d 192.0.2.9/32 {remark} -j RETURN")
    );
    assert!(
        specs[6].ends_with("-j MASQUERADE --random-fully"),
        "{specs:?}"
    );
    let text = install(
        &place,
        &SavedChain::default(),
        &specs,
        &ours(Purpose::Masquerade),
    )
    .join("\n");
    let left = installed(
        Purpose::Masquerade,
        &scope,
        &found(Purpose::Masquerade, &text),
    );
    assert!(
        left.starts_with(":FLANNEL-POSTRTG") && !left.contains("10.0.0.0/8"),
        "{left}"
    );
}

#[test]
fn what_was_written_is_not_written_again() {
    let scope = scope(NETWORK, "10.244.1.0/24");
    for (purpose, text) in [
        (Purpose::Masquerade, MASQUERADE_V4),
        (Purpose::Forward, FORWARD_V4),
    ] {
        assert_eq!(
            installed(purpose, &scope, &found(purpose, text)),
            "",
            "{purpose:?}"
        );
    }
}

#[test]
fn a_new_subnet_replaces_the_rules_and_leaves_the_jump() {
    let text = installed(
        Purpose::Masquerade,
        &scope(NETWORK, "10.244.2.0/24"),
        &found(Purpose::Masquerade, MASQUERADE_V4),
    );
    assert!(text.starts_with(":FLANNEL-POSTRTG - [0:0]\n"), "{text}");
    assert!(
        !text.contains("10.244.1.0") && !text.contains("POSTROUTING"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 7);
}

#[test]
fn jumps_are_made_one() {
    let scope = scope(NETWORK, "10.244.1.0/24");
    let jump = "-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD";
    let without = FORWARD_V4.replace(jump, "");
    assert_eq!(
        installed(Purpose::Forward, &scope, &found(Purpose::Forward, &without)),
        jump
    );
    let thrice = format!("-A FORWARD -j FLANNEL-FWD\n{jump}\n{FORWARD_V4}");
    let repaired = installed(Purpose::Forward, &scope, &found(Purpose::Forward, &thrice));
    assert_eq!(
        repaired,
        format!("-D FORWARD -j FLANNEL-FWD\n{}", jump.replace("-A", "-D"))
    );
}

#[test]
fn removal_takes_the_jumps_and_the_chain() {
    let text =
        format!("{MASQUERADE_V4}\n-A THEIRS -j FLANNEL-POSTRTG\n-A POSTROUTING -j MASQUERADE");
    let found = found(Purpose::Masquerade, &text);
    let lines = remove(
        &Place::of(Purpose::Masquerade),
        &found,
        &ours(Purpose::Masquerade),
    )
    .join("\n");
    let expected = ":FLANNEL-POSTRTG - [0:0]\n\
        -D POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\n\
        -D THEIRS -j FLANNEL-POSTRTG\n\
        -X FLANNEL-POSTRTG";
    assert_eq!(lines, expected);
    assert!(
        remove(
            &Place::of(Purpose::Masquerade),
            &SavedChain::default(),
            &Ours::All
        )
        .is_empty()
    );
}

#[test]
fn removal_leaves_another_flannels_rules() {
    let place = Place::of(Purpose::Masquerade);
    let theirs = specs(
        Purpose::Masquerade,
        &scope("10.5.0.0/16", "10.5.3.0/24"),
        true,
    );
    let our_rules = specs(Purpose::Masquerade, &scope(NETWORK, "10.244.1.0/24"), true);
    let both =
        chain::content(&theirs, &our_rules, &ours(Purpose::Masquerade)).expect("ours are missing");
    assert_eq!(
        both.len(),
        our_rules.len() + theirs.len() - 1,
        "one rule about the mark for both"
    );
    let found = SavedChain {
        exists: true,
        rules: both,
        jumps: Vec::new(),
    };
    assert_eq!(
        remove(&place, &found, &ours(Purpose::Masquerade)),
        place.refill(&theirs)
    );
    let alone = SavedChain {
        exists: true,
        rules: theirs,
        jumps: Vec::new(),
    };
    assert!(remove(&place, &alone, &ours(Purpose::Masquerade)).is_empty());
    assert!(!remove(&place, &alone, &Ours::All).is_empty());
}

#[test]
fn a_table_that_nft_has_taken_over_is_said_so() {
    let saved = "# Table `nat' is incompatible, use 'nft' tool.\n";
    let error = parse(saved, &Place::of(Purpose::Masquerade)).expect_err("unreadable");
    assert!(error.to_string().contains("table nat"), "{error}");
}
