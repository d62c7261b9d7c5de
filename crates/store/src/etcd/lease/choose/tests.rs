//! Tables: what there is, and what is chosen.

use super::*;
use crate::{Entry, LeaseAttrs, NodeMemory};

const V4: &str = r#""Network":"10.5.0.0/16","SubnetMin":"10.5.4.0","SubnetMax":"10.5.7.0""#;
const V6: &str = r#""EnableIPv6":true,"IPv6Network":"fd00::/48","IPv6SubnetMin":"fd00:0:0:4::","IPv6SubnetMax":"fd00:0:0:7::""#;

/// Of node 1, whose addresses are 192.0.2.1 and 2001:db8::1.
fn request(families: &str, previous: Option<&str>) -> LeaseRequest {
    let config = NetworkConfig::parse(&format!(r#"{{{families},"Backend":{{"Type":"vxlan"}}}}"#));
    let config = config.expect("a configuration");
    let public_ip = config.ipv4.map(|_| [192, 0, 2, 1].into());
    let public_ipv6 = config
        .ipv6
        .map(|_| "2001:db8::1".parse().expect("an address"));
    let attrs = LeaseAttrs {
        public_ip,
        public_ipv6,
        ..LeaseAttrs::default()
    };
    LeaseRequest {
        config,
        attrs,
        previous: previous.map(|key| key.parse().expect("a key")),
    }
}

fn with_ip(name: &str, ip: &str, ipv6: &str) -> Stored {
    let value = format!(r#"{{"PublicIP":"{ip}","PublicIPv6":{ipv6}}}"#);
    Stored {
        entry: Entry::parse(name, value.as_bytes(), 1, 1).into(),
        etcd_lease: 7,
        claimed_by: None,
    }
}

fn stored(name: &str, n: u8) -> Stored {
    with_ip(name, &format!("192.0.2.{n}"), "null")
}

fn dual(name: &str, n: u8) -> Stored {
    with_ip(
        name,
        &format!("192.0.2.{n}"),
        &format!(r#""2001:db8::{n}""#),
    )
}

fn ipv6_only(name: &str, n: u8) -> Stored {
    with_ip(name, "0.0.0.0", &format!(r#""2001:db8::{n}""#))
}

fn chosen(families: &str, previous: Option<&str>, leases: &[Stored]) -> String {
    chosen_by(&request(families, previous), &Recorded::Nothing, leases)
}

fn chosen_by(request: &LeaseRequest, recorded: &Recorded, leases: &[Stored]) -> String {
    let identity = Identity {
        request,
        recorded,
        held_by_others: &BTreeSet::from(["10.5.4.0-24".to_owned()]),
    };
    match choose(&identity, leases, &mut rand::rng()) {
        Ok(Choice::Reuse(_, key, Proof::Likeness)) => format!("reuse {key}"),
        Ok(Choice::Reuse(_, key, Proof::Record)) => format!("our own {key}"),
        Ok(Choice::Discard(stored, Useless::Unsuitable)) => {
            format!("discard {}", stored.entry.name)
        }
        Ok(Choice::Discard(stored, Useless::Overtaken)) => {
            format!("give way with {}", stored.entry.name)
        }
        Ok(Choice::Discard(stored, Useless::Surplus)) => format!("surplus {}", stored.entry.name),
        Ok(Choice::Create(key)) => format!("create {key}"),
        Err(error) => error.to_string(),
    }
}

fn choice(previous: Option<&str>, leases: &[Stored]) -> String {
    chosen(V4, previous, leases)
}

#[test]
fn our_address_decides_where_no_more_is_known() {
    assert_eq!(
        choice(None, &[stored("10.5.9.0-24", 2), stored("10.5.5.0-24", 1)]),
        "reuse 10.5.5.0-24"
    );
    for unsuitable in ["10.5.8.0-24", "10.5.5.0-25", "10.5.5.0-24&fd00::-64"] {
        assert_eq!(
            choice(Some("10.5.6.0-24"), &[stored(unsuitable, 1)]),
            format!("discard {unsuitable}")
        );
    }
}

/// Of node 1 with the device of VTEP MAC 02:..:`mac`, and what it remembers.
fn with_device(mac: u8, previous: Option<&str>) -> LeaseRequest {
    let base = request(V4, previous);
    let data = lease_of(1, mac, "")
        .lease()
        .expect("a lease")
        .attrs
        .backend_data
        .clone();
    LeaseRequest {
        attrs: LeaseAttrs {
            backend_type: "vxlan".into(),
            backend_data: data,
            ..base.attrs
        },
        ..base
    }
}

/// A lease of the address 192.0.2.`n` and the VTEP MAC 02:..:`mac`, on etcd lease 7.
fn lease_of(n: u8, mac: u8, name: &str) -> Stored {
    Stored {
        entry: Entry::parse(
            if name.is_empty() { "10.5.5.0-24" } else { name },
            value(n, mac).as_bytes(),
            1,
            1,
        )
        .into(),
        ..stored(name, n)
    }
}

fn value(n: u8, mac: u8) -> String {
    format!(
        r#"{{"PublicIP":"192.0.2.{n}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VtepMAC":"02:00:00:00:00:{mac:02x}"}}}}"#
    )
}

/// A record of the machine with the interface that it has.
fn recorded(name: &str, etcd_lease: i64, value: String) -> Recorded {
    let interface = Some(flannel_common::packet::addr::Mac([2; 6]));
    let memory = NodeMemory {
        file: "lease".into(),
        interface,
        interfaces: BTreeSet::new(),
    };
    Recorded::Lease(
        memory
            .record(name, etcd_lease, value)
            .expect("an interface"),
    )
}

#[test]
fn a_node_with_another_address_keeps_the_lease_of_its_former_subnet_by_its_device() {
    let moved = with_device(1, Some("10.5.5.0-24"));
    let choice = |request: &LeaseRequest, recorded: &Recorded, leases: &[Stored]| {
        chosen_by(request, recorded, leases)
    };
    let former = || lease_of(9, 1, "10.5.5.0-24");
    assert_eq!(
        choice(&moved, &Recorded::Nothing, &[former()]),
        "reuse 10.5.5.0-24"
    );
    let copied = choice(&moved, &Recorded::OfAnotherMachine, &[former()]);
    assert!(
        copied.starts_with("create ") && copied != "create 10.5.5.0-24",
        "{copied}"
    );
    let other = choice(
        &with_device(2, Some("10.5.5.0-24")),
        &Recorded::Nothing,
        &[former()],
    );
    assert!(
        other.starts_with("create ") && other != "create 10.5.5.0-24",
        "another device: {other}"
    );
    let forgot = choice(&with_device(1, None), &Recorded::Nothing, &[former()]);
    assert!(
        forgot.starts_with("create "),
        "a VTEP MAC by itself may be a copy's: {forgot}"
    );
    let alive = choice(
        &with_device(1, Some("10.5.4.0-24")),
        &Recorded::Nothing,
        &[lease_of(9, 1, "10.5.4.0-24")],
    );
    assert!(alive.starts_with("create "), "its holder answered: {alive}");
}

#[test]
fn of_several_leases_that_of_the_former_subnet_is_preferred() {
    let moved = with_device(1, Some("10.5.6.0-24"));
    let two = [lease_of(1, 1, "10.5.5.0-24"), lease_of(9, 1, "10.5.6.0-24")];
    assert_eq!(
        chosen_by(&moved, &Recorded::Nothing, &two),
        "reuse 10.5.6.0-24"
    );
    // The address was that of another node, whose device is another one: nodes that swapped theirs.
    let swapped = [lease_of(1, 2, "10.5.5.0-24"), lease_of(2, 1, "10.5.6.0-24")];
    assert_eq!(
        chosen_by(&moved, &Recorded::Nothing, &swapped),
        "reuse 10.5.6.0-24"
    );
    assert_eq!(
        chosen_by(&moved, &Recorded::Nothing, &swapped[..1]),
        "create 10.5.6.0-24",
        "its own ended"
    );
    let taken = [lease_of(1, 2, "10.5.5.0-24"), lease_of(3, 3, "10.5.6.0-24")];
    assert_eq!(
        chosen_by(&moved, &Recorded::Nothing, &taken),
        "reuse 10.5.5.0-24",
        "it remembers nothing it can have"
    );
    let reservation = Stored {
        etcd_lease: 0,
        ..lease_of(1, 2, "10.5.5.0-24")
    };
    assert_eq!(
        chosen_by(&moved, &Recorded::Nothing, &[reservation]),
        "reuse 10.5.5.0-24",
        "an operator's"
    );
}

#[test]
fn the_record_proves_a_lease_only_as_it_was_written_last() {
    let request = with_device(1, None);
    let lease = || lease_of(9, 8, "10.5.5.0-24");
    let by = |recorded: &Recorded, leases: &[Stored]| chosen_by(&request, recorded, leases);
    let ours = |etcd_lease| recorded("10.5.5.0-24", etcd_lease, value(9, 8));
    assert_eq!(by(&ours(7), &[lease()]), "our own 10.5.5.0-24");
    assert_eq!(
        by(&ours(7), &[lease_of(1, 1, "10.5.6.0-24"), lease()]),
        "our own 10.5.5.0-24",
        "before likeness"
    );
    assert_eq!(
        by(
            &ours(7),
            &[Stored {
                etcd_lease: 0,
                ..lease()
            }]
        ),
        "our own 10.5.5.0-24",
        "made a reservation"
    );
    let renamed = recorded("10.5.6.0-24", 7, value(9, 8));
    let rewritten = recorded("10.5.5.0-24", 7, value(9, 7));
    let asked_for = Stored {
        claimed_by: Some("b".into()),
        ..lease()
    };
    for (recorded, lease) in [
        (ours(6), lease()),
        (renamed, lease()),
        (rewritten, lease()),
        (ours(7), asked_for),
    ] {
        let choice = by(&recorded, &[lease]);
        assert!(choice.starts_with("create "), "{recorded:?}: {choice}");
    }
    assert_eq!(
        by(
            &recorded("10.5.9.0-24", 7, value(9, 8)),
            &[lease_of(9, 8, "10.5.9.0-24")]
        ),
        "discard 10.5.9.0-24"
    );
}

#[test]
fn what_a_node_left_behind_is_surplus_and_nothing_else() {
    let (request, recorded) = (
        with_device(1, None),
        recorded("10.5.5.0-24", 7, value(9, 8)),
    );
    let identity = Identity {
        request: &request,
        recorded: &recorded,
        held_by_others: &BTreeSet::new(),
    };
    let leases = [
        lease_of(1, 1, "10.5.4.0-24"),
        lease_of(9, 8, "10.5.5.0-24"),
        lease_of(1, 1, "10.5.6.0-24"),
        lease_of(1, 2, "10.5.7.0-24"),
        lease_of(2, 1, "10.5.8.0-24"),
        Stored {
            etcd_lease: 0,
            ..lease_of(1, 1, "10.5.9.0-24")
        },
    ];
    let surplus: Vec<_> = identity
        .surplus(&leases, "10.5.4.0-24")
        .map(|stored| &*stored.entry.name)
        .collect();
    assert_eq!(surplus, ["10.5.5.0-24", "10.5.6.0-24"]);
}

#[test]
fn the_previous_subnet_comes_next() {
    assert_eq!(choice(Some("10.5.6.0-24"), &[]), "create 10.5.6.0-24");
    let neighbours = [
        stored("10.5.4.0-24", 2),
        stored("10.5.5.0-24", 3),
        stored("10.5.7.0-24", 4),
    ];
    assert_eq!(
        choice(Some("10.5.6.0-24"), &neighbours),
        "create 10.5.6.0-24"
    );
    assert_eq!(
        choice(Some("10.5.5.0-24"), &neighbours),
        "create 10.5.6.0-24"
    );
    assert_eq!(
        choice(Some("10.5.9.0-24"), &neighbours),
        "create 10.5.6.0-24"
    );
}

#[test]
fn whatever_overlaps_is_not_free() {
    for taken in [
        &["10.5.4.0-24", "10.5.5.0-24", "10.5.7.0-24"][..],
        &["10.5.4.0-23", "10.5.7.128-25"],
        &["10.5.4.0-23", "10.5.4.0-30", "10.5.7.0-32", "10.5.7.4-30"],
    ] {
        let leases: Vec<_> = taken.iter().map(|name| stored(name, 2)).collect();
        assert_eq!(choice(None, &leases), "create 10.5.6.0-24", "{taken:?}");
    }
    let malformed = Stored {
        entry: Entry::parse("10.5.4.0-22", b"{", 1, 1).into(),
        etcd_lease: 0,
        claimed_by: None,
    };
    let text = choice(None, &[malformed]);
    assert!(
        text.starts_with("out of subnets: every /24 from 10.5.4.0 to 10.5.7.0"),
        "{text}"
    );
}

#[test]
fn any_free_subnet_may_be_drawn() {
    let mut seen: Vec<_> = (0..200).map(|_| choice(None, &[])).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn with_both_families_ipv4_identifies_us_and_both_must_suit() {
    let families = format!("{V4},{V6}");
    let choice = |lease| chosen(&families, None, &[lease]);
    assert_eq!(
        choice(dual("10.5.5.0-24&fd00:0:0:5::-64", 1)),
        "reuse 10.5.5.0-24&fd00:0:0:5::-64"
    );
    let same_v4 = with_ip(
        "10.5.5.0-24&fd00:0:0:5::-64",
        "192.0.2.1",
        r#""2001:db8::9""#,
    );
    assert_eq!(choice(same_v4), "reuse 10.5.5.0-24&fd00:0:0:5::-64");
    for unsuitable in [
        "10.5.5.0-24",
        "10.5.5.0-24&fd00:0:0:9::-64",
        "10.5.5.0-24&fd00:0:0:5::-65",
    ] {
        assert_eq!(choice(dual(unsuitable, 1)), format!("discard {unsuitable}"));
    }
    let before_ipv4 = "0.0.0.0-0&fd00:0:0:5::-64";
    assert_eq!(
        choice(ipv6_only(before_ipv4, 1)),
        format!("discard {before_ipv4}"),
        "from before IPv4 was on"
    );
    let other = with_ip(
        "10.5.5.0-24&fd00:0:0:5::-64",
        "192.0.2.2",
        r#""2001:db8::1""#,
    );
    assert!(
        choice(other).starts_with("create "),
        "another node with our IPv6 address is another node"
    );
}

#[test]
fn with_ipv6_alone_nodes_are_distinguished() {
    let families = format!(r#""EnableIPv4":false,{V6}"#);
    let choice = |leases: &[Stored]| chosen(&families, Some("0.0.0.0-0&fd00:0:0:6::-64"), leases);
    let key = "0.0.0.0-0&fd00:0:0:5::-64";
    assert_eq!(choice(&[ipv6_only(key, 1)]), format!("reuse {key}"));
    let others = [
        ipv6_only(key, 2),
        with_ip("0.0.0.0-0&fd00:0:0:4::-64", "0.0.0.0", "null"),
    ];
    assert_eq!(choice(&others), "create 0.0.0.0-0&fd00:0:0:6::-64");
    let unsuitable = "10.5.5.0-24&fd00:0:0:5::-64";
    assert_eq!(
        choice(&[dual(unsuitable, 1)]),
        format!("discard {unsuitable}"),
        "from before IPv4 was off"
    );
}

#[test]
fn each_family_keeps_what_it_had_if_it_can() {
    let families = format!("{V4},{V6}");
    let all_but = |free: &str| {
        let names = (4..8).map(|n| {
            (
                format!("10.5.{n}.0-24"),
                format!("0.0.0.0-0&fd00:0:0:{n}::-64"),
            )
        });
        let names = names
            .flat_map(|(v4, v6)| [v4, v6])
            .filter(|name| !free.contains(name.as_str()));
        names.map(|name| ipv6_only(&name, 9)).collect::<Vec<_>>()
    };
    let leases = all_but("10.5.4.0-24 10.5.5.0-24 0.0.0.0-0&fd00:0:0:6::-64");
    let choice = |previous| chosen(&families, Some(previous), &leases);
    assert_eq!(
        choice("10.5.5.0-24&fd00:0:0:6::-64"),
        "create 10.5.5.0-24&fd00:0:0:6::-64"
    );
    assert_eq!(
        choice("10.5.5.0-24"),
        "create 10.5.5.0-24&fd00:0:0:6::-64",
        "IPv6 is new"
    );
    assert_eq!(
        choice("10.5.5.0-24&fd00:0:0:5::-64"),
        "create 10.5.5.0-24&fd00:0:0:6::-64",
        "taken"
    );
    assert_eq!(
        choice("10.5.5.0-24&fd00:0:0:9::-64"),
        "create 10.5.5.0-24&fd00:0:0:6::-64",
        "not in range"
    );
    let full = chosen(&families, None, &all_but("10.5.4.0-24"));
    assert!(
        full.starts_with("out of subnets: every /64 from fd00:0:0:4:: to fd00:0:0:7::"),
        "{full}"
    );
}

#[test]
fn of_two_nodes_with_one_subnet_the_younger_gives_way() {
    let families = format!("{V4},{V6}");
    let aged = |created, stored: Stored| Stored {
        entry: Entry {
            created,
            ..(*stored.entry).clone()
        }
        .into(),
        ..stored
    };
    let ours = || aged(5, dual("10.5.5.0-24&fd00:0:0:5::-64", 1));
    let (reuse, give_way) = (
        "reuse 10.5.5.0-24&fd00:0:0:5::-64",
        "give way with 10.5.5.0-24&fd00:0:0:5::-64",
    );
    for (other, expected) in [
        (aged(4, dual("10.5.5.0-24&fd00:0:0:6::-64", 2)), give_way),
        (aged(4, dual("10.5.6.0-24&fd00:0:0:5::-64", 2)), give_way),
        (aged(4, ipv6_only("0.0.0.0-0&fd00:0:0:4::-63", 2)), give_way),
        (aged(6, dual("10.5.5.0-24&fd00:0:0:6::-64", 2)), reuse),
        (aged(4, dual("10.5.6.0-24&fd00:0:0:6::-64", 2)), reuse),
        (
            Stored {
                entry: Entry::parse("10.5.5.0-24", b"{", 4, 4).into(),
                etcd_lease: 7,
                claimed_by: None,
            },
            reuse,
        ),
    ] {
        assert_eq!(
            chosen(&families, None, &[ours(), other.clone()]),
            expected,
            "{other:?}"
        );
        assert_eq!(
            chosen(&families, None, &[other.clone(), ours()]),
            expected,
            "{other:?}"
        );
    }
}
