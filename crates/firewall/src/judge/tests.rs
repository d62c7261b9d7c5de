use std::fmt::Write as _;

use super::{super::saved, *};

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
-A FORWARD -p tcp -m conntrack --ctstate NEW -m recent --set --name x --mask 255.255.255.255 \
--rsource
-A PINGS -m limit --limit 5/sec -j ACCEPT
-A CALLED -m string --string \"foo\" --algo bm -j DROP
-A CALLED -m quota --quota 1000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m statistic --mode random --probability 0.5 -j RETURN
COMMIT
";

const PORT: Option<u16> = Some(8472);

fn named(rules: &Ruleset) -> Vec<String> {
    rules.per_packet().iter().map(ToString::to_string).collect()
}

fn parse(text: &str) -> Ruleset {
    saved::parse("ip", text, PORT)
}

fn in_filter(lines: &str) -> Vec<String> {
    let chains = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING \
        ACCEPT [0:0]\n";
    named(&parse(&format!("*filter\n{chains}{lines}\n")))
}

#[test]
fn rules_for_single_packets_are_found_where_pods_packets_pass() {
    assert_eq!(
        named(&saved::parse("ip", SAVED, None)),
        ["ip filter CALLED (quota, string)"]
    );
}

/// Rules, and those of them that are found.
const RULES: [(&str, &str); 18] = [
    (
        "-A OUTPUT -m length --length 0:100 -j DROP",
        "ip filter OUTPUT (length) for tunnel packets",
    ),
    (
        "-A OUTPUT -p udp -m udp --dport 8472 -m length --length 0:100",
        "ip filter OUTPUT (length) for tunnel packets",
    ),
    (
        "-A OUTPUT -p udp -m udp --dport 8000:9000 -m u32 --u32 0=0",
        "ip filter OUTPUT (u32) for tunnel packets",
    ),
    (
        "-A OUTPUT -p udp -m udp ! --dport 53 -m u32 --u32 0=0",
        "ip filter OUTPUT (u32) for tunnel packets",
    ),
    ("-A OUTPUT -p tcp -m length --length 0:100", ""),
    (
        "-A OUTPUT -p udp -m udp --dport 53 -m length --length 0:100",
        "",
    ),
    (
        "-A OUTPUT -p udp -m udp ! --dport 8472 -m length --length 0:100",
        "",
    ),
    (
        "-A OUTPUT -p udp -m multiport --dports 53,67 -m length --length 0:100",
        "",
    ),
    (
        "-A OUTPUT -p udp -m udp --sport 40000:50000 -j DROP",
        "ip filter OUTPUT (source port) for tunnel packets",
    ),
    ("-A OUTPUT -p udp -m udp --sport 53 -j DROP", ""),
    (
        "-A INPUT -p udp -m udp --sport 40000:50000 -j DROP",
        "ip filter INPUT (source port) for tunnel packets",
    ),
    (
        "-A INPUT -m length --length 0:100",
        "ip filter INPUT (length) for tunnel packets",
    ),
    ("-A OUTPUT -m dscp --dscp 0x2e -j DROP", ""),
    ("-A OUTPUT -m ttl --ttl-lt 3 -j DROP", ""),
    (
        "-A OUTPUT -j HMARK --hmark-mod 2",
        "ip filter OUTPUT (HMARK) for tunnel packets",
    ),
    ("-A FORWARD -j HMARK --hmark-mod 2", ""),
    (
        "-A POSTROUTING -m u32 --u32 0=0",
        "ip filter POSTROUTING (u32)",
    ),
    (
        "-A POSTROUTING -m u32 --u32 0=0\n-A POSTROUTING -j HMARK --hmark-mod 2",
        "ip filter POSTROUTING (u32) and (HMARK) for tunnel packets",
    ),
];

#[test]
fn rules_tunnel_packets_meet_are_found_unless_they_are_for_others() {
    for (line, found) in RULES {
        assert_eq!(in_filter(line).join("; "), found, "{line}");
    }
    let rules = parse("*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m length --length 5\n");
    assert!(rules.per_packet().iter().all(PerPacket::concerns_encap));
    let input = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m length --length 5\n";
    assert!(
        !parse(input)
            .per_packet()
            .iter()
            .any(PerPacket::concerns_encap)
    );
    assert!(saved::parse("ip", input, None).per_packet().is_empty());
}

#[test]
fn a_target_that_is_no_chain_is_unknown() {
    assert_eq!(
        in_filter("-A FORWARD -j DELUDE"),
        ["ip filter FORWARD (unknown target DELUDE)"]
    );
    assert_eq!(
        in_filter("-A FORWARD -j DELUDE --way 5"),
        ["ip filter FORWARD (unknown target DELUDE)"]
    );
    assert!(in_filter(":MINE - [0:0]\n-A FORWARD -j MINE").is_empty());
}

#[test]
fn rules_at_the_tunnels_port_and_policies_that_drop_are_found() {
    let rules = parse(SAVED);
    assert_eq!(
        rules.at_port(),
        BTreeMap::from([("ip filter INPUT".to_owned(), true)])
    );
    assert_eq!(
        saved::parse("ip", SAVED, Some(4789)).at_port(),
        BTreeMap::new()
    );
    assert_eq!(rules.dropping_policies("input"), ["ip filter INPUT"]);
    assert!(rules.has_chain("CALLED") && !rules.has_chain("FLANNEL-FWD"));
}

#[test]
fn tens_of_thousands_of_rules_are_read_in_no_time() {
    let mut text = "*filter\n:FORWARD ACCEPT [0:0]\n".to_owned();
    for i in 0..5000 {
        writeln!(text, ":KUBE-SVC-{i} - [0:0]").expect("to a string");
    }
    text.push_str("-A FORWARD -j KUBE-SVC-0\n");
    for i in 0..50_000 {
        let (chain, next) = (i % 5000, (i + 1) % 5000);
        let comment = r#"-m comment --comment "x y""#;
        writeln!(
            text,
            "-A KUBE-SVC-{chain} -p tcp -m tcp --dport {i} {comment} -j KUBE-SVC-{next}"
        )
        .expect("to a string");
    }
    let started = std::time::Instant::now();
    assert!(parse(&text).per_packet().is_empty());
    // An unoptimised build takes a second; work in the square of the rules takes minutes.
    assert!(
        started.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_chain_that_drops_forwarded_packets_is_found_unless_a_rule_in_front_may_accept_some() {
    let closed = |policy: &str, rules: &[&str]| {
        let rules: Vec<String> = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
        let rules = rules.concat();
        let called = if rules.contains("FLANNEL-FWD") {
            ":FLANNEL-FWD - [0:0]\n"
        } else {
            ""
        };
        parse(&format!(
            "*filter\n:FORWARD {policy} [0:0]\n:C - [0:0]\n{called}{rules}COMMIT\n"
        ))
        .closed_forward()
    };
    let forward = ["ip filter FORWARD"];
    assert_eq!(closed("ACCEPT", &[]), [""; 0]);
    assert_eq!(closed("DROP", &[]), forward);
    assert_eq!(closed("DROP", &["FORWARD -j FLANNEL-FWD"]), [""; 0]);
    // As RHEL's iptables-services have it.
    let reject = "FORWARD -j REJECT --reject-with icmp-host-prohibited";
    assert_eq!(closed("ACCEPT", &[reject]), forward);
    assert_eq!(
        closed("ACCEPT", &[reject, "FORWARD -j FLANNEL-FWD"]),
        forward,
        "flannel's rules come too late"
    );
    assert_eq!(
        closed("ACCEPT", &["FORWARD -m comment --comment all -j DROP"]),
        forward
    );
    assert_eq!(
        closed("ACCEPT", &["FORWARD -j C", "C -j DROP"]),
        ["ip filter C"]
    );
    for spared in [
        &["FORWARD -j FLANNEL-FWD", reject][..],
        &["FORWARD -s 10.244.0.0/16 -j ACCEPT", reject],
        &["FORWARD -i eth1 -j DROP"],
        &["FORWARD -p tcp -j DROP"],
        &["FORWARD -m conntrack --ctstate INVALID -j DROP"],
        &["FORWARD -s 10.9.0.0/16 -j C", "C -j DROP"],
    ] {
        assert_eq!(closed("ACCEPT", spared), [""; 0], "{spared:?}");
    }
}
