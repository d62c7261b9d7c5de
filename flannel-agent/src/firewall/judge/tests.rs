use std::fmt::Write as _;

use super::{
    super::{nft, save},
    *,
};

const SAVED: &str = "\
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:CALLED - [0:0]
:LOCAL - [0:0]
:PINGS - [0:0]
-A INPUT -j LOCAL
-A LOCAL -m limit --limit 5/sec -j ACCEPT
-A INPUT -p udp -m udp --dport 8472 -j DROP
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m comment --comment \"a -m limit -j ACCEPT\" -j CALLED
-A FORWARD -p icmp -j PINGS
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m limit --limit 5/sec -j ACCEPT
-A FORWARD -p tcp -m conntrack --ctstate NEW -m recent --set --name x --mask 255.255.255.255 --rsource
-A PINGS -m limit --limit 5/sec -j ACCEPT
-A CALLED -m string --string \"foo\" --algo bm -j DROP
-A CALLED -m quota --quota 1000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m statistic --mode random --probability 0.5 -j RETURN
COMMIT
";

const LISTED: &str = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
    {"chain": {"family": "inet", "table": "t", "name": "f", "handle": 1, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
    {"chain": {"family": "inet", "table": "t", "name": "by-map", "handle": 2}},
    {"chain": {"family": "inet", "table": "t", "name": "services", "handle": 3}},
    {"chain": {"family": "inet", "table": "t", "name": "n", "handle": 4, "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}},
    {"map": {"family": "inet", "name": "m", "table": "t", "type": "mark", "map": "verdict", "elem": [[1, {"jump": {"target": "by-map"}}]]}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 5, "expr": [{"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@m"}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 6, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "length"}}, "right": 100}}, {"drop": null}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "by-map", "handle": 7, "expr": [{"limit": {"rate": 5, "burst": 5, "per": "second"}}, {"accept": null}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "n", "handle": 8, "expr": [{"jump": {"target": "services"}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "services", "handle": 9, "expr": [{"match": {"op": "==", "left": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "right": 0}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 10, "expr": [{"xt": {"type": "match", "name": "string"}}, {"drop": null}]}},
    {"chain": {"family": "inet", "table": "t", "name": "o", "handle": 11, "type": "filter", "hook": "output", "prio": 0, "policy": "accept"}},
    {"rule": {"family": "inet", "table": "t", "chain": "o", "handle": 12, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": {"set": [53, 8472]}}}, {"accept": null}]}}
]}"#;

fn named(rules: &Ruleset, port: Option<u16>) -> Vec<String> {
    rules.per_packet(port).iter().map(ToString::to_string).collect()
}

fn saved(lines: &str) -> Vec<String> {
    let chains = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n";
    named(&save::parse("ip", &format!("*filter\n{chains}{lines}\n")), Some(8472))
}

/// The rules of a chain at this hook.
fn listed(family: &str, hook: &str, expr: &str) -> Vec<String> {
    let chain = format!(r#""family": "{family}", "table": "t", "name": "c", {hook}"#);
    let rule = format!(r#""family": "{family}", "table": "t", "chain": "c", "expr": [{expr}]"#);
    let text = format!(r#"{{"nftables": [{{"chain": {{{chain}}}}}, {{"rule": {{{rule}}}}}]}}"#);
    named(&nft::parse(&text).expect("a document"), Some(8472))
}

#[test]
fn rules_for_single_packets_are_found_where_pods_packets_pass() {
    assert_eq!(named(&save::parse("ip", SAVED), None), ["ip filter CALLED (quota, string)"]);
    let listed = nft::parse(LISTED).expect("a document");
    assert_eq!(named(&listed, None), ["inet t by-map (limit)", "inet t f (meta length, string)"]);
    assert_eq!(nft::parse("{}"), None);
}

#[test]
fn rules_for_packets_that_are_never_replayed_are_exact() {
    let limit = r#"{"limit": {"rate": 5, "burst": 5, "per": "second"}}"#;
    let is = |left: &str, op: &str, right: &str| {
        format!(r#"{{"match": {{"op": "{op}", "left": {left}, "right": {right}}}}}"#)
    };
    let l4 = r#"{"meta": {"key": "l4proto"}}"#;
    let state = is(r#"{"ct": {"key": "state"}}"#, "in", r#""new""#);
    let flags = r#"{"payload": {"protocol": "tcp", "field": "flags"}}"#;
    let forward = r#""hook": "forward""#;
    let limited = ["inet t c (limit)"];
    for (expr, found) in [
        (is(l4, "==", r#""icmp""#), false),
        (is(l4, "==", "132"), false),
        (is(l4, "==", r#"{"set": ["icmp", "udp"]}"#), true),
        (is(l4, "!=", r#""tcp""#), true),
        (is(r#"{"payload": {"protocol": "icmp", "field": "type"}}"#, "!=", r#""echo-reply""#), false),
        (is(flags, "in", r#""syn""#), false),
        (is(flags, "==", r#"{"set": [{"|": ["syn", "ack"]}, "syn"]}"#), false),
        (is(&format!(r#"{{"&": [{flags}, ["fin", "syn", "rst", "ack"]]}}"#), "==", r#""syn""#), false),
        (is(flags, "!=", r#""syn""#), true),
        (state.clone(), true),
        (format!("{}, {state}", is(l4, "==", r#""tcp""#)), false),
    ] {
        let named = listed("inet", forward, &format!("{expr}, {limit}"));
        assert_eq!(named, if found { &limited[..] } else { &[] }, "{expr}");
        assert_eq!(listed("inet", forward, &format!("{limit}, {expr}")), limited, "{expr}");
    }
}

#[test]
fn bridges_and_devices_count_and_arp_does_not() {
    let limit = r#"{"limit": {"rate": 5, "burst": 5, "per": "second"}}"#;
    for hook in ["prerouting", "input", "forward", "output", "postrouting"] {
        assert_eq!(listed("bridge", &format!(r#""hook": "{hook}""#), limit), ["bridge t c (limit)"]);
    }
    let one = r#""hook": "ingress", "dev": "eth0""#;
    assert_eq!(listed("netdev", one, limit), ["netdev t c on eth0 (limit)"]);
    let two = r#""hook": "egress", "dev": ["eth0", "cni0"]"#;
    assert_eq!(listed("netdev", two, limit), ["netdev t c on eth0, cni0 (limit)"]);
    assert_eq!(listed("inet", one, limit), ["inet t c on eth0 (limit)"]);
    assert!(listed("arp", r#""hook": "input""#, limit).is_empty());
}

#[test]
fn rules_tunnel_packets_meet_are_found_unless_they_are_for_others() {
    for (line, found) in [
        ("-A OUTPUT -m length --length 0:100 -j DROP", "ip filter OUTPUT (length) for tunnel packets"),
        (
            "-A OUTPUT -p udp -m udp --dport 8472 -m length --length 0:100",
            "ip filter OUTPUT (length) for tunnel packets",
        ),
        ("-A OUTPUT -p udp -m udp --dport 8000:9000 -m u32 --u32 0=0", "ip filter OUTPUT (u32) for tunnel packets"),
        ("-A OUTPUT -p udp -m udp ! --dport 53 -m u32 --u32 0=0", "ip filter OUTPUT (u32) for tunnel packets"),
        ("-A OUTPUT -p tcp -m length --length 0:100", ""),
        ("-A OUTPUT -p udp -m udp --dport 53 -m length --length 0:100", ""),
        ("-A OUTPUT -p udp -m udp ! --dport 8472 -m length --length 0:100", ""),
        ("-A OUTPUT -p udp -m multiport --dports 53,67 -m length --length 0:100", ""),
        ("-A OUTPUT -p udp -m udp --sport 40000:50000 -j DROP", "ip filter OUTPUT (source port) for tunnel packets"),
        ("-A OUTPUT -p udp -m udp --sport 53 -j DROP", ""),
        ("-A INPUT -p udp -m udp --sport 40000:50000 -j DROP", ""),
        ("-A INPUT -m length --length 0:100", "ip filter INPUT (length) for tunnel packets"),
        ("-A OUTPUT -m dscp --dscp 0x2e -j DROP", ""),
        ("-A OUTPUT -m ttl --ttl-lt 3 -j DROP", ""),
        ("-A OUTPUT -j HMARK --hmark-mod 2", "ip filter OUTPUT (HMARK) for tunnel packets"),
        ("-A FORWARD -j HMARK --hmark-mod 2", ""),
        ("-A POSTROUTING -m u32 --u32 0=0", "ip filter POSTROUTING (u32)"),
        (
            "-A POSTROUTING -m u32 --u32 0=0\n-A POSTROUTING -j HMARK --hmark-mod 2",
            "ip filter POSTROUTING (u32) and (HMARK) for tunnel packets",
        ),
    ] {
        assert_eq!(saved(line).join("; "), found, "{line}");
    }
    let rules = save::parse("ip", "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m length --length 5\n");
    assert!(rules.per_packet(Some(8472)).iter().all(PerPacket::concerns_encap));
    let rules = save::parse("ip", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m length --length 5\n");
    assert!(!rules.per_packet(Some(8472)).iter().any(PerPacket::concerns_encap));
    assert!(rules.per_packet(None).is_empty());
}

#[test]
fn a_chain_that_nat_and_filter_call_counts() {
    let text = r#"{"nftables": [
        {"chain": {"family": "ip", "table": "t", "name": "n", "type": "nat", "hook": "prerouting"}},
        {"chain": {"family": "ip", "table": "t", "name": "f", "type": "filter", "hook": "forward"}},
        {"chain": {"family": "ip", "table": "t", "name": "both"}},
        {"rule": {"family": "ip", "table": "t", "chain": "n", "expr": [{"jump": {"target": "both"}}]}},
        {"rule": {"family": "ip", "table": "t", "chain": "f", "expr": [{"jump": {"target": "both"}}]}},
        {"rule": {"family": "ip", "table": "t", "chain": "both", "expr": [{"log": null}]}}]}"#;
    assert_eq!(named(&nft::parse(text).expect("a document"), None), ["ip t both (log)"]);
    let nat_only = text.replace(r#""type": "filter""#, r#""type": "nat""#);
    assert!(named(&nft::parse(&nat_only).expect("a document"), None).is_empty());
}

#[test]
fn sets_do_what_they_do_at_every_look_up() {
    let rule = |set: &str, expr: &str| {
        let text = format!(
            r#"{{"nftables": [
            {{"chain": {{"family": "ip", "table": "t", "name": "f", "type": "filter", "hook": "forward"}}}},
            {{"set": {{"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr" {set}}}}},
            {{"rule": {{"family": "ip", "table": "t", "chain": "f", "expr": [{expr}]}}}}]}}"#
        );
        named(&nft::parse(&text).expect("a document"), None)
    };
    let source = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;
    let is_in = format!(r#"{{"match": {{"op": "==", "left": {source}, "right": "@s"}}}}"#);
    assert!(rule("", &is_in).is_empty());
    assert!(rule(r#", "stmt": [{"counter": null}]"#, &is_in).is_empty());
    assert_eq!(rule(r#", "stmt": [{"limit": {"rate": 5, "per": "second"}}]"#, &is_in), ["ip t f (limit)"]);
    let write = |op: &str, elem: &str, more: &str| {
        format!(r#"{{"set": {{"op": "{op}", "elem": {elem}, "set": "@s" {more}}}}}"#)
    };
    let short = format!(r#"{{"elem": {{"val": {source}, "timeout": 3}}}}"#);
    assert!(rule("", &write("add", source, "")).is_empty());
    assert!(rule("", &write("delete", source, "")).is_empty());
    assert!(rule("", &write("update", source, "")).is_empty());
    assert_eq!(rule("", &write("update", &short, "")), ["ip t f (set update)"]);
    assert_eq!(rule(r#", "timeout": 2"#, &write("update", source, "")), ["ip t f (set update)"]);
    assert!(rule(r#", "timeout": 60"#, &write("update", source, "")).is_empty());
    assert_eq!(rule("", &write("destroy", source, "")), ["ip t f (unknown statement set destroy)"]);
    let limit = r#", "stmt": [{"limit": {"rate": 5, "per": "second"}}]"#;
    assert_eq!(rule("", &write("add", source, limit)), ["ip t f (limit)"]);
    let meter = format!(r#"{{"meter": {{"key": {source}, "stmt": {{"limit": {{"rate": 5}}}}, "name": "m"}}}}"#);
    assert_eq!(rule("", &meter), ["ip t f (limit)"]);
}

#[test]
fn hidden_options_are_taken_from_the_tool_that_shows_them() {
    let text = r#"{"nftables": [
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward"}},
        {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "expr": [{"xt": {"type": "match", "name": "tos"}}, {"drop": null}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "expr": [{"xt": null}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "expr": [{"log": null}]}}]}"#;
    let listed = nft::parse(text).expect("a document");
    assert_eq!(
        named(&listed, None),
        ["ip filter FORWARD (extension with unknown options, log, tos with unknown options)"]
    );
    assert_eq!(listed.families_with_hidden(), BTreeSet::from(["ip".to_owned()]));
    let reveal = |line: &str| {
        let mut rules = listed.clone();
        let others = "-A FORWARD -m comment --comment x -j ACCEPT\n-A FORWARD -j NFLOG\n";
        rules.reveal(save::parse("ip", &format!("*filter\n:FORWARD ACCEPT [0:0]\n{line}\n{others}")));
        named(&rules, None)
    };
    assert_eq!(reveal("-A FORWARD -m tos --tos 0x10/0xff -j DROP"), ["ip filter FORWARD (log, tos)"]);
    assert_eq!(reveal("-A FORWARD -m tos --tos 0x10/0xfc -j DROP"), ["ip filter FORWARD (log)"]);
    assert_eq!(reveal("").len(), 1, "one rule less");
    assert!(reveal("")[0].contains("tos with unknown options"));
    let mut rules = listed.clone();
    rules.reveal(save::parse("ip", "*mangle\n:FORWARD ACCEPT [0:0]\n"));
    assert_eq!(rules, listed);
}

#[test]
fn a_target_that_is_no_chain_is_unknown() {
    assert_eq!(saved("-A FORWARD -j DELUDE"), ["ip filter FORWARD (unknown target DELUDE)"]);
    assert_eq!(saved("-A FORWARD -j DELUDE --way 5"), ["ip filter FORWARD (unknown target DELUDE)"]);
    assert!(saved(":MINE - [0:0]\n-A FORWARD -j MINE").is_empty());
}

#[test]
fn rules_at_the_tunnels_port_and_policies_that_drop_are_found() {
    let saved = save::parse("ip", SAVED);
    assert_eq!(saved.at_port(8472), BTreeMap::from([("ip filter INPUT".to_owned(), true)]));
    assert_eq!(saved.at_port(4789), BTreeMap::new());
    assert_eq!(saved.dropping_policies("input"), ["ip filter INPUT"]);
    let listed = nft::parse(LISTED).expect("a document");
    assert_eq!(listed.at_port(8472), BTreeMap::from([("inet t o".to_owned(), false)]));
    assert_eq!(listed.dropping_policies("forward"), ["inet t f"]);
    assert!(saved.has_chain("CALLED") && !saved.has_chain("FLANNEL-FWD"));
}

#[test]
fn tens_of_thousands_of_rules_are_read_in_no_time() {
    let mut text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j KUBE-SVC-0\n".to_owned();
    for i in 0..5000 {
        writeln!(text, ":KUBE-SVC-{i} - [0:0]").expect("to a string");
    }
    for i in 0..50_000 {
        let (chain, next) = (i % 5000, (i + 1) % 5000);
        let comment = r#"-m comment --comment "x y""#;
        writeln!(text, "-A KUBE-SVC-{chain} -p tcp -m tcp --dport {i} {comment} -j KUBE-SVC-{next}")
            .expect("to a string");
    }
    let started = std::time::Instant::now();
    let rules = save::parse("ip", &text);
    assert!(rules.per_packet(Some(8472)).is_empty());
    // A second even where nothing is optimised; work in the square of the rules takes minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}
