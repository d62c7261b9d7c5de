//! From one engine to another, and without any.

use flannel_agent::traffic::{Engine, MasqueradeFamilies, Traffic, TrafficOptions, removal};

use crate::support::{all, choose, hide, in_namespace, run, until, v4, v6, variant, wait_tried, wanted};

#[test]
fn the_engine_that_is_left_is_cleaned() {
    if variant("nft").and(variant("legacy")).is_none() {
        return;
    }
    in_namespace(async |ns| {
        let wanted = wanted(&[v4(), v6()]);
        choose("legacy");
        drop(ns.traffic(Engine::Iptables, all(), wanted.clone()).await);
        assert!(run("iptables-legacy-save").contains("FLANNEL-FWD"));
        run("umount /etc/alternatives");

        choose("nft");
        let traffic = ns.traffic(Engine::Iptables, all(), wanted.clone()).await;
        assert!(traffic.status().engine.is_some_and(|engine| engine.ends_with("(nf_tables)")));
        drop(traffic);
        assert!(!(run("iptables-legacy-save") + &run("ip6tables-legacy-save")).contains("FLANNEL"));
        assert!(run("iptables-nft-save").contains("FLANNEL-FWD") && run("ip6tables-nft-save").contains("FLANNEL-FWD"));

        drop(ns.traffic(Engine::Nftables, all(), wanted.clone()).await);
        assert!(!(run("iptables-nft-save") + &run("ip6tables-nft-save")).contains("FLANNEL"));
        assert!(run("nft list tables").contains("flannel-ipv6"));

        drop(ns.traffic(Engine::Iptables, all(), wanted).await);
        assert!(!run("nft list tables").contains("flannel-ipv"));
    });
}

#[test]
fn kubelets_variant_is_taken() {
    if variant("nft").and(variant("legacy")).is_none() {
        return;
    }
    in_namespace(async |ns| {
        choose("nft");
        run("iptables-legacy -t mangle -N KUBE-IPTABLES-HINT");
        let traffic = ns.traffic(Engine::Iptables, all(), wanted(&[v4()])).await;
        assert!(traffic.status().engine.is_some_and(|engine| engine.ends_with("(legacy)")));
        assert!(run("iptables-legacy-save").contains("FLANNEL-FWD"));
    });
}

#[test]
fn a_missing_tool_is_named_and_then_waited_for() {
    if variant("legacy").is_none() {
        return;
    }
    in_namespace(async |ns| {
        // The variant whose changes emit no event, so that only a periodic check finds them.
        choose("legacy");
        for dir in ["/usr/sbin", "/usr/local/sbin"] {
            hide(dir);
        }
        for (engine, tool, package) in
            [(Engine::Iptables, "iptables", "iptables"), (Engine::Nftables, "nft", "nftables")]
        {
            let refused = Traffic::start(ns.netlink.clone(), engine, all(), wanted(&[v4()])).await;
            let error = refused.expect_err("masquerade needs the tool").to_string();
            assert!(error.contains(&format!("{tool} is not installed")), "{error}");
            assert!(error.contains(&format!("install the package {package}")), "{error}");
        }
        let forward = TrafficOptions { masquerade: MasqueradeFamilies::NONE, ..all() };
        let mut traffic = ns.traffic(Engine::Iptables, forward, wanted(&[v4()])).await;
        let status = traffic.status();
        assert!(status.error.is_some_and(|error| error.contains("iptables is not installed")));
        assert_eq!(status.engine, None);

        run("umount /usr/sbin");
        until(&mut traffic, |status| status.error.is_none() && status.engine.is_some()).await;
        assert!(run("iptables-save").contains("FLANNEL-FWD"));
        run("iptables -F FLANNEL-FWD");
        until(&mut traffic, |status| status.repairs == 1).await;
    });
}

#[test]
fn without_rules_no_tool_is_needed() {
    in_namespace(async |ns| {
        for dir in ["/usr/sbin", "/usr/local/sbin"] {
            hide(dir);
        }
        let off = TrafficOptions { masquerade: MasqueradeFamilies::NONE, forward: false, ..all() };
        let mut traffic = ns.traffic(Engine::Iptables, off, wanted(&[v4()])).await;
        assert_eq!(wait_tried(&mut traffic).await.error, None);
    });
}

#[test]
fn removal_finds_everything_and_removes_it() {
    in_namespace(async |ns| {
        let before = run("nft list ruleset");
        for engine in [Engine::Nftables, Engine::Iptables] {
            assert_eq!(removal::find().await, []);
            drop(ns.traffic(engine, all(), wanted(&[v4(), v6()])).await);
            let found = removal::find().await;
            assert_eq!(found.len(), 2, "{found:?}");
            for leftover in &found {
                leftover.remove().await.expect("removed");
            }
        }
        assert_eq!(removal::find().await, []);
        let rules = run("iptables-save") + &run("ip6tables-save");
        assert!(!rules.contains("FLANNEL"), "{rules}");
        assert!(!run("nft list ruleset").contains("flannel"), "{before}");
    });
}
