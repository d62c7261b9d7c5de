//! Routing rules and xfrm policies.

use flannel_host::family::Family;
use flannel_netlink::{
    PolicyDirection, Rule, RuleAction, RuleSelector, TunnelFlow, TunnelPolicy, TunnelPolicyKey,
    XfrmAction, tunnel_depends_on,
};

use crate::namespace::{addr, in_namespace, ip};

#[test]
fn a_fresh_namespace_s_rules_are_plain() {
    in_namespace(async |ns| {
        let v4 = ns.netlink.rules(Family::V4).await.expect("rules");
        assert_eq!(
            v4,
            [
                Rule::to_table(0, 255),
                Rule::to_table(32766, 254),
                Rule::to_table(32767, 253)
            ]
        );
        let v6 = ns.netlink.rules(Family::V6).await.expect("rules");
        assert_eq!(v6, [Rule::to_table(0, 255), Rule::to_table(32766, 254)]);
    });
}

type Select = fn(&mut Rule);

const SELECTORS: [(&str, Select); 11] = [
    ("from 10.9.0.0/24", |rule| {
        rule.from = "10.9.0.0/24".parse().ok();
    }),
    ("to 10.9.0.0/24", |rule| {
        rule.to = "10.9.0.0/24".parse().ok();
    }),
    ("fwmark 0x10/0xf0", |rule| rule.fwmark = Some((0x10, 0xf0))),
    ("fwmark 0x10", |rule| rule.fwmark = Some((0x10, u32::MAX))),
    ("iif lo", |rule| rule.iif = Some("lo".into())),
    ("oif eth0", |rule| rule.oif = Some("eth0".into())),
    ("uidrange 5-9", |rule| rule.uid_range = Some(5..=9)),
    ("ipproto udp sport 1-99", |rule| {
        rule.ip_proto = Some(17);
        rule.sport = Some(1..=99);
    }),
    ("ipproto udp dport 8472", |rule| {
        rule.ip_proto = Some(17);
        rule.dport = Some(8472..=8472);
    }),
    ("tos 0x10", |rule| rule.tos = 0x10),
    ("not from 10.9.0.0/24", |rule| {
        rule.from = "10.9.0.0/24".parse().ok();
        rule.invert = true;
    }),
];

#[test]
fn selectors_are_read_as_ip_shows_them() {
    in_namespace(async |ns| {
        for (arguments, select) in SELECTORS {
            let mut expected = Rule::to_table(100, 4000);
            select(&mut expected);
            ip(&format!("rule add pref 100 {arguments} lookup 4000"));
            let rules = ns.netlink.rules(Family::V4).await.expect("rules");
            assert_eq!(rules[1], expected, "{arguments}");
            ip("rule del pref 100");
        }
        ip("rule add pref 100 prohibit");
        assert_eq!(
            ns.netlink.rules(Family::V4).await.expect("rules")[1].action,
            RuleAction::Prohibit
        );
    });
}

#[test]
fn a_mark_rule_is_found() {
    in_namespace(async |ns| {
        ip("rule add pref 100 from 10.9.0.0/24 lookup 100");
        let plain = ns.netlink.rules(Family::V4).await.expect("rules");
        assert_eq!(tunnel_depends_on(&plain), None);
        ip("rule add pref 101 fwmark 1 lookup 100");
        let found = tunnel_depends_on(&ns.netlink.rules(Family::V4).await.expect("rules"))
            .expect("a dependence");
        assert_eq!((found.priority, found.on), (101, RuleSelector::FwMark));
    });
}

#[test]
fn outgoing_policies_are_read() {
    in_namespace(async |ns| {
        assert_eq!(ns.netlink.out_policies().await.expect("policies"), []);
        ip(
            "xfrm policy add src 10.9.0.1/32 dst 10.9.0.0/24 proto udp dport 8472 dir out priority \
             7 \
            tmpl src 10.9.0.1 dst 10.9.0.2 proto esp mode tunnel",
        );
        ip("xfrm policy add src fd00:9::/64 dst fd00:9::2/128 dir out action block");
        ip("xfrm policy add src 10.9.0.0/24 dst 10.9.0.1/32 dir in");
        let mut policies = ns.netlink.out_policies().await.expect("policies");
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority));
        assert_eq!(policies.len(), 2);
        let (v4, v6) = (&policies[0], &policies[1]);
        assert_eq!(
            (v4.action, v4.has_templates, v4.priority),
            (XfrmAction::Allow, true, 7)
        );
        assert_eq!((v6.action, v6.has_templates), (XfrmAction::Block, false));

        let flow = |src: &str, dst: &str, dport| TunnelFlow {
            src: addr(src),
            dst: addr(dst),
            dport,
        };
        assert!(v4.covers(&flow("10.9.0.1", "10.9.0.2", 8472)));
        assert!(!v4.covers(&flow("10.9.0.1", "10.9.0.2", 4789)));
        assert!(!v4.covers(&flow("10.9.0.1", "10.8.0.2", 8472)));
        assert!(v6.covers(&flow("fd00:9::1", "fd00:9::2", 8472)));
    });
}

#[test]
fn the_default_policy_is_read() {
    in_namespace(async |ns| {
        assert!(
            !ns.netlink
                .out_policy_default_blocks()
                .await
                .expect("the default")
        );
        ip("xfrm policy setdefault out block");
        assert!(
            ns.netlink
                .out_policy_default_blocks()
                .await
                .expect("the default")
        );
    });
}

fn assert_policy_is_shown() {
    let shown = ip("xfrm policy show dir out");
    for part in [
        "src 10.5.1.0/24 dst 10.5.2.0/24",
        "tmpl src 10.9.0.1 dst 10.9.0.2",
        "reqid 11 mode tunnel",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn a_tunnel_policy_is_made_changed_and_removed_as_ip_shows_it() {
    in_namespace(async |ns| {
        let net = |text: &str| text.parse().expect("a prefix");
        let key = |direction| TunnelPolicyKey {
            direction,
            src: net("10.5.1.0/24"),
            dst: net("10.5.2.0/24"),
        };
        let policy = TunnelPolicy {
            src: addr("10.9.0.1"),
            dst: addr("10.9.0.2"),
            reqid: 11,
            priority: 0,
        };
        for direction in [
            PolicyDirection::Out,
            PolicyDirection::In,
            PolicyDirection::Forward,
        ] {
            ns.netlink
                .replace_tunnel_policy(&key(direction), &policy)
                .await
                .expect("made");
        }
        assert_policy_is_shown();
        let moved = TunnelPolicy {
            dst: addr("10.9.0.3"),
            ..policy
        };
        ns.netlink
            .replace_tunnel_policy(&key(PolicyDirection::Out), &moved)
            .await
            .expect("changed");
        let mut found = ns.netlink.tunnel_policies().await.expect("policies");
        found.sort_by_key(|(key, _)| *key);
        let expected = [
            (PolicyDirection::In, policy),
            (PolicyDirection::Out, moved),
            (PolicyDirection::Forward, policy),
        ];
        assert_eq!(
            found,
            expected.map(|(direction, policy)| (key(direction), policy))
        );
        ns.netlink
            .del_tunnel_policy(&key(PolicyDirection::Out))
            .await
            .expect("removed");
        assert_eq!(
            ns.netlink.tunnel_policies().await.expect("policies").len(),
            2
        );
        let gone = ns
            .netlink
            .del_tunnel_policy(&key(PolicyDirection::Out))
            .await;
        assert!(gone.is_err_and(|error| error.is_gone()));
    });
}

#[test]
fn a_policy_of_others_is_not_replaced() {
    in_namespace(async |ns| {
        ip(
            "xfrm policy add src 10.5.1.0/24 dst 10.5.2.0/24 dir out priority 7 \
            tmpl src 10.9.0.1 dst 10.9.0.2 proto esp reqid 5 mode tunnel",
        );
        let net = |text: &str| text.parse().expect("a prefix");
        let key = TunnelPolicyKey {
            direction: PolicyDirection::Out,
            src: net("10.5.1.0/24"),
            dst: net("10.5.2.0/24"),
        };
        let policy = TunnelPolicy {
            src: addr("10.9.0.1"),
            dst: addr("10.9.0.2"),
            reqid: 11,
            priority: 0,
        };
        let refused = ns.netlink.replace_tunnel_policy(&key, &policy).await;
        assert!(refused.is_err_and(|error| error.is_exists()));
        let theirs = ns.netlink.tunnel_policies().await.expect("policies");
        assert_eq!(
            theirs,
            [(
                key,
                TunnelPolicy {
                    reqid: 5,
                    priority: 7,
                    ..policy
                }
            )]
        );
    });
}
