use super::*;
use crate::{
    Engine, FamilyScope,
    rule::{Masquerade, nothing, rules},
};

fn scope(network: &str, subnet: &str) -> FamilyScope {
    let net = |text: &str| text.parse().expect("a network");
    FamilyScope {
        network: net(network),
        subnet: net(subnet),
    }
}

fn v4() -> FamilyScope {
    scope("10.42.0.0/16", "10.42.1.0/24")
}

fn v6() -> FamilyScope {
    scope("fd00:10:244::/56", "fd00:10:244:1::/64")
}

fn ours() -> Ours {
    Ours::Naming {
        networks: vec![v4().network, v6().network],
        remark: None,
    }
}

fn chains(scope: &FamilyScope) -> Chains {
    chains_with(
        scope,
        &Masquerade {
            random_fully: true,
            exempt: Vec::new(),
        },
    )
}

fn chains_with(scope: &FamilyScope, options: &Masquerade) -> Chains {
    Purpose::ALL
        .map(|purpose| {
            (
                purpose,
                Some(rules(purpose, Engine::Nftables, scope, options)),
            )
        })
        .into()
}

/// As `nft -s list table` prints it, with the rules flannel's own tests compare with.
const LISTED_V4: &str = r#"table ip flannel-ipv4 {
	comment "rules for flannel-ipv4"
	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority srcnat; policy accept;
		meta mark 0x00004000 return
		ip saddr 10.42.1.0/24 ip daddr 10.42.0.0/16 return
		ip saddr 10.42.0.0/16 ip daddr 10.42.1.0/24 return
		ip saddr != 10.42.1.0/24 ip daddr 10.42.0.0/16 return
		ip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
		ip saddr != 10.42.0.0/16 ip daddr 10.42.0.0/16 masquerade fully-random
	}

	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		ip saddr 10.42.0.0/16 accept
		ip daddr 10.42.0.0/16 accept
	}
}
"#;

const LISTED_V6: &str = r#"table ip6 flannel-ipv6 {
	comment "rules for flannel-ipv6"
	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority srcnat; policy accept;
		meta mark 0x00004000 return
		ip6 saddr fd00:10:244:1::/64 ip6 daddr fd00:10:244::/56 return
		ip6 saddr fd00:10:244::/56 ip6 daddr fd00:10:244:1::/64 return
		ip6 saddr != fd00:10:244:1::/64 ip6 daddr fd00:10:244::/56 return
		ip6 saddr fd00:10:244::/56 ip6 daddr != ff00::/8 masquerade fully-random
		ip6 saddr != fd00:10:244::/56 ip6 daddr fd00:10:244::/56 masquerade fully-random
	}

	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		ip6 saddr fd00:10:244::/56 accept
		ip6 daddr fd00:10:244::/56 accept
	}
}
"#;

#[test]
fn the_rules_are_flannels_to_the_letter() {
    assert_eq!(
        text(
            Family::V4,
            Some(&ListedTable::parse(LISTED_V4)),
            &chains(&v4()),
            &ours()
        ),
        ""
    );
    assert_eq!(
        text(
            Family::V6,
            Some(&ListedTable::parse(LISTED_V6)),
            &chains(&v6()),
            &ours()
        ),
        ""
    );
}

#[test]
fn exempt_destinations_come_before_masquerade() {
    let exempt = |prefixes: &[&str]| {
        let exempt = prefixes
            .iter()
            .map(|prefix| prefix.parse().expect("a prefix"))
            .collect();
        Masquerade {
            random_fully: true,
            exempt,
        }
    };
    let masquerade = "\t\tip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4 masquerade";
    let returns = "\t\tip saddr 10.42.0.0/16 ip daddr 10.0.0.0/8 return\n\
        \t\tip saddr 10.42.0.0/16 ip daddr 192.0.2.9 return\n";
    let listed = LISTED_V4.replace(masquerade, &format!("{returns}{masquerade}"));
    let found = ListedTable::parse(&listed);
    let asked = exempt(&["10.0.0.0/8", "192.0.2.9/32"]);
    assert_eq!(
        text(
            Family::V4,
            Some(&found),
            &chains_with(&v4(), &asked),
            &ours()
        ),
        ""
    );
    let gone = text(Family::V4, Some(&found), &chains(&v4()), &ours());
    assert!(
        gone.starts_with("flush chain ip flannel-ipv4 postrtg\n") && !gone.contains("10.0.0.0/8"),
        "{gone}"
    );
    let six = text(
        Family::V6,
        None,
        &chains_with(&v6(), &exempt(&["2001:db8::9/128"])),
        &ours(),
    );
    assert!(
        six.contains("ip6 saddr fd00:10:244::/56 ip6 daddr 2001:db8::9 return\n"),
        "{six}"
    );
}

#[test]
fn a_table_is_made_with_its_comments() {
    let text = text(Family::V4, None, &chains(&v4()), &ours());
    for line in [
        "add table ip flannel-ipv4 { comment \"rules for flannel-ipv4\"; }\n",
        "add chain ip flannel-ipv4 postrtg \
         { type nat hook postrouting priority srcnat; policy accept; \
         comment \"chain to manage traffic masquerading by flannel\"; }\n",
        "add rule ip flannel-ipv4 forward ip daddr 10.42.0.0/16 accept\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert_eq!(text.matches("add rule").count(), 8);
}

#[test]
fn only_what_differs_is_written() {
    let found = ListedTable::parse(&LISTED_V4.replace("\t\tip saddr 10.42.0.0/16 accept\n", ""));
    let text = text(Family::V4, Some(&found), &chains(&v4()), &ours());
    let expected = "flush chain ip flannel-ipv4 forward\n\
        add rule ip flannel-ipv4 forward ip saddr 10.42.0.0/16 accept\n\
        add rule ip flannel-ipv4 forward ip daddr 10.42.0.0/16 accept\n";
    assert_eq!(text, expected);
}

#[test]
fn a_chain_that_hangs_elsewhere_is_made_again() {
    let found = ListedTable::parse(&LISTED_V4.replace("priority filter", "priority raw"));
    let text = text(Family::V4, Some(&found), &chains(&v4()), &ours());
    assert!(
        text.starts_with(
            "delete chain ip flannel-ipv4 forward\nadd chain ip flannel-ipv4 forward {"
        ),
        "{text}"
    );
    assert_eq!(text.matches("add rule").count(), 2);
}

#[test]
fn a_chain_that_is_switched_off_goes_and_then_the_table() {
    let found = ListedTable::parse(LISTED_V4);
    let mut chains = chains(&v4());
    chains[0].1 = None;
    assert_eq!(
        text(Family::V4, Some(&found), &chains, &ours()),
        "delete chain ip flannel-ipv4 postrtg\n"
    );
    assert_eq!(
        text(Family::V4, Some(&found), &nothing(), &ours()),
        "delete table ip flannel-ipv4\n"
    );
    assert_eq!(text(Family::V4, None, &nothing(), &ours()), "");
}

#[test]
fn what_others_have_in_the_table_stays() {
    let listed = LISTED_V4.replace(
        "accept\n\t}",
        "accept\n\t\tip saddr 10.9.0.0/16 accept\n\t}",
    );
    let found = ListedTable::parse(&listed);
    let removed = text(Family::V4, Some(&found), &nothing(), &ours());
    let expected = "delete chain ip flannel-ipv4 postrtg\n\
        flush chain ip flannel-ipv4 forward\n\
        add rule ip flannel-ipv4 forward ip saddr 10.9.0.0/16 accept\n";
    assert_eq!(removed, expected);
    assert_eq!(
        text(Family::V4, Some(&found), &nothing(), &Ours::All),
        "delete table ip flannel-ipv4\n"
    );
    assert_eq!(text(Family::V4, Some(&found), &chains(&v4()), &ours()), "");
}
