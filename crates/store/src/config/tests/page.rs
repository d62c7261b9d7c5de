//! Tests that `docs/reference/configuration.md` names exactly the known keys, with their actual
//! defaults and limits.

use std::{collections::BTreeSet, fs};

use ipnet::{Ipv4Net, Ipv6Net};

use super::super::{
    KEYS,
    access_keys::ACCESS_KEYS,
    aws_vpc::AWS_VPC_KEYS,
    backend::{self, COMMON_KEYS, DEFAULT_PORT, DEFAULT_VNI, VXLAN_KEYS, WINDOWS_KEYS},
    extension::EXTENSION_KEYS,
    family::Limits,
    ipip::IPIP_KEYS,
    ipsec::IPSEC_KEYS,
    udp::UDP_KEYS,
    wireguard::WIREGUARD_KEYS,
};

/// The rows of the table of keys: keys, default, meaning. The keys of wireguard, ipsec, ipip, udp,
/// extension and the clouds are in separate tables.
fn rows() -> Vec<[String; 3]> {
    rows_below("## Network configuration")
}

fn rows_below(heading: &str) -> Vec<[String; 3]> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/configuration.md"
    );
    let page = fs::read_to_string(path).expect("the page");
    let (_, section) = page
        .split_once(&format!("\n{heading}\n"))
        .expect("the section");
    let ends = |line: &str| ["## ", "### "].iter().any(|start| line.starts_with(start));
    let lines = section
        .lines()
        .take_while(|line| !ends(line))
        .filter(|line| line.starts_with("| `"));
    lines.map(cells).collect()
}

fn cells(line: &str) -> [String; 3] {
    let cells: Vec<_> = line
        .trim_matches('|')
        .splitn(3, " | ")
        .map(|cell| cell.trim().to_owned())
        .collect();
    cells
        .try_into()
        .unwrap_or_else(|_| panic!("three cells: {line}"))
}

/// The keys of the first cell.
fn keys(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(", ").map(|key| key.trim_matches('`'))
}

fn row(key: &str) -> [String; 3] {
    rows()
        .into_iter()
        .find(|[cell, ..]| keys(cell).any(|named| named == key))
        .unwrap_or_else(|| panic!("{key}"))
}

#[test]
fn every_key_has_a_row() {
    let of_backend = COMMON_KEYS
        .iter()
        .chain(VXLAN_KEYS)
        .filter(|key| !WINDOWS_KEYS.contains(key));
    let known = KEYS
        .iter()
        .filter(|key| **key != "Backend")
        .map(|key| (*key).to_owned());
    let known: BTreeSet<_> = known
        .chain(of_backend.map(|key| format!("Backend.{key}")))
        .collect();
    let rows = rows();
    let named: Vec<_> = rows.iter().flat_map(|[cell, ..]| keys(cell)).collect();
    assert_eq!(
        named
            .iter()
            .map(|key| (*key).to_owned())
            .collect::<BTreeSet<_>>(),
        known
    );
    assert_eq!(named.len(), known.len(), "a key twice: {named:?}");
}

#[test]
fn every_key_of_a_backend_with_a_table_has_a_row() {
    for (heading, known) in [
        ("### wireguard", WIREGUARD_KEYS),
        ("### ipsec", IPSEC_KEYS),
        ("### ipip", IPIP_KEYS),
        ("### udp", UDP_KEYS),
        ("### extension", EXTENSION_KEYS),
        ("### aws-vpc", AWS_VPC_KEYS),
        ("### gce", &[]),
        ("### tencent-vpc", ACCESS_KEYS),
        ("### ali-vpc", ACCESS_KEYS),
    ] {
        let rows = rows_below(heading);
        let named: Vec<_> = rows.iter().flat_map(|[cell, ..]| keys(cell)).collect();
        assert_eq!(named, [known, &["Datapath"]].concat(), "{heading}");
    }
}

#[test]
fn the_figures_are_those_in_force() {
    assert_eq!(row("Backend.Port")[1], DEFAULT_PORT.to_string());
    assert_eq!(row("Backend.VNI")[1], DEFAULT_VNI.to_string());
    let mtu = format!(
        "{} at least, {} with IPv6",
        backend::MIN_MTU,
        backend::MIN_MTU_V6
    );
    assert!(row("Backend.MTU")[2].contains(&mtu), "{mtu}");
    length::<Ipv4Net>();
    length::<Ipv6Net>();
}

fn length<P: Limits>() {
    let [_, default, meaning] = row(P::SUBNET_LEN);
    assert!(
        default.starts_with(&format!("{}, ", P::USUAL_SUBNET_LEN)),
        "{default}"
    );
    assert!(
        meaning.contains(&format!("at most a /{}", P::LONGEST_NETWORK)),
        "{meaning}"
    );
}
