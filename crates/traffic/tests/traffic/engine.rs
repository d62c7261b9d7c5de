//! From one engine to another, and without any.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use flannel_traffic::{Engine, MasqueradeFamilies, Traffic, TrafficOptions, removal};

use crate::support::{
    all, choose, hide, in_namespace, run, until, v4, v6, variant, wait_tried, wanted,
};

#[test]
fn the_engine_that_is_left_is_cleaned() {
    if variant("nft").and(variant("legacy")).is_none() {
        return;
    }
    in_namespace(async |ns| {
        let wanted = wanted(&[v4(), v6()]);
        choose("legacy");
        drop(
            ns.traffic(Some(Engine::Iptables), all(), wanted.clone())
                .await,
        );
        assert!(run("iptables-legacy-save").contains("FLANNEL-FWD"));
        run("umount /etc/alternatives");

        choose("nft");
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted.clone())
            .await;
        assert!(
            traffic
                .status()
                .engine
                .is_some_and(|engine| engine.ends_with("(nf_tables)"))
        );
        drop(traffic);
        assert!(!(run("iptables-legacy-save") + &run("ip6tables-legacy-save")).contains("FLANNEL"));
        assert!(
            run("iptables-nft-save").contains("FLANNEL-FWD")
                && run("ip6tables-nft-save").contains("FLANNEL-FWD")
        );

        drop(
            ns.traffic(Some(Engine::Nftables), all(), wanted.clone())
                .await,
        );
        assert!(!(run("iptables-nft-save") + &run("ip6tables-nft-save")).contains("FLANNEL"));
        assert!(run("nft list tables").contains("flannel-ipv6"));

        drop(ns.traffic(Some(Engine::Iptables), all(), wanted).await);
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
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        assert!(
            traffic
                .status()
                .engine
                .is_some_and(|engine| engine.ends_with("(legacy)"))
        );
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
        for (engine, tool, package) in [
            (Engine::Iptables, "iptables", "iptables"),
            (Engine::Nftables, "nft", "nftables"),
        ] {
            let refused =
                Traffic::start(ns.netlink.clone(), Some(engine), all(), wanted(&[v4()])).await;
            let error = refused.expect_err("masquerade needs the tool").to_string();
            assert!(
                error.contains(&format!("{tool} is not installed")),
                "{error}"
            );
            assert!(
                error.contains(&format!("install the package {package}")),
                "{error}"
            );
        }
        let forward = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            ..all()
        };
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), forward, wanted(&[v4()]))
            .await;
        let status = traffic.status();
        assert!(
            status
                .error
                .is_some_and(|error| error.contains("iptables is not installed"))
        );
        assert_eq!(status.engine, None);

        run("umount /usr/sbin");
        until(&mut traffic, |status| {
            status.error.is_none() && status.engine.is_some()
        })
        .await;
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
        let off = TrafficOptions {
            masquerade: MasqueradeFamilies::NONE,
            forward: false,
            ..all()
        };
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), off, wanted(&[v4()]))
            .await;
        assert_eq!(wait_tried(&mut traffic).await.error, None);
    });
}

#[test]
fn removal_finds_everything_and_removes_it() {
    in_namespace(async |ns| {
        let before = run("nft list ruleset");
        for engine in [Engine::Nftables, Engine::Iptables] {
            assert_eq!(removal::find().await, []);
            drop(ns.traffic(Some(engine), all(), wanted(&[v4(), v6()])).await);
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

/// Leaves only these programs in the search path, for this thread and what it starts.
fn leave_only(programs: &[&str]) {
    hide("/mnt");
    run("mkdir /mnt/real");
    run("mount --bind /usr/sbin /mnt/real");
    for dir in ["/usr/sbin", "/usr/local/sbin"] {
        hide(dir);
    }
    for program in programs {
        symlink(
            format!("/mnt/real/{program}"),
            format!("/usr/sbin/{program}"),
        )
        .expect("a link");
    }
}

#[test]
fn a_host_without_iptables_uses_nftables_unless_it_comes_back() {
    in_namespace(async |ns| {
        leave_only(&["nft"]);
        for asked in [None, Some(Engine::Iptables)] {
            let traffic = ns.traffic(asked, all(), wanted(&[v4(), v6()])).await;
            let status = traffic.status();
            assert_eq!(
                (status.error, status.engine.as_deref()),
                (None, Some("nftables"))
            );
            assert_eq!(
                status.engine_reason.as_deref(),
                Some("iptables is not installed")
            );
            assert!(run("nft list tables").contains("flannel-ipv6"));
        }
        run("umount /usr/sbin");
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().engine_reason, None);
        assert!(run("iptables-save").contains("FLANNEL-FWD"));
        assert!(
            !run("nft list tables").contains("flannel-ipv"),
            "rules of the other engine are removed"
        );
    });
}

#[test]
fn a_host_without_nft_uses_iptables_whatever_is_asked_for() {
    in_namespace(async |ns| {
        choose("nft");
        leave_only(&[&READERS[..], &WRITERS].concat());
        let traffic = ns
            .traffic(Some(Engine::Nftables), all(), wanted(&[v4(), v6()]))
            .await;
        let status = traffic.status();
        assert_eq!(
            (status.error, status.engine_reason.as_deref()),
            (None, Some("nft is not installed"))
        );
        assert!(run("iptables-save").contains("FLANNEL-FWD"));
    });
}

/// The plain names lead to these of the variant.
const READERS: [&str; 8] = [
    "iptables",
    "iptables-save",
    "ip6tables",
    "ip6tables-save",
    "iptables-nft",
    "iptables-nft-save",
    "ip6tables-nft",
    "ip6tables-nft-save",
];
const WRITERS: [&str; 4] = [
    "iptables-restore",
    "ip6tables-restore",
    "iptables-nft-restore",
    "ip6tables-nft-restore",
];

/// As on a host whose kernel has no modules of iptables' extensions (RHEL 10 without
/// kernel-modules-extra): the tool is there, and each transaction is refused.
#[test]
fn where_iptables_does_not_work_nftables_takes_over() {
    const REFUSES: &str = "#!/bin/sh\ncat > /dev/null\n\
        echo 'Warning: Extension MASQUERADE revision 0 not supported, missing kernel module?' \
        >&2\nexit 4\n";
    in_namespace(async |ns| {
        choose("nft");
        leave_only(&[&READERS[..], &["nft"]].concat());
        for tool in WRITERS.map(|tool| format!("/usr/sbin/{tool}")) {
            fs::write(&tool, REFUSES).expect("a script");
            fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("it can be run");
        }
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4(), v6()]))
            .await;
        let status = traffic.status();
        assert_eq!(
            (status.error, status.engine.as_deref()),
            (None, Some("nftables"))
        );
        let reason = status.engine_reason.unwrap_or_default();
        assert!(
            reason.starts_with("iptables does not work here: ") && reason.contains("MASQUERADE"),
            "{reason}"
        );
        assert!(run("nft list table ip flannel-ipv4").contains("masquerade"));
    });
}

#[test]
fn without_a_setting_a_host_on_which_others_use_only_nftables_keeps_to_it() {
    in_namespace(async |ns| {
        run("nft add table inet others");
        run("nft add chain inet others f { type filter hook forward priority 0 ; }");
        let traffic = ns.traffic(None, all(), wanted(&[v4()])).await;
        assert_eq!(traffic.status().engine.as_deref(), Some("nftables"));
        drop(traffic);
        let traffic = ns
            .traffic(Some(Engine::Iptables), all(), wanted(&[v4()]))
            .await;
        assert!(
            traffic
                .status()
                .engine
                .is_some_and(|engine| engine.starts_with("iptables"))
        );
        assert!(!run("nft list tables").contains("flannel-ipv"));
    });
}
