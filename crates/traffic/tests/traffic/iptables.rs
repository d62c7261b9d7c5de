//! By iptables, of both variants and both families.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use flannel_traffic::{Engine, MasqueradeFamilies, TrafficOptions, WantedTraffic};

use crate::support::{
    Namespace, all, becomes, choose, exempt, fed, in_namespace, run, scope, until, v4, v6, variant,
    wanted,
};

const MASQUERADE_V4: &str = r#"-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-N FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.42.1.0/24 -d 10.42.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.42.0.0/16 -d 10.42.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.42.0.0/16 -d 10.42.1.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.42.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.42.0.0/16 -d 10.42.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
"#;

const MASQUERADE_V6: &str = r#"-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-N FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244:1::/64 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s fd00:10:244::/56 -d fd00:10:244:1::/64 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s fd00:10:244::/56 ! -d ff00::/8 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s fd00:10:244::/56 -d fd00:10:244::/56 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
"#;

const FORWARD_V4: &str = r#"-P FORWARD ACCEPT
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-N FLANNEL-FWD
-A FLANNEL-FWD -s 10.42.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d 10.42.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
"#;

const FORWARD_V6: &str = r#"-P FORWARD ACCEPT
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-N FLANNEL-FWD
-A FLANNEL-FWD -s fd00:10:244::/56 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d fd00:10:244::/56 -m comment --comment "flanneld forward" -j ACCEPT
"#;

const VARIANTS: [&str; 2] = ["nft", "legacy"];

/// Runs a test with each variant as the host's iptables.
fn with_each_variant(test: impl AsyncFn(Namespace) + Copy + Send + 'static) {
    for name in VARIANTS {
        if variant(name).is_some() {
            in_namespace(async move |ns| {
                choose(name);
                test(ns).await;
            });
        }
    }
}

/// Returns the rules that flannel's own tests check.
fn masquerade(tool: &str) -> String {
    let jumps = run(&format!("{tool} -t nat -S POSTROUTING"));
    let jumps: String = jumps
        .split_inclusive('\n')
        .filter(|line| line.contains("FLANNEL"))
        .collect();
    jumps + &run(&format!("{tool} -t nat -S FLANNEL-POSTRTG"))
}

fn forward(tool: &str) -> String {
    run(&format!("{tool} -S FORWARD")) + &run(&format!("{tool} -S FLANNEL-FWD"))
}

/// All rules, without the lines that hold the time.
fn saved() -> String {
    let all = run("iptables-save") + &run("ip6tables-save");
    all.split_inclusive('\n')
        .filter(|line| !line.starts_with('#'))
        .collect()
}

#[test]
fn the_rules_are_flannels_to_the_letter() {
    with_each_variant(async |ns| {
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().error, None);
        assert_eq!(masquerade("iptables"), MASQUERADE_V4);
        assert_eq!(masquerade("ip6tables"), MASQUERADE_V6);
        assert_eq!(forward("iptables"), FORWARD_V4);
        assert_eq!(forward("ip6tables"), FORWARD_V6);
        assert_eq!(traffic.status().families, ["IPv4", "IPv6"]);
    });
}

#[test]
fn ports_are_random_unless_that_is_off() {
    with_each_variant(async |ns| {
        let options = TrafficOptions {
            random_fully: false,
            ..all()
        };
        let _traffic = ns
            .traffic(Some(Engine::Iptables), options, wanted(&[v4()]))
            .await;
        assert_eq!(
            masquerade("iptables"),
            MASQUERADE_V4.replace(" --random-fully", "")
        );
    });
}

/// The tool prints the rules as they were written, so the agent does not write them again.
#[test]
fn exempt_destinations_are_written_once_and_go_with_the_option() {
    with_each_variant(async |ns| {
        let traffic = ns
            .traffic(Some(Engine::Iptables), exempt(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().error, None);
        drop(traffic);
        let rule = |to: &str| {
            format!(
                "-A FLANNEL-POSTRTG -s 10.42.0.0/16 -d {to} -m comment --comment \"flanneld masq\" \
                 -j RETURN\n"
            )
        };
        let rules = [
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.0.2.0/25",
            "192.0.2.129/32",
        ]
        .map(rule)
        .concat();
        let first = "-A FLANNEL-POSTRTG -s 10.42.0.0/16 ! -d 224.0.0.0/4";
        assert_eq!(
            masquerade("iptables"),
            MASQUERADE_V4.replace(first, &format!("{rules}{first}"))
        );
        assert!(
            masquerade("ip6tables").contains("-d 2001:db8::9/128 -m comment"),
            "{}",
            masquerade("ip6tables")
        );
        fed(
            "iptables-restore -c",
            &run("iptables-save -c -t nat").replace("[0:0] -A", "[7:700] -A"),
        );
        drop(
            ns.traffic(Some(Engine::Iptables), exempt(), wanted(&[v4(), v6()]))
                .await,
        );
        let counted = run("iptables-save -c -t nat");
        assert_eq!(counted.matches("[7:700] -A").count(), 11, "{counted}");
        let _traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
            .await;
        let both = || (masquerade("iptables"), masquerade("ip6tables"));
        becomes(both, (MASQUERADE_V4.to_owned(), MASQUERADE_V6.to_owned())).await;
    });
}

#[test]
fn one_family_is_masqueraded_alone() {
    with_each_variant(async |ns| {
        let options = TrafficOptions {
            masquerade: MasqueradeFamilies {
                v4: false,
                v6: true,
            },
            ..all()
        };
        let traffic = ns
            .traffic(Some(Engine::Iptables), options, wanted(&[v4(), v6()]))
            .await;
        assert!(!run("iptables-save").contains("FLANNEL-POSTRTG"));
        assert_eq!(
            (masquerade("ip6tables"), forward("iptables")),
            (MASQUERADE_V6.to_owned(), FORWARD_V4.to_owned())
        );
        assert_eq!(traffic.status().masquerade_families, ["IPv6"]);
    });
}

#[test]
fn only_what_is_asked_for_is_written() {
    with_each_variant(async |ns| {
        let options = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            ..all()
        };
        let traffic = ns
            .traffic(Some(Engine::Iptables), options, wanted(&[v4()]))
            .await;
        assert_eq!(forward("iptables"), FORWARD_V4);
        assert!(!run("iptables-save").contains("FLANNEL-POSTRTG"));
        assert!(
            !run("ip6tables-save").contains("FLANNEL"),
            "a family that is off"
        );
        assert_eq!(traffic.status().families, ["IPv4"]);
    });
}

#[test]
fn what_is_right_is_not_written_again() {
    with_each_variant(async |ns| {
        drop(
            ns.traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
                .await,
        );
        // Counters distinguish a rule that stayed from one that was written again.
        let counted = run("iptables-save -c").replace("[0:0] -A", "[7:700] -A");
        fed("iptables-restore -c", &counted);
        let before = run("iptables-save -c -t nat") + &run("iptables-save -c -t filter");
        assert_eq!(before.matches("[7:700] -A").count(), 10, "{before}");
        let _traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        let after = run("iptables-save -c -t nat") + &run("iptables-save -c -t filter");
        assert_eq!(after.matches("[7:700] -A").count(), 10, "{after}");
    });
}

#[test]
fn what_another_program_flushed_comes_back() {
    with_each_variant(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
            .await;
        for (repairs, line) in [
            "iptables -t nat -F",
            "iptables -F FLANNEL-FWD",
            "ip6tables -t nat -D FLANNEL-POSTRTG 1",
            "ip6tables -F",
        ]
        .into_iter()
        .enumerate()
        {
            run(line);
            let status = until(&mut traffic, |status| status.repairs > repairs as u64).await;
            assert!(
                status.error.is_none() && status.repaired_at.is_some(),
                "{status:?}"
            );
            assert_eq!(masquerade("iptables"), MASQUERADE_V4, "{line}");
            assert_eq!(masquerade("ip6tables"), MASQUERADE_V6, "{line}");
            assert_eq!(forward("iptables"), FORWARD_V4, "{line}");
            assert_eq!(forward("ip6tables"), FORWARD_V6, "{line}");
        }
    });
}

/// On a large node such a read is tens of thousands of lines.
#[test]
fn tables_without_changes_are_not_read() {
    if variant("nft").is_none() {
        return;
    }
    in_namespace(async |ns| {
        choose("nft");
        let reads = count_reads();
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        // It reads once more when its own changes are announced.
        let quiet = async || {
            for _ in 0..10 {
                let before = reads();
                tokio::time::sleep(8 * all().resync).await;
                if reads() == before {
                    return true;
                }
            }
            false
        };
        assert!(quiet().await, "{} reads", reads());
        run("iptables -F FLANNEL-FWD");
        until(&mut traffic, |status| status.repairs == 1).await;
        assert!(quiet().await, "{} reads", reads());
    });
}

/// Puts a script that counts in the place of `iptables-save`; how often it ran.
fn count_reads() -> impl Fn() -> usize {
    let (script, count) = ("/etc/alternatives/iptables-save", "/etc/alternatives/count");
    fs::remove_file(script).expect("a link");
    fs::write(
        script,
        format!("#!/bin/sh\necho >> {count}\nexec /usr/sbin/iptables-nft-save \"$@\"\n"),
    )
    .expect("written");
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("executable");
    move || fs::read_to_string(count).map_or(0, |text| text.lines().count())
}

#[test]
fn order_and_number_are_examined() {
    with_each_variant(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        let mark = "-m mark --mark 0x4000/0x4000 -m comment --comment";
        let doubled = format!("-A FLANNEL-POSTRTG {mark} \"flanneld masq\" -j RETURN\n");
        let jump = "-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD\n";
        fed(
            "iptables-restore --noflush",
            &format!("*nat\n{doubled}COMMIT\n*filter\n{jump}COMMIT\n"),
        );
        until(&mut traffic, |status| status.repairs > 0).await;
        assert_eq!(masquerade("iptables"), MASQUERADE_V4);
        assert_eq!(forward("iptables"), FORWARD_V4);
    });
}

#[test]
fn a_new_subnet_takes_the_place_of_the_old() {
    with_each_variant(async |ns| {
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        traffic.want(wanted(&[scope("10.42.0.0/16", "10.42.9.0/24")]));
        let status = crate::support::wait_tried(&mut traffic).await;
        assert_eq!((status.error, status.repairs), (None, 0));
        assert_eq!(
            masquerade("iptables"),
            MASQUERADE_V4.replace("10.42.1.0", "10.42.9.0")
        );
    });
}

#[test]
fn rules_of_a_former_network_go() {
    with_each_variant(async |ns| {
        drop(
            ns.traffic(
                Some(Engine::Iptables),
                all(),
                wanted(&[scope("10.5.0.0/16", "10.5.3.0/24")]),
            )
            .await,
        );
        let former = vec!["10.5.0.0/16".parse().expect("a network")];
        let _traffic = ns
            .traffic(
                Some(Engine::Iptables),
                all(),
                WantedTraffic {
                    scopes: vec![v4()],
                    former,
                },
            )
            .await;
        assert_eq!(masquerade("iptables"), MASQUERADE_V4);
        assert_eq!(forward("iptables"), FORWARD_V4);
    });
}

#[test]
fn switched_off_nothing_of_ours_stays_and_all_of_others_does() {
    with_each_variant(async |ns| {
        run("iptables -t nat -A POSTROUTING -s 172.16.0.0/12 -j MASQUERADE");
        run("iptables -N THEIRS");
        run("iptables -A FORWARD -j THEIRS");
        run("ip6tables -A FORWARD -j DROP");
        // A table is listed from its first use on.
        run("ip6tables -t nat -P POSTROUTING ACCEPT");
        let before = saved();
        drop(
            ns.traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
                .await,
        );
        assert_ne!(saved(), before);
        let off = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            forward: false,
            blackhole: false,
            ..all()
        };
        let traffic = ns
            .traffic(Some(Engine::Iptables), off, wanted(&[v4(), v6()]))
            .await;
        assert_eq!(saved(), before);
        assert_eq!(traffic.status().engine, None);
    });
}

#[test]
fn a_family_that_is_switched_off_loses_its_rules() {
    with_each_variant(async |ns| {
        drop(
            ns.traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
                .await,
        );
        let wanted = WantedTraffic {
            scopes: vec![v4()],
            former: vec![v6().network],
        };
        let _traffic = ns.traffic(Some(Engine::Iptables), all(), wanted).await;
        assert!(
            !run("ip6tables-save").contains("FLANNEL"),
            "{}",
            run("ip6tables-save")
        );
        assert_eq!(masquerade("iptables"), MASQUERADE_V4);
    });
}

#[test]
fn two_flannels_of_one_host_do_not_fight() {
    with_each_variant(async |ns| {
        let theirs = wanted(&[scope("10.5.0.0/16", "10.5.3.0/24")]);
        let first = ns
            .traffic(Some(Engine::Iptables), all(), theirs.clone())
            .await;
        let second = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        let both = masquerade("iptables");
        assert_eq!(both.lines().count(), 2 + 6 + 5, "{both}");
        assert!(
            MASQUERADE_V4.lines().all(|line| both.contains(line)),
            "{both}"
        );
        drop((first, second));
        let off = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            forward: false,
            ..all()
        };
        let _traffic = ns.traffic(Some(Engine::Iptables), off, theirs).await;
        assert_eq!(masquerade("iptables"), MASQUERADE_V4);
        assert_eq!(forward("iptables"), FORWARD_V4);
    });
}
