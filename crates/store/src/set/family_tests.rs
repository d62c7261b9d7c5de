//! Each backend with each choice of families.

use flannel_host::family::Family;
use proptest::prelude::*;

use super::*;
use crate::{BadAttrs, Entry, LeaseAttrs, Precedence, config::NetworkConfig};

const V4: &str = r#""Network":"10.5.0.0/16""#;
const V6: &str = r#""EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;
const V6_ONLY: &str = r#""EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:5::/48""#;
const OWN: &str = "10.5.1.0-24&fd00:5:0:1::-64";

fn data(family: char, n: u8) -> String {
    format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:0{family}:{n:02x}"}}"#)
}

/// The value of node `n` with both families and VTEPs: 192.0.2.n and 2001:db8::n.
fn dual(n: u8) -> String {
    let (v4, v6) = (data('4', n), data('6', n));
    format!(
        r#"{{"PublicIP":"192.0.2.{n}","PublicIPv6":"2001:db8::{n}","BackendType":"vxlan","BackendData":{v4},"BackendV6Data":{v6}}}"#
    )
}

fn v4_only(n: u8) -> String {
    format!(
        r#"{{"PublicIP":"192.0.2.{n}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{}}}"#,
        data('4', n)
    )
}

fn v6_only(n: u8) -> String {
    let data = data('6', n);
    format!(
        r#"{{"PublicIP":"0.0.0.0","PublicIPv6":"2001:db8::{n}","BackendType":"vxlan","BackendV6Data":{data}}}"#
    )
}

fn without_tunnel(backend: &str, n: u8) -> String {
    format!(r#"{{"PublicIP":"192.0.2.{n}","PublicIPv6":"2001:db8::{n}"{backend}}}"#)
}

fn entry(name: &str, value: &str) -> Entry {
    Entry::parse(name, value.as_bytes(), 1, 1)
}

/// Returns the set of a node with this configuration, value and key, and of these entries.
fn set(families: &str, backend: &str, own: &str, key: &str, entries: Vec<Entry>) -> LeaseSet {
    let text = format!(r#"{{{families},"Backend":{{"Type":"{backend}"}}}}"#);
    let config = NetworkConfig::parse(&text).expect("a configuration");
    let mut set = LeaseSet::new(
        &config,
        Precedence::FirstRenewed,
        LeaseAttrs::parse(own.as_bytes()).expect("our value"),
    );
    set.set_own_key(key.parse().expect("our key"));
    set.replace(entries);
    set
}

/// The same for a node with both families and the backend vxlan.
fn dual_set(entries: Vec<Entry>) -> LeaseSet {
    set(&format!("{V4},{V6}"), "vxlan", &dual(1), OWN, entries)
}

fn resolved(set: &LeaseSet) -> Vec<String> {
    let Resolved { peers, rejected } = set.resolve();
    let peers = peers.iter().map(
        |Peer {
             subnet,
             public_ip,
             end,
             ..
         }| match end {
            Some(TunnelEnd::Vxlan(Vtep {
                mac,
                zero_checksum_v6,
                ..
            })) => {
                format!("{subnet} {public_ip} {mac} {zero_checksum_v6}")
            }
            Some(TunnelEnd::Wireguard(end)) => format!("{subnet} {} at {}", end.key, end.endpoint),
            Some(TunnelEnd::Text(text)) => format!("{subnet} {public_ip} {text}"),
            None => format!("{subnet} {public_ip}"),
        },
    );
    peers
        .chain(rejected.iter().map(ToString::to_string))
        .collect()
}

#[test]
fn a_node_with_both_families_meets_others_in_those_they_have() {
    let entries = vec![
        entry(OWN, &dual(1)),
        entry("10.5.2.0-24", &v4_only(2)),
        entry("0.0.0.0-0&fd00:5:0:3::-64", &v6_only(3)),
        entry(
            "10.5.4.0-24&fd00:5:0:4::-64",
            &dual(4).replace(r#""}}"#, r#"","ZeroChecksumV6":true}}"#),
        ),
    ];
    let expected = [
        "10.5.2.0/24 192.0.2.2 02:00:00:00:04:02 false",
        "10.5.4.0/24 192.0.2.4 02:00:00:00:04:04 false",
        "fd00:5:0:3::/64 2001:db8::3 02:00:00:00:06:03 false",
        "fd00:5:0:4::/64 2001:db8::4 02:00:00:00:06:04 true",
    ];
    assert_eq!(resolved(&dual_set(entries.clone())), expected);
    // A family that is off is not looked at, whatever is wrong in it.
    let broken = |v4: &str, v6: &str| {
        let key = format!("{v4}&{v6}");
        [
            entries.clone(),
            vec![entry(
                &key,
                &dual(5).replace("02:00:00:00:0", "01:00:00:00:0"),
            )],
        ]
        .concat()
    };
    let v4 = set(
        V4,
        "vxlan",
        &v4_only(1),
        "10.5.1.0-24",
        broken("10.6.0.0-24", "fd00:5:0:5::-64"),
    );
    assert_eq!(resolved(&v4)[..2], expected[..2]);
    assert_eq!(
        v4.resolve()
            .rejected
            .iter()
            .map(|rejected| rejected.family)
            .collect::<Vec<_>>(),
        [
            Some(Family::V4), // Our own, as it was when IPv6 was on.
            Some(Family::V4),
        ]
    );
    let own = "0.0.0.0-0&fd00:5:0:1::-64";
    let v6 = set(
        V6_ONLY,
        "vxlan",
        &v6_only(1),
        own,
        vec![
            entries[1].clone(),
            entries[2].clone(),
            entry(own, &v6_only(1)),
        ],
    );
    assert_eq!(resolved(&v6), expected[2..3]);
}

#[test]
fn with_ipv6_alone_our_key_in_the_name_of_another_node_is_a_claim() {
    let own = "0.0.0.0-0&fd00:5:0:1::-64";
    let set = set(
        V6_ONLY,
        "vxlan",
        &v6_only(1),
        own,
        vec![entry(own, &v6_only(2))],
    );
    assert_eq!(
        resolved(&set),
        [format!(
            "lease {own:?} (IPv6): its subnet fd00:5:0:1::/64 overlaps ours, fd00:5:0:1::/64"
        )]
    );
}

#[test]
fn an_ipv6_mistake_costs_ipv6_alone() {
    let name = "10.5.3.0-24&fd00:5:0:3::-64";
    let v4 = "10.5.3.0/24 192.0.2.3 02:00:00:00:04:03 false";
    for (value, expected) in [
        (
            dual(3).replace("2001:db8::3", "fe80::3"),
            "fe80::3 is valid on one link alone",
        ),
        (
            dual(3).replace("2001:db8::3", "::ffff:192.0.2.3"),
            "its public address ::ffff:192.0.2.3 is not a unicast",
        ),
        (
            dual(3).replace("2001:db8::3", "ff02::1"),
            "its public address ff02::1 is not a unicast",
        ),
        (
            dual(3).replace("2001:db8::3", "::1"),
            "its public address ::1 is not a unicast",
        ),
        (
            dual(3).replace("2001:db8::3", "2001:db8::1"),
            "its public address 2001:db8::1 is ours",
        ),
        (
            dual(3).replace("02:00:00:00:06:03", "02:00:00:00:06:01"),
            "its VTEP MAC 02:00:00:00:06:01 is ours",
        ),
        (
            dual(3).replace(r#""BackendV6Data""#, r#""Other""#),
            "it has no backend data",
        ),
        (
            dual(3).replace(r#""2001:db8::3""#, "null"),
            "it has no public address",
        ),
    ] {
        let set = dual_set(vec![entry(name, &value)]);
        let resolved = resolved(&set);
        assert_eq!(
            (resolved.len(), resolved[0].as_str()),
            (2, v4),
            "{resolved:?}"
        );
        assert!(
            resolved[1].starts_with(&format!("lease {name:?} (IPv6): "))
                && resolved[1].contains(expected),
            "{resolved:?}"
        );
    }
    // Each family has its own device: the same MAC on both is none of the other's business.
    let crossed = dual(3).replace("02:00:00:00:06:03", "02:00:00:00:04:01");
    let set = dual_set(vec![entry(name, &crossed)]);
    assert_eq!(
        resolved(&set),
        [v4, "fd00:5:0:3::/64 2001:db8::3 02:00:00:00:04:01 false"]
    );
}

#[test]
fn what_cannot_be_read_of_one_family_costs_that_family_alone() {
    let bad = BadAttrs::NotJson {
        what: "backend-v6-data",
        problem: "EOF".to_owned(),
    };
    for (family, believed, expected) in [
        (
            Family::V6,
            "10.5.3.0/24 192.0.2.3 02:00:00:00:04:03 false",
            "(IPv6): malformed value: backend-v6-data is not",
        ),
        (
            Family::V4,
            "fd00:5:0:3::/64 2001:db8::3 02:00:00:00:06:03 false",
            "(IPv4): malformed value: backend-v6-data",
        ),
    ] {
        let mut entry = entry("10.5.3.0-24&fd00:5:0:3::-64", &dual(3));
        entry
            .lease
            .as_mut()
            .expect("a lease")
            .remarks
            .get_or_insert_default()
            .malformed
            .push((family, bad.clone()));
        let resolved = resolved(&set(
            &format!("{V4},{V6}"),
            "vxlan",
            &dual(1),
            OWN,
            vec![entry],
        ));
        assert_eq!(
            (resolved.len(), resolved[0].as_str()),
            (2, believed),
            "{resolved:?}"
        );
        assert!(resolved[1].contains(expected), "{resolved:?}");
    }
}

#[test]
fn without_tunnels_an_address_is_enough() {
    let host_gw = |n, more: &str| without_tunnel(&format!(r#","BackendType":"host-gw"{more}"#), n);
    let entries = vec![
        entry(OWN, &host_gw(1, "")),
        entry(
            "10.5.2.0-24&fd00:5:0:2::-64",
            &host_gw(2, r#","BackendData":null"#),
        ),
        // One node may have two subnets, and what it says of a VTEP is not looked at.
        entry(
            "10.5.3.0-24",
            &host_gw(2, r#","BackendData":{"VtepMAC":"nonsense"}"#),
        ),
        entry("10.5.4.0-24", &dual(4)),
        entry("10.5.5.0-24", &host_gw(1, "")),
    ];
    let set = set(
        &format!("{V4},{V6}"),
        "host-gw",
        &host_gw(1, ""),
        OWN,
        entries,
    );
    assert_eq!(
        resolved(&set),
        [
            "10.5.2.0/24 192.0.2.2",
            "10.5.3.0/24 192.0.2.2",
            "fd00:5:0:2::/64 2001:db8::2",
            r#"lease "10.5.4.0-24": its backend is "vxlan", ours is "host-gw""#,
            r#"lease "10.5.5.0-24" (IPv4): its public address 192.0.2.1 is ours; a former lease of this node, or another node with our address"#,
        ]
    );
}

#[test]
fn alloc_believes_nobody_and_blames_nobody() {
    let entries = vec![
        entry(OWN, &without_tunnel("", 1)),
        entry("10.5.2.0-24", &without_tunnel("", 2)),
        entry("10.5.3.0-24", &dual(3)),
        entry("nonsense", "{"),
    ];
    let set = set(
        &format!("{V4},{V6}"),
        "alloc",
        &without_tunnel("", 1),
        OWN,
        entries,
    );
    assert_eq!(set.resolve(), Resolved::default());
}

/// Few subnets, addresses and MACs, so that they collide, in one family or both.
fn any_entry() -> impl Strategy<Value = Entry> {
    let v4 = prop_oneof![
        Just("0.0.0.0-0".to_owned()),
        (0..4_u8).prop_map(|n| format!("10.5.{n}.0-24"))
    ];
    let v6 = prop::option::of(
        (0..4_u8, 62..66_u8).prop_map(|(n, length)| format!("&fd00:5:0:{}::-{length}", n * 4)),
    );
    let value = prop_oneof![
        (1..5_u8).prop_map(dual),
        (1..5_u8).prop_map(v4_only),
        (1..5_u8).prop_map(v6_only)
    ];
    (v4, v6, value, 0..9_i64).prop_map(|(v4, v6, value, age)| {
        Entry::parse(
            &format!("{v4}{}", v6.unwrap_or_default()),
            value.as_bytes(),
            age,
            age,
        )
    })
}

proptest! {
    #[test]
    fn each_family_of_each_lease_is_believed_or_refused(
        entries in prop::collection::vec(any_entry(), 0..12),
    ) {
        let set = set(&format!("{V4},{V6}"), "vxlan", &dual(1), OWN, entries);
        let Resolved { peers, rejected } = set.resolve();
        for (at, peer) in peers.iter().enumerate() {
            prop_assert_eq!(Family::of(peer.subnet.addr()), Family::of(peer.public_ip));
            for other in &peers[at + 1..] {
                prop_assert!(
                    !peer.subnet.contains(&other.subnet) && !other.subnet.contains(&peer.subnet)
                );
            }
        }
        for entry in set.entries() {
            let Ok(lease) = &entry.lease else { continue };
            let has = [
                lease.key.v4.map(|_| Family::V4),
                lease.key.v6.map(|_| Family::V6),
            ];
            for family in has.into_iter().flatten() {
                let believed = peers
                    .iter()
                    .filter(|peer| peer.key == entry.name && Family::of(peer.public_ip) == family);
                let refused = rejected
                    .iter()
                    .filter(|one| *one.key == *entry.name && one.family == Some(family));
                let count = believed.count() + refused.count();
                prop_assert_eq!(
                    count,
                    usize::from(!set.is_own(lease)),
                    "{} {}",
                    entry.name,
                    family
                );
            }
        }
    }
}

fn wireguard(n: u8, v4: &str, v6: &str) -> String {
    let key = key_of(n);
    format!(
        r#"{{"PublicIP":"{v4}","PublicIPv6":"{v6}","BackendType":"wireguard","BackendData":{{"PublicKey":"{key}","Port":5{n}}},"BackendV6Data":{{"PublicKey":"{key}","Port":6{n}}}}}"#
    )
}

fn key_of(n: u8) -> flannel_host::wireguard_key::PublicKey {
    flannel_host::wireguard_key::PublicKey([n; 32])
}

/// Returns the set of a node with this mode, whose peers have these addresses.
fn wireguard_set(mode: &str, own: (&str, &str), peers: &[(&str, &str)]) -> LeaseSet {
    let text = format!(r#"{{{V4},{V6},"Backend":{{"Type":"wireguard","Mode":"{mode}"}}}}"#);
    let config = NetworkConfig::parse(&text).expect("a configuration");
    let own = LeaseAttrs::parse(wireguard(11, own.0, own.1).as_bytes()).expect("our value");
    let mut set = LeaseSet::new(&config, Precedence::FirstRenewed, own);
    set.set_own_key(OWN.parse().expect("our key"));
    let entry_of = |(n, (v4, v6)): (u8, &(&str, &str))| {
        entry(
            &format!("10.5.{n}.0-24&fd00:5:0:{n}::-64"),
            &wireguard(n, v4, v6),
        )
    };
    set.replace((12..).zip(peers).map(entry_of));
    set
}

/// The endpoint of each family of the one peer.
fn endpoints(mode: &str, own: (&str, &str), peer: (&str, &str)) -> Vec<String> {
    let resolved = resolved(&wireguard_set(mode, own, &[peer]));
    resolved
        .iter()
        .map(|line| line.rsplit(" at ").next().expect("an endpoint").to_owned())
        .collect()
}

#[test]
fn a_wireguard_peer_is_reached_as_the_mode_says() {
    let (lan, global) = (("10.0.0.1", "fd00:9::1"), ("198.51.100.1", "2001:db8::1"));
    let (lan2, global2) = (("10.0.0.2", "fd00:9::2"), ("198.51.100.2", "2001:db8::2"));
    assert_eq!(
        endpoints("separate", lan, lan2),
        ["10.0.0.2:512", "[fd00:9::2]:612"]
    );
    for (mode, own, peer, expected) in [
        ("ipv4", lan, lan2, "10.0.0.2:512"),
        ("ipv6", lan, lan2, "[fd00:9::2]:512"),
        ("auto", lan, lan2, "10.0.0.2:512"),
        ("auto", global, global2, "198.51.100.2:512"),
        (
            "auto",
            ("10.0.0.1", "2001:db8::1"),
            ("10.0.0.2", "2001:db8::2"),
            "[2001:db8::2]:512",
        ),
        ("auto", lan, ("10.0.0.2", "2001:db8::2"), "10.0.0.2:512"),
    ] {
        assert_eq!(
            endpoints(mode, own, peer),
            [expected; 2],
            "{mode} {own:?} {peer:?}"
        );
    }
}

#[test]
fn a_wireguard_lease_without_a_usable_key_is_refused_alone() {
    let own = ("10.0.0.1", "fd00:9::1");
    let mut set = wireguard_set("separate", own, &[("10.0.0.2", "fd00:9::2")]);
    let good = resolved(&set);
    for (value, expected) in [
        (
            wireguard(13, "10.0.0.3", "fd00:9::3").replace("PublicKey", "Key"),
            "PublicKey is absent",
        ),
        (
            wireguard(13, "10.0.0.3", "fd00:9::3").replace(&key_of(13).to_string(), "abc"),
            "PublicKey is \"abc\"",
        ),
        (
            wireguard(13, "10.0.0.3", "fd00:9::3")
                .replace(":513", ":70000")
                .replace(":613", ":70000"),
            "Port is 70000",
        ),
        (
            wireguard(11, "10.0.0.3", "fd00:9::3"),
            "is ours; a former lease of this node",
        ),
        (
            wireguard(12, "10.0.0.3", "fd00:9::3"),
            "if both nodes live, give one tunnel device another key",
        ),
    ] {
        set.put(entry("10.5.13.0-24&fd00:5:0:13::-64", &value));
        let resolved = resolved(&set);
        assert_eq!(resolved[..2], good[..], "{value}");
        assert!(
            resolved[2..].len() == 2 && resolved[2..].iter().all(|line| line.contains(expected)),
            "{value}: {resolved:?}"
        );
    }
}

#[test]
fn a_peer_that_publishes_no_port_is_reached_at_ours() {
    let mut set = wireguard_set("separate", ("10.0.0.1", "fd00:9::1"), &[]);
    let value = wireguard(12, "10.0.0.2", "fd00:9::2")
        .replace(",\"Port\":512", "")
        .replace("612", "0");
    set.put(entry("10.5.12.0-24&fd00:5:0:12::-64", &value));
    let ends: Vec<_> = resolved(&set)
        .iter()
        .map(|line| line.rsplit(' ').next().map(str::to_owned))
        .collect();
    assert_eq!(
        ends,
        ["10.0.0.2:51820", "[fd00:9::2]:51821"].map(|end| Some(end.to_owned()))
    );
}
