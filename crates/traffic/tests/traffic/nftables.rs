//! By nft, both families.

use std::time::Duration;

use flannel_traffic::{Engine, MasqueradeFamilies, TrafficOptions, WantedTraffic};

use crate::support::{
    all, becomes, exempt, in_namespace, run, scope, until, v4, v6, wait_tried, wanted,
};

/// Options by which only events lead to repairs: the next full look comes after an hour.
fn by_events() -> TrafficOptions {
    TrafficOptions {
        blackhole: false,
        resync: Duration::from_hours(1),
        ..all()
    }
}

const POSTRTG_V4: &str = r#"table ip flannel-ipv4 {
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
}
"#;

const POSTRTG_V6: &str = r#"table ip6 flannel-ipv6 {
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
}
"#;

const FORWARD_V4: &str = r#"table ip flannel-ipv4 {
	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		ip saddr 10.42.0.0/16 accept
		ip daddr 10.42.0.0/16 accept
	}
}
"#;

const FORWARD_V6: &str = r#"table ip6 flannel-ipv6 {
	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		ip6 saddr fd00:10:244::/56 accept
		ip6 daddr fd00:10:244::/56 accept
	}
}
"#;

/// A chain as flannel's own tests list it, without the comment of the table, which some versions
/// print with it.
fn chain(name: &str) -> String {
    let listed = run(&format!("nft list chain {name}"));
    listed
        .split_inclusive('\n')
        .filter(|line| !line.contains("rules for flannel"))
        .collect()
}

fn all_in_place() {
    assert_eq!(chain("ip flannel-ipv4 postrtg"), POSTRTG_V4);
    assert_eq!(chain("ip6 flannel-ipv6 postrtg"), POSTRTG_V6);
    assert_eq!(chain("ip flannel-ipv4 forward"), FORWARD_V4);
    assert_eq!(chain("ip6 flannel-ipv6 forward"), FORWARD_V6);
    assert!(run("nft list table ip flannel-ipv4").contains("comment \"rules for flannel-ipv4\""));
}

#[test]
fn the_rules_are_flannels_to_the_letter() {
    in_namespace(async |ns| {
        let traffic = ns
            .traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().error, None);
        assert_eq!(traffic.status().engine.as_deref(), Some("nftables"));
        all_in_place();
    });
}

/// The tool prints the rules as they were written, so the agent does not write them again.
#[test]
fn exempt_destinations_are_written_once_and_go_with_the_option() {
    in_namespace(async |ns| {
        let traffic = ns
            .traffic(Some(Engine::Nftables), exempt(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().error, None);
        drop(traffic);
        let rule = |to: &str| format!("\t\tip saddr 10.42.0.0/16 ip daddr {to} return\n");
        let rules = ["10.0.0.0/8", "172.16.0.0/12", "192.0.2.0/25", "192.0.2.129"]
            .map(rule)
            .concat();
        let first = "\t\tip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4";
        assert_eq!(
            chain("ip flannel-ipv4 postrtg"),
            POSTRTG_V4.replace(first, &format!("{rules}{first}"))
        );
        let before = run("nft -a list ruleset");
        drop(
            ns.traffic(Some(Engine::Nftables), exempt(), wanted(&[v4(), v6()]))
                .await,
        );
        assert_eq!(run("nft -a list ruleset"), before);
        let _traffic = ns
            .traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
            .await;
        becomes(|| chain("ip flannel-ipv4 postrtg"), POSTRTG_V4.to_owned()).await;
        all_in_place();
    });
}

#[test]
fn only_what_is_asked_for_is_written() {
    in_namespace(async |ns| {
        let options = TrafficOptions {
            forward: false,
            random_fully: false,
            ..by_events()
        };
        let _traffic = ns
            .traffic(Some(Engine::Nftables), options, wanted(&[v4()]))
            .await;
        assert_eq!(
            chain("ip flannel-ipv4 postrtg"),
            POSTRTG_V4.replace(" fully-random", "")
        );
        let ruleset = run("nft list ruleset");
        assert!(
            !ruleset.contains("forward") && !ruleset.contains("ip6"),
            "{ruleset}"
        );
    });
}

#[test]
fn what_is_right_is_not_written_again() {
    in_namespace(async |ns| {
        drop(
            ns.traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
                .await,
        );
        // A rule that is written again gets another handle.
        let before = run("nft -a list ruleset");
        let _traffic = ns
            .traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(run("nft -a list ruleset"), before);
    });
}

#[test]
fn what_another_program_flushed_comes_back_by_the_kernels_word() {
    in_namespace(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Nftables), by_events(), wanted(&[v4(), v6()]))
            .await;
        for (repairs, line) in [
            "nft flush ruleset",
            "nft delete table ip6 flannel-ipv6",
            "nft flush chain ip6 flannel-ipv6 forward",
            "nft flush chain ip flannel-ipv4 postrtg",
            "nft insert rule ip flannel-ipv4 forward ip saddr 10.42.0.0/16 drop",
        ]
        .into_iter()
        .enumerate()
        {
            run(line);
            let status = until(&mut traffic, |status| status.repairs > repairs as u64).await;
            assert_eq!(status.error, None);
            all_in_place();
        }
    });
}

#[test]
fn other_tables_may_change_unlooked_at() {
    in_namespace(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Nftables), by_events(), wanted(&[v4()]))
            .await;
        run("nft add table ip theirs");
        run("nft add chain ip theirs postrtg");
        run("nft flush chain ip flannel-ipv4 forward");
        until(&mut traffic, |status| status.repairs == 1).await;
        assert!(run("nft list tables").contains("theirs"));
    });
}

#[test]
fn a_new_subnet_takes_the_place_of_the_old() {
    in_namespace(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Nftables), by_events(), wanted(&[v4()]))
            .await;
        traffic.want(wanted(&[scope("10.42.0.0/16", "10.42.9.0/24")]));
        assert_eq!(wait_tried(&mut traffic).await.repairs, 0);
        assert_eq!(
            chain("ip flannel-ipv4 postrtg"),
            POSTRTG_V4.replace("10.42.1.0", "10.42.9.0")
        );
    });
}

#[test]
fn switched_off_nothing_of_ours_stays_and_all_of_others_does() {
    in_namespace(async |ns| {
        run("nft add table ip theirs");
        run("nft add chain ip theirs input { type filter hook input priority 0; policy accept; }");
        let before = run("nft list ruleset");
        drop(
            ns.traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
                .await,
        );
        let off = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            forward: false,
            ..by_events()
        };
        let former = vec![v6().network];
        let _traffic = ns
            .traffic(
                Some(Engine::Nftables),
                off,
                WantedTraffic {
                    scopes: vec![v4()],
                    former,
                },
            )
            .await;
        assert_eq!(run("nft list ruleset"), before);
    });
}

#[test]
fn two_flannels_of_one_host_do_not_fight() {
    in_namespace(async |ns| {
        let theirs = wanted(&[scope("10.5.0.0/16", "10.5.3.0/24")]);
        let first = ns
            .traffic(Some(Engine::Nftables), by_events(), theirs.clone())
            .await;
        let _second = ns
            .traffic(Some(Engine::Nftables), by_events(), wanted(&[v4()]))
            .await;
        let both = chain("ip flannel-ipv4 postrtg");
        assert!(
            POSTRTG_V4.lines().all(|line| both.contains(line)) && both.contains("10.5.3.0/24"),
            "{both}"
        );
        drop(first);
        let off = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            forward: false,
            ..by_events()
        };
        let _traffic = ns.traffic(Some(Engine::Nftables), off, theirs).await;
        assert_eq!(chain("ip flannel-ipv4 postrtg"), POSTRTG_V4);
    });
}
