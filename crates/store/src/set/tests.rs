//! Each reason once, and what must hold for any set.

use std::{collections::BTreeMap, sync::Arc};

use flannel_common::packet::addr::Mac;
use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::{Entry, LeaseAttrs, Precedence, StoreEvent, config::NetworkConfig};

const OWN_IP: u8 = 1;

fn config() -> NetworkConfig {
    NetworkConfig::parse(r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#)
        .expect("a configuration")
}

/// The lease value of node `n`: address 192.0.2.n, MAC 02:..:n.
fn value(n: u8) -> String {
    value_with(n, n, "vxlan")
}

fn value_with(ip: u8, mac: u8, backend: &str) -> String {
    format!(
        r#"{{"PublicIP":"192.0.2.{ip}","BackendType":"{backend}","BackendData":{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac:02x}"}}}}"#
    )
}

fn entry(name: &str, value: &str, created: i64, modified: i64) -> Entry {
    Entry::parse(name, value.as_bytes(), created, modified)
}

fn empty() -> LeaseSet {
    empty_by(Precedence::FirstRenewed)
}

fn empty_by(precedence: Precedence) -> LeaseSet {
    let own = LeaseAttrs::parse(value(OWN_IP).as_bytes()).expect("our attributes");
    let mut set = LeaseSet::new(&config(), precedence, own);
    set.set_own_key("10.5.1.0-24".parse().expect("our key"));
    set
}

fn set_of(entries: &[Entry]) -> LeaseSet {
    let mut set = empty();
    set.replace(entries.to_vec());
    set
}

fn reasons(set: &LeaseSet) -> Vec<String> {
    set.resolve()
        .rejected
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn mac(peer: &Peer) -> Mac {
    peer.vtep().expect("a VTEP").mac
}

fn peers(set: &LeaseSet) -> Vec<String> {
    set.resolve()
        .peers
        .iter()
        .map(|peer| format!("{} via {} {}", peer.subnet, peer.public_ip, mac(peer)))
        .collect()
}

#[test]
fn our_own_lease_is_no_peer() {
    let set = set_of(&[
        entry("10.5.1.0-24", &value(1), 1, 1),
        entry("10.5.2.0-24", &value(2), 2, 2),
    ]);
    assert_eq!(peers(&set), ["10.5.2.0/24 via 192.0.2.2 02:00:00:00:00:02"]);
    assert_eq!(reasons(&set), [""; 0]);
}

#[test]
fn our_lease_is_ours_while_the_store_has_our_former_address() {
    let attrs =
        |ip| LeaseAttrs::parse(value_with(ip, OWN_IP, "vxlan").as_bytes()).expect("attributes");
    let mut set = set_of(&[entry("10.5.1.0-24", &value(OWN_IP), 1, 1)]);
    for ip in [7, 8] {
        set.set_own_attrs(attrs(ip));
        assert_eq!(
            reasons(&set),
            [""; 0],
            "192.0.2.{ip} is not in the store yet"
        );
    }
    set.put(entry("10.5.1.0-24", &value_with(8, OWN_IP, "vxlan"), 1, 2));
    assert_eq!(reasons(&set), [""; 0]);
    // The host that has our former address now claims our subnet.
    set.put(entry("10.5.1.0-24", &value_with(OWN_IP, 9, "vxlan"), 1, 3));
    let refused = reasons(&set);
    assert!(
        refused.len() == 1 && refused[0].contains("overlaps ours"),
        "{refused:?}"
    );
}

/// The name of an entry, its value, and a part of the reason why it is refused.
type BadEntry = (&'static str, String, &'static str);

fn bad_values() -> Vec<BadEntry> {
    vec![
        (
            "10.5.3.0-24",
            "{".to_owned(),
            "malformed value: the value is not a JSON object",
        ),
        (
            "10.5.3.0-24",
            value_with(3, 3, "host-gw"),
            "its backend is \"host-gw\", ours is \"vxlan\"",
        ),
        (
            "10.5.3.0-24",
            value_with(1, 3, "vxlan"),
            "(IPv4): its public address 192.0.2.1 is ours",
        ),
        (
            "10.5.3.0-24",
            value_with(3, 1, "vxlan"),
            "its VTEP MAC 02:00:00:00:00:01 is ours",
        ),
        (
            "10.5.3.0-24",
            value(3).replace("02:", "03:"),
            "its VTEP MAC 03:00:00:00:00:03 is not a unicast",
        ),
        (
            "10.5.3.0-24",
            value(3).replace("192.0.2.3", "0.0.0.0"),
            "it has no public address",
        ),
        (
            "10.5.3.0-24",
            value(3).replace("192.0.2.3", "224.0.0.1"),
            "its public address 224.0.0.1 is not a unicast",
        ),
        (
            "10.5.3.0-24",
            value(3).replace("BackendData", "Data"),
            "it has no backend data",
        ),
        (
            "10.5.3.0-24",
            value(3).replace("VtepMAC", "Mac"),
            "malformed backend data: VtepMAC is absent",
        ),
    ]
}

fn bad_names() -> Vec<BadEntry> {
    vec![
        (
            "10.5.3.0",
            value(3),
            "malformed key: \"10.5.3.0\" is not of the form",
        ),
        (
            "10.5.1.0-24",
            value(3),
            "its subnet 10.5.1.0/24 overlaps ours, 10.5.1.0/24",
        ),
        (
            "10.5.1.128-25",
            value(3),
            "its subnet 10.5.1.128/25 overlaps ours, 10.5.1.0/24",
        ),
        (
            "10.6.0.0-24",
            value(3),
            "its subnet 10.6.0.0/24 is not in the network 10.5.0.0/16",
        ),
        (
            "0.0.0.0-0",
            value(3),
            "its subnet 0.0.0.0/0 is not in the network",
        ),
        (
            "10.5.2.0-25",
            value(3),
            "overlaps that of the older lease \"10.5.2.0-24\"",
        ),
        (
            "10.5.2.0-23",
            value(3),
            "overlaps that of the older lease \"10.5.2.0-24\"",
        ),
    ]
}

#[test]
fn a_bad_entry_is_refused_alone_and_by_name() {
    let good = entry("10.5.2.0-24", &value(2), 2, 2);
    for (name, value, expected) in bad_values().into_iter().chain(bad_names()) {
        let set = set_of(&[good.clone(), entry(name, &value, 3, 3)]);
        assert_eq!(
            peers(&set),
            ["10.5.2.0/24 via 192.0.2.2 02:00:00:00:00:02"],
            "{name} {value}"
        );
        let reasons = reasons(&set);
        assert_eq!(reasons.len(), 1, "{name} {value}: {reasons:?}");
        assert!(
            reasons[0].contains(expected) && reasons[0].contains(name),
            "{name} {value}: {reasons:?}"
        );
    }
}

#[test]
fn the_older_of_two_overlapping_leases_counts_and_its_end_lets_the_other_in() {
    let older = entry("10.5.8.0-22", &value(2), 5, 9);
    let newer = entry("10.5.9.0-24", &value(3), 6, 6);
    let mut set = set_of(&[older, newer]);
    assert_eq!(peers(&set), ["10.5.8.0/22 via 192.0.2.2 02:00:00:00:00:02"]);
    set.delete("10.5.8.0-22");
    assert_eq!(peers(&set), ["10.5.9.0/24 via 192.0.2.3 02:00:00:00:00:03"]);
    assert_eq!(reasons(&set), [""; 0]);
}

#[test]
fn a_node_that_moved_shuts_out_its_former_self() {
    let former = entry("10.5.2.0-24", &value_with(2, 2, "vxlan"), 2, 2);
    let moved = entry("10.5.3.0-24", &value_with(9, 2, "vxlan"), 3, 3);
    let set = set_of(&[former, moved]);
    assert_eq!(peers(&set), ["10.5.3.0/24 via 192.0.2.9 02:00:00:00:00:02"]);
    assert!(
        reasons(&set)[0]
            .contains("\"10.5.2.0-24\" (IPv4): its VTEP MAC 02:00:00:00:00:02 is published by")
    );
    let second = entry("10.5.4.0-24", &value_with(2, 2, "vxlan"), 4, 4);
    let set = set_of(&[entry("10.5.2.0-24", &value(2), 2, 2), second]);
    assert_eq!(peers(&set).len(), 2);
}

/// In Kubernetes both ages of an entry are its Node's.
fn nodes(entries: &[Entry]) -> LeaseSet {
    let mut set = empty_by(Precedence::FirstCreated);
    set.replace(entries.to_vec());
    set
}

/// Returns the reason to refuse a lease of 10.5.3.0/24 with this address, on a host with these
/// addresses; `None` if it is accepted.
fn verdict_on(address: &str, host: &[&str]) -> Option<String> {
    let mut set = set_of(&[entry(
        "10.5.3.0-24",
        &value(3).replace("192.0.2.3", address),
        3,
        3,
    )]);
    set.set_host_addresses(HostAddresses::new(
        host.iter().map(|text| text.parse().expect("an address")),
    ));
    reasons(&set).pop()
}

#[test]
fn an_address_that_cannot_be_another_node_s_is_refused() {
    let host = ["192.0.2.1/24", "198.51.100.7/25", "127.0.0.1/8"];
    for (address, reason) in [
        ("169.254.169.254", "is valid on one link alone"),
        ("240.0.0.1", "is in 240.0.0.0/4, which is reserved"),
        ("0.1.2.3", "is in 0.0.0.0/8, which is reserved"),
        ("192.0.2.1", "is ours; a former lease of this node"),
        ("198.51.100.7", "is an address of this host"),
        (
            "192.0.2.0",
            "is the network or broadcast address of 192.0.2.0/24",
        ),
        (
            "192.0.2.255",
            "is the network or broadcast address of 192.0.2.0/24",
        ),
        (
            "198.51.100.127",
            "is the network or broadcast address of 198.51.100.0/25",
        ),
        ("10.5.1.9", "is in the pod network (10.5.1.0/24)"),
        ("10.5.3.1", "is in the pod network (10.5.3.0/24)"),
        ("10.5.77.1", "is in the pod network (10.5.0.0/16)"),
    ] {
        let refusal = verdict_on(address, &host).unwrap_or_default();
        assert!(
            refusal.contains(&format!("its public address {address} {reason}")),
            "{address}: {refusal:?}"
        );
    }
    // Nodes of the link, its gateway, a node elsewhere, and behind a NAT.
    for address in [
        "192.0.2.3",
        "192.0.2.254",
        "198.51.100.128",
        "203.0.113.9",
        "100.64.0.9",
    ] {
        assert_eq!(verdict_on(address, &host), None, "{address}");
    }
}

/// `SubnetMin` keeps subnets off the part of the network where nodes are.
#[test]
fn where_this_node_is_in_the_pod_network_others_may_be_too() {
    let ours = value(1).replace("192.0.2.1", "10.5.200.1");
    let own = LeaseAttrs::parse(ours.as_bytes()).expect("our attributes");
    let mut set = LeaseSet::new(&config(), Precedence::FirstRenewed, own);
    set.set_own_key("10.5.1.0-24".parse().expect("our key"));
    let near = entry(
        "10.5.3.0-24",
        &value(3).replace("192.0.2.3", "10.5.200.3"),
        3,
        3,
    );
    let among_our_pods = entry(
        "10.5.4.0-24",
        &value(4).replace("192.0.2.4", "10.5.1.4"),
        4,
        4,
    );
    set.replace(vec![near, among_our_pods]);
    assert_eq!(
        peers(&set),
        ["10.5.3.0/24 via 10.5.200.3 02:00:00:00:00:03"]
    );
}

#[test]
fn an_address_that_comes_to_this_host_costs_the_lease_that_has_it_and_no_other() {
    let entries: Vec<_> = (2..200)
        .map(|n| {
            entry(
                &format!("10.5.{n}.0-24"),
                &value(n),
                i64::from(n),
                i64::from(n),
            )
        })
        .collect();
    let mut set = set_of(&entries);
    set.changes();
    let host = |text: &str| HostAddresses::new([text.parse().expect("an address")]);
    set.set_host_addresses(host("192.0.2.9/32"));
    let Changes {
        all,
        peers,
        refused,
    } = set.changes();
    assert!(
        !all && peers.len() == 1 && refused.len() == 1,
        "{peers:?} {refused:?}"
    );
    set.set_host_addresses(host("192.0.2.9/32"));
    assert_eq!(set.changes(), Changes::default());
    set.set_host_addresses(HostAddresses::default());
    assert!(set.changes().peers.values().all(Option::is_some) && reasons(&set).is_empty());
}

#[test]
fn a_newer_node_takes_neither_mac_nor_subnet_from_an_older_one() {
    let victim = entry("10.5.2.0-24", &value(2), 2, 2);
    let copied = entry("10.5.3.0-24", &value_with(9, 2, "vxlan"), 3, 3);
    let wide = entry("10.5.0.0-17", &value(4), 4, 4);
    let mut set = nodes(&[victim.clone(), copied.clone(), wide]);
    assert_eq!(peers(&set), ["10.5.2.0/24 via 192.0.2.2 02:00:00:00:00:02"]);
    let refusals = reasons(&set);
    assert!(
        refusals[0].contains("\"10.5.0.0-17\" (IPv4): its subnet 10.5.0.0/17 overlaps"),
        "{refusals:?}"
    );
    let remedy = "is that of the older Node \"10.5.2.0-24\", which keeps it until it is deleted";
    assert!(
        refusals[1].contains("\"10.5.3.0-24\"") && refusals[1].contains(remedy),
        "{refusals:?}"
    );
    set.delete("10.5.2.0-24");
    assert_eq!(
        peers(&set),
        ["10.5.3.0/24 via 192.0.2.9 02:00:00:00:00:02"],
        "the older Node is gone"
    );
    // Registered again under another name, at the same address: one machine, no conflict.
    let renamed = entry("10.5.3.0-24", &value_with(2, 2, "vxlan"), 3, 3);
    assert_eq!(peers(&nodes(&[victim, renamed])).len(), 2);
}

#[test]
fn a_lease_that_is_refused_for_its_subnet_takes_no_mac_from_another() {
    let oldest = entry("10.5.2.0-24", &value(2), 2, 2);
    let overlapping = entry("10.5.2.0-25", &value_with(9, 4, "vxlan"), 3, 3);
    let young = entry("10.5.4.0-24", &value(4), 4, 4);
    let set = nodes(&[oldest, overlapping, young]);
    assert_eq!(peers(&set).len(), 2, "{:?}", reasons(&set));
}

#[test]
fn in_etcd_the_older_lease_keeps_its_mac_once_it_is_renewed() {
    let older = |renewed| entry("10.5.2.0-24", &value(2), 2, renewed);
    let newcomer = entry("10.5.3.0-24", &value_with(9, 2, "vxlan"), 3, 7);
    assert_eq!(
        peers(&set_of(&[older(2), newcomer.clone()])),
        ["10.5.3.0/24 via 192.0.2.9 02:00:00:00:00:02"]
    );
    assert_eq!(
        peers(&set_of(&[older(5), newcomer])),
        ["10.5.2.0/24 via 192.0.2.2 02:00:00:00:00:02"]
    );
}

#[test]
fn a_changed_lease_is_seen_in_a_snapshot() {
    let mut set = set_of(&[entry("10.5.2.0-24", &value(2), 2, 2)]);
    set.replace(vec![entry("10.5.2.0-24", &value_with(2, 7, "vxlan"), 2, 8)]);
    assert_eq!(peers(&set), ["10.5.2.0/24 via 192.0.2.2 02:00:00:00:00:07"]);
}

#[test]
fn a_stranger_on_our_key_is_refused_until_we_hold_another() {
    let mut set = set_of(&[entry("10.5.1.0-24", &value(3), 3, 3)]);
    assert!(peers(&set).is_empty());
    let own = super::super::OwnLease {
        key: "10.5.7.0-24".parse().expect("a key"),
        expires_at: None,
    };
    assert!(set.apply(StoreEvent::OwnLease(own)));
    assert_eq!(peers(&set), ["10.5.1.0/24 via 192.0.2.3 02:00:00:00:00:03"]);
}

/// Few names, addresses and MACs, so that they collide.
fn any_entry() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        (0..4_u8, 22..=26_u8).prop_map(|(n, length)| format!("10.5.{n}.0-{length}")),
        (0..3_u8).prop_map(|n| format!("10.{n}.0.0-24")),
        Just("10.5.1.0-24".to_owned()),
        Just("nonsense".to_owned()),
    ];
    let value = prop_oneof![
        6 => (1..5_u8, 1..5_u8).prop_map(|(ip, mac)| value_with(ip, mac, "vxlan")),
        1 => Just(value_with(3, 3, "udp")),
        1 => Just("{}".to_owned()),
    ];
    (name, value)
}

#[derive(Clone, Debug)]
enum Step {
    Put(String, String),
    Delete(String),
    Resync,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_entry().prop_map(|(name, value)| Step::Put(name, value)),
        3 => any_entry().prop_map(|(name, _)| Step::Delete(name)),
        1 => Just(Step::Resync),
    ]
}

/// The store: what etcd would hold after these steps.
#[derive(Default)]
struct Store {
    revision: i64,
    entries: BTreeMap<String, Entry>,
}

impl Store {
    fn take(&mut self, step: Step) -> StoreEvent {
        self.revision += 1;
        match step {
            Step::Put(name, value) => {
                let created = self
                    .entries
                    .get(&name)
                    .map_or(self.revision, |entry| entry.created);
                let entry = entry(&name, &value, created, self.revision);
                self.entries.insert(name, entry.clone());
                StoreEvent::Put(entry.into())
            }
            Step::Delete(name) => {
                self.entries.remove(&name);
                StoreEvent::Delete { name: name.into() }
            }
            Step::Resync => StoreEvent::InSync {
                snapshot: self.entries.values().cloned().map(Arc::new).collect(),
            },
        }
    }
}

/// Takes what changed in, as the reconciler does.
fn follow(believed: &mut BTreeMap<IpNet, Peer>, refused: &mut Vec<Rejected>, set: &mut LeaseSet) {
    let changes = set.changes();
    believed.retain(|subnet, _| !changes.all || changes.peers.contains_key(subnet));
    for (subnet, peer) in changes.peers {
        believed.remove(&subnet);
        believed.extend(peer.map(|peer| (subnet, peer)));
    }
    refused.extend(changes.refused);
}

#[test]
fn a_change_is_the_business_of_those_it_is_tied_to_alone() {
    let entries: Vec<_> = (2..200)
        .map(|n| {
            entry(
                &format!("10.5.{n}.0-24"),
                &value(n),
                i64::from(n),
                i64::from(n),
            )
        })
        .collect();
    let mut set = set_of(&entries);
    assert_eq!(set.changes().peers.len(), entries.len());
    assert_eq!(set.changes(), Changes::default());
    set.put(entry("10.5.9.0-24", &value_with(9, 33, "vxlan"), 9, 300));
    let changes = set.changes();
    let named: Vec<_> = changes
        .peers
        .iter()
        .map(|(subnet, peer)| (subnet.to_string(), peer.is_some()))
        .collect();
    assert_eq!(
        named,
        [
            ("10.5.9.0/24".to_owned(), true),
            ("10.5.33.0/24".to_owned(), false)
        ]
    );
    assert_eq!(changes.refused.len(), 1);
    set.delete("10.5.9.0-24");
    let named: Vec<_> = set
        .changes()
        .peers
        .into_iter()
        .map(|(subnet, peer)| (subnet.to_string(), peer.is_some()))
        .collect();
    assert_eq!(
        named,
        [
            ("10.5.9.0/24".to_owned(), false),
            ("10.5.33.0/24".to_owned(), true)
        ]
    );
}

proptest! {
    #[test]
    fn changes_and_a_fresh_snapshot_agree(steps in prop::collection::vec(any_step(), 0..40)) {
        let (mut store, mut set) = (Store::default(), empty());
        for step in steps {
            set.apply(store.take(step));
        }
        let mut snapshot: Vec<_> = store.entries.into_values().collect();
        snapshot.reverse();
        prop_assert_eq!(set.resolve(), set_of(&snapshot).resolve());
    }

    /// However often what changed is asked for in between.
    #[test]
    fn what_changed_adds_up_to_the_verdict_on_everything(
        steps in prop::collection::vec((any_step(), any::<bool>()), 0..60),
        own in 0_u8..60,
        host in 0_u8..60,
    ) {
        let (mut store, mut set) = (Store::default(), empty());
        let (mut believed, mut refused) = (BTreeMap::new(), Vec::new());
        for (turn, (step, look)) in steps.into_iter().enumerate() {
            if turn == usize::from(own) {
                set.set_own_key("10.5.2.0-24".parse().expect("our key"));
            }
            if turn == usize::from(host) {
                set.set_host_addresses(HostAddresses::new(["192.0.2.3/24"
                    .parse()
                    .expect("an address")]));
            }
            set.apply(store.take(step));
            if look {
                follow(&mut believed, &mut refused, &mut set);
                let Resolved { peers, rejected } = set.resolve();
                prop_assert_eq!(believed.values().cloned().collect::<Vec<_>>(), peers);
                prop_assert_eq!(set.rejected().collect::<Vec<_>>(), rejected.clone());
                prop_assert!(
                    rejected.iter().all(|one| refused.contains(one)),
                    "each is told once"
                );
            }
        }
    }

    #[test]
    fn what_is_believed_is_safe_and_nothing_is_forgotten(
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let (mut store, mut set) = (Store::default(), empty());
        for step in steps {
            set.apply(store.take(step));
        }
        let Resolved { peers, rejected } = set.resolve();
        let network: IpNet = "10.5.0.0/16".parse().expect("a network");
        let ours: IpNet = "10.5.1.0/24".parse().expect("a network");
        let disjoint = |a: &IpNet, b: &IpNet| !a.contains(b) && !b.contains(a);
        for (at, peer) in peers.iter().enumerate() {
            prop_assert!(network.contains(&peer.subnet) && disjoint(&peer.subnet, &ours));
            prop_assert!(mac(peer) != Mac([2, 0, 0, 0, 0, OWN_IP]) && mac(peer).is_unicast());
            for other in &peers[at + 1..] {
                prop_assert!(disjoint(&peer.subnet, &other.subnet));
                prop_assert!(mac(peer) != mac(other) || peer.public_ip == other.public_ip);
            }
        }
        for entry in store.entries.values() {
            let own = entry.lease.as_ref().is_ok_and(|lease| set.is_own(lease));
            let count = peers.iter().filter(|peer| peer.key == entry.name).count()
                + rejected
                    .iter()
                    .filter(|rejected| *rejected.key == *entry.name)
                    .count();
            prop_assert_eq!(count, usize::from(!own), "{}", entry.name);
        }
    }
}

/// Values that are almost those of a node.
const VALUES: [&str; 6] = [
    "{",
    r#"{"PublicIP":"192.0.2.7","BackendType":"vxlan"}"#,
    r#"{"PublicIP":"10.5.9.9","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:09"}}"#,
    r#"{"PublicIP":"192.0.2.7","PublicIPv6":"2001:db8::7","BackendType":"vxlan","BackendData":{"VtepMAC":"01:00:00:00:00:01"}}"#,
    r#"{"PublicIP":"224.0.0.1","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:0a"}}"#,
    r#"{"PublicIP":"192.0.2.8","BackendType":"host-gw"}"#,
];

/// A step from four bytes: what is done, to which subnet, and with which value.
fn step([action, subnet, length, value]: [u8; 4]) -> Step {
    // Few subnets, so that many overlap.
    let name = format!("10.5.{}.0-{}", subnet % 16, 20 + length % 8);
    match action % 8 {
        0 => Step::Resync,
        1 | 2 => Step::Delete(name),
        3 => Step::Put(name, VALUES[usize::from(value) % VALUES.len()].to_owned()),
        4 => Step::Put(format!("{name}-"), self::value(value % 8)),
        _ => Step::Put(name, value_with(value % 8, value / 8 % 8, "vxlan")),
    }
}

/// Longer sequences than those of the properties above, with the same promises after each step.
#[test]
fn fuzz_lease_set() {
    let seeds: [&[u8]; 3] = [
        &[5, 2, 4, 18, 5, 3, 4, 27, 1, 2, 4, 0],
        &[5, 2, 0, 18, 6, 2, 4, 27, 3, 9, 4, 2, 0, 0, 0, 0],
        &[7; 64],
    ];
    flannel_fuzz::run("lease_set", &seeds, |input| {
        let (mut store, mut set) = (Store::default(), empty());
        let (mut believed, mut refused) = (BTreeMap::new(), Vec::new());
        for bytes in input.as_chunks::<4>().0.iter().take(64) {
            set.apply(store.take(step(*bytes)));
            follow(&mut believed, &mut refused, &mut set);
            let Resolved { peers, rejected } = set.resolve();
            assert_eq!(
                believed.values().cloned().collect::<Vec<_>>(),
                peers,
                "what changed, and the whole verdict"
            );
            assert_eq!(set.rejected().collect::<Vec<_>>(), rejected);
            for (at, peer) in peers.iter().enumerate() {
                let overlaps = |other: &Peer| {
                    peer.subnet.contains(&other.subnet) || other.subnet.contains(&peer.subnet)
                };
                assert!(!peers[at + 1..].iter().any(overlaps), "{peers:?}");
            }
        }
        let snapshot: Vec<_> = store.entries.into_values().collect();
        assert_eq!(
            set.resolve(),
            set_of(&snapshot).resolve(),
            "events, and a fresh snapshot"
        );
    });
}
