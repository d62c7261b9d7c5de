//! Tables: what a text means.

mod mistakes;
mod page;
mod properties;

use std::net::Ipv4Addr;

use super::*;

const VXLAN: &str = r#""Backend":{"Type":"vxlan"}"#;

fn parse(text: &str) -> Result<NetworkConfig, ConfigError> {
    NetworkConfig::parse(text)
}

fn ipv4(rest: &str) -> FamilyConfig<Ipv4Net> {
    parse(&format!("{{{rest},{VXLAN}}}"))
        .expect("a valid configuration")
        .ipv4
        .expect("IPv4")
}

fn vxlan(backend: &str) -> VxlanConfig {
    let config = parse(&format!(
        r#"{{"Network":"10.3.0.0/16","Backend":{backend}}}"#
    ))
    .expect("a valid configuration");
    let BackendConfig::Vxlan(vxlan) = config.backend else {
        panic!("not vxlan")
    };
    vxlan
}

/// A network, its prefix, and the length and the first and last address of its subnets.
const SUBNETS: [(&str, &str, u8, &str, &str); 9] = [
    (
        r#""Network":"10.3.0.0/16""#,
        "10.3.0.0/16",
        24,
        "10.3.1.0",
        "10.3.255.0",
    ),
    (
        r#""network":"10.3.4.5/16""#,
        "10.3.0.0/16",
        24,
        "10.3.1.0",
        "10.3.255.0",
    ),
    (
        r#""Network":"10.3.0.0/22""#,
        "10.3.0.0/22",
        24,
        "10.3.1.0",
        "10.3.3.0",
    ),
    (
        r#""Network":"10.3.0.0/23""#,
        "10.3.0.0/23",
        25,
        "10.3.0.128",
        "10.3.1.128",
    ),
    (
        r#""Network":"10.3.0.0/28""#,
        "10.3.0.0/28",
        30,
        "10.3.0.4",
        "10.3.0.12",
    ),
    (
        r#""Network":"10.3.0.0/16","SubnetLen":28"#,
        "10.3.0.0/16",
        28,
        "10.3.0.16",
        "10.3.255.240",
    ),
    (
        r#""Network":"10.3.0.0/16","SubnetLen":0,"SubnetMin":"0.0.0.0""#,
        "10.3.0.0/16",
        24,
        "10.3.1.0",
        "10.3.255.0",
    ),
    (
        r#""Network":"10.3.0.0/16","SubnetMin":"10.3.5.0","SubnetMax":"10.3.8.0""#,
        "10.3.0.0/16",
        24,
        "10.3.5.0",
        "10.3.8.0",
    ),
    (
        r#""Network":"10.0.0.0/16","NETWORK":"10.9.0.0/16""#,
        "10.9.0.0/16",
        24,
        "10.9.1.0",
        "10.9.255.0",
    ),
];

#[test]
fn subnets_default_as_in_flannel() {
    for (rest, network, len, min, max) in SUBNETS {
        let address = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
        let expected = FamilyConfig {
            network: network.parse::<Ipv4Net>().expect("a network"),
            subnet_len: len,
            subnet_min: address(min),
            subnet_max: address(max),
        };
        assert_eq!(ipv4(rest), expected, "{rest}");
    }
}

/// The same for IPv6.
const IPV6_SUBNETS: [(&str, &str, u8, &str, &str); 6] = [
    (
        r#""IPv6Network":"fc00::1/48""#,
        "fc00::/48",
        64,
        "fc00:0:0:1::",
        "fc00:0:0:ffff::",
    ),
    (
        r#""ipv6Network":"fd00:1::/62""#,
        "fd00:1::/62",
        64,
        "fd00:1:0:1::",
        "fd00:1:0:3::",
    ),
    (
        r#""IPv6Network":"fd00:1::/64""#,
        "fd00:1::/64",
        66,
        "fd00:1:0:0:4000::",
        "fd00:1:0:0:c000::",
    ),
    (
        r#""IPv6Network":"fd00:1::/124""#,
        "fd00:1::/124",
        126,
        "fd00:1::4",
        "fd00:1::c",
    ),
    (
        r#""IPv6Network":"fd00:1::/48","IPv6SubnetLen":56,"IPv6SubnetMin":"::","IPv6SubnetMax":null"#,
        "fd00:1::/48",
        56,
        "fd00:1:0:100::",
        "fd00:1:0:ff00::",
    ),
    (
        r#""IPv6Network":"fd00:1::/48","IPv6SubnetMin":"fd00:1:0:5::","IPv6SubnetMax":"fd00:1:0:8::""#,
        "fd00:1::/48",
        64,
        "fd00:1:0:5::",
        "fd00:1:0:8::",
    ),
];

#[test]
fn both_families_are_cut_by_the_same_rules() {
    for (rest, network, len, min, max) in IPV6_SUBNETS {
        let text = format!(r#"{{"EnableIPv4":false,"enableIPv6":true,{rest},{VXLAN}}}"#);
        let config = parse(&text).expect("a valid configuration");
        let expected = FamilyConfig {
            network: network.parse::<Ipv6Net>().expect("a network"),
            subnet_len: len,
            subnet_min: min.parse().expect("an address"),
            subnet_max: max.parse().expect("an address"),
        };
        assert_eq!((config.ipv4, config.ipv6), (None, Some(expected)), "{rest}");
    }
    let dual = format!(
        r#"{{"EnableIPv6":true,"Network":"10.3.0.0/16","IPv6Network":"fd00::/48",{VXLAN}}}"#
    );
    let dual = parse(&dual).expect("a valid configuration");
    assert_eq!(
        dual.ipv4
            .map(|family| family.network.to_string())
            .as_deref(),
        Some("10.3.0.0/16")
    );
    assert_eq!(
        dual.ipv6.map(|family| family.subnets().count()),
        Some(0xffff)
    );
}

#[test]
fn backends_without_a_tunnel_have_no_settings_but_the_mode_where_there_is_one() {
    let unknown =
        r#"Backend in the network configuration has the unknown key "VNI"; it is ignored"#;
    let no_datapath = "Backend.Datapath has no effect: the backend alloc carries no packets";
    for (name, backend, datapath, expected) in [
        (
            "Host-GW",
            BackendConfig::HostGw,
            Some(Mode::Fast),
            &[unknown][..],
        ),
        (
            "host-gw",
            BackendConfig::HostGw,
            Some(Mode::Fast),
            &[unknown],
        ),
        ("ALLOC", BackendConfig::Alloc, None, &[unknown, no_datapath]),
    ] {
        let text = format!(
            r#"{{"Network":"10.3.0.0/16","Backend":{{"Type":"{name}","Datapath":"fast","VNI":7}}}}"#
        );
        let config = parse(&text).expect("a valid configuration");
        assert_eq!((&config.backend, config.datapath), (&backend, datapath));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, expected);
    }
    assert_eq!(
        [BackendConfig::HostGw, BackendConfig::Alloc]
            .map(|backend| backend.properties().lease_name),
        ["host-gw", ""]
    );
    let mistaken = r#"{"Network":"10.3.0.0/16","Backend":{"Type":"host-gw","Datapath":"x"}}"#;
    assert!(
        parse(mistaken)
            .is_err_and(|error| error.to_string().contains("kernel, encap, fast or auto"))
    );
}

#[test]
fn a_tunnel_that_carries_ipv6_has_room_for_its_minimum() {
    let mtu = |ipv6: bool, mtu: u16| {
        let text = format!(
            r#"{{"EnableIPv6":{ipv6},"Network":"10.3.0.0/16","IPv6Network":"fd00::/48","Backend":{{"Type":"vxlan","MTU":{mtu}}}}}"#
        );
        parse(&text).is_ok()
    };
    assert!(mtu(false, 118) && !mtu(false, 117));
    assert!(mtu(true, 1350) && !mtu(true, 1349) && mtu(true, 0));
}

#[test]
fn vxlan_settings_and_their_defaults() {
    let plain = VxlanConfig {
        vni: 1,
        port: 8472,
        mtu: None,
        gbp: false,
        learning: false,
        direct_routing: false,
        tx_checksum_offload: TxChecksumOffload::Auto,
    };
    assert_eq!(vxlan(r#"{"Type":"VXLAN"}"#), plain);
    assert_eq!(
        vxlan(r#"{"type":"vxlan","vni":null,"port":0,"mtu":0}"#),
        plain
    );
    let set = r#"{"Type":"vxlan","VNI":4096,"Port":4789,"MTU":1400,"GBP":true,"learning":true,"Directrouting":true}"#;
    let all = VxlanConfig {
        vni: 4096,
        port: 4789,
        mtu: Some(1400),
        gbp: true,
        learning: true,
        direct_routing: true,
        ..plain
    };
    assert_eq!(vxlan(set), all);
}

#[test]
fn checksum_offload_is_a_name_or_one_of_flannels_booleans() {
    use TxChecksumOffload::{Auto, Off, On};
    let text = |value: &str| format!(r#"{{"Type":"vxlan","TxChecksumOffload":{value}}}"#);
    for (value, expected) in [
        ("null", Auto),
        (r#""""#, Auto),
        (r#""auto""#, Auto),
        ("true", On),
        (r#""on""#, On),
        ("false", Off),
        (r#""off""#, Off),
    ] {
        assert_eq!(vxlan(&text(value)).tx_checksum_offload, expected, "{value}");
    }
    for value in ["0", r#""no""#, "[]"] {
        let config = format!(r#"{{"Network":"10.3.0.0/16","Backend":{}}}"#, text(value));
        let error = parse(&config).expect_err(value).to_string();
        assert!(
            error.contains("TxChecksumOffload") && error.contains(value),
            "{error}"
        );
    }
}

#[test]
fn the_datapath_key_is_ours() {
    let datapath = |value: &str| {
        let text = format!(
            r#"{{"Network":"10.3.0.0/16","Backend":{{"Type":"vxlan","Datapath":{value}}}}}"#
        );
        parse(&text).expect("a valid configuration").datapath
    };
    assert_eq!(datapath(r#""kernel""#), Some(Mode::Kernel));
    assert_eq!(datapath(r#""encap""#), Some(Mode::Encap));
    assert_eq!(datapath(r#""auto""#), None);
    assert_eq!(datapath("null"), None);
}

#[test]
fn what_has_no_effect_is_collected() {
    let text = r#"{"Network":"10.3.0.0/16","SubnetLength":24,"IPv6Network":"x","Backend":{"Type":"vxlan","Vnl":2,"MacPrefix":"0E-2A"}}"#;
    let warnings: Vec<_> = parse(text)
        .expect("a valid configuration")
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            r#"the network configuration has the unknown key "SubnetLength"; it is ignored"#,
            "IPv6Network in the network configuration has no effect while EnableIPv6 is false",
            r#"Backend in the network configuration has the unknown key "Vnl"; it is ignored"#,
            "Backend.MacPrefix applies to Windows nodes only; it is ignored",
        ]
    );
}

#[test]
fn leasable_subnets_end_with_the_last_one() {
    let family = ipv4(r#""Network":"10.3.0.0/16","SubnetMin":"10.3.253.0""#);
    let subnets: Vec<_> = family.subnets().map(|subnet| subnet.to_string()).collect();
    assert_eq!(subnets, ["10.3.253.0/24", "10.3.254.0/24", "10.3.255.0/24"]);
    for (subnet, allowed) in [
        ("10.3.253.0/24", true),
        ("10.3.252.0/24", false),
        ("10.3.253.0/25", false),
        ("10.3.253.1/24", false),
    ] {
        assert_eq!(
            family.allows(subnet.parse().expect("a subnet")),
            allowed,
            "{subnet}"
        );
    }
}

#[test]
fn where_subnets_are_assigned_the_network_alone_counts() {
    let assigned = |rest: &str| {
        let text = format!(r#"{{{rest},"Backend":{{"Type":"vxlan"}}}}"#);
        NetworkConfig::parse_assigned(&text).map(|config| config.ipv4.expect("IPv4"))
    };
    let ignored = r#""Network":"10.3.4.5/16","SubnetLen":7,"SubnetMin":"x","SubnetMax":"10.9.9.9""#;
    let family = assigned(ignored).expect("a usable network");
    assert_eq!(
        (family.network.to_string().as_str(), family.subnet_len),
        ("10.3.0.0/16", 24)
    );
    assert_eq!(
        (family.subnet_min.to_string(), family.subnet_max.to_string()),
        ("10.3.0.0".into(), "10.3.255.0".into())
    );
    // One node may have the whole network.
    let small = assigned(r#""Network":"10.3.0.0/26""#).expect("a usable network");
    assert_eq!(
        (small.subnet_len, small.subnet_max),
        (26, Ipv4Addr::new(10, 3, 0, 0))
    );
    assert_eq!(
        FamilyConfig::assigned(family.network, 25).subnet_max,
        Ipv4Addr::new(10, 3, 255, 128)
    );
    let error = assigned(r#""EnableIPv4":true"#).expect_err("no network");
    assert!(
        matches!(error.mistakes(), [ConfigMistake::NoNetwork { .. }]),
        "{error}"
    );

    let text = r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:1::/56","IPv6SubnetMin":"x","Backend":{"Type":"alloc"}}"#;
    let family = NetworkConfig::parse_assigned(text)
        .expect("a usable network")
        .ipv6
        .expect("IPv6");
    assert_eq!(
        (family.subnet_len, family.subnet_min.to_string()),
        (64, "fd00:1::".to_owned())
    );
}
