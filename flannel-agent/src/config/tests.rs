//! Tables: what a text means, and what is wrong with it.

use std::net::Ipv4Addr;

use super::*;

const VXLAN: &str = r#""Backend":{"Type":"vxlan"}"#;

fn parse(text: &str) -> Result<NetworkConfig> {
    NetworkConfig::parse(text)
}

fn ipv4(rest: &str) -> FamilyConfig<Ipv4Net> {
    parse(&format!("{{{rest},{VXLAN}}}")).expect("a valid configuration").ipv4.expect("IPv4")
}

fn vxlan(backend: &str) -> VxlanConfig {
    let config = parse(&format!(r#"{{"Network":"10.3.0.0/16","Backend":{backend}}}"#)).expect("a valid configuration");
    let BackendConfig::Vxlan(vxlan) = config.backend else { panic!("not vxlan") };
    vxlan
}

#[test]
fn subnets_default_as_in_flannel() {
    for (rest, network, len, min, max) in [
        (r#""Network":"10.3.0.0/16""#, "10.3.0.0/16", 24, "10.3.1.0", "10.3.255.0"),
        (r#""network":"10.3.4.5/16""#, "10.3.0.0/16", 24, "10.3.1.0", "10.3.255.0"),
        (r#""Network":"10.3.0.0/22""#, "10.3.0.0/22", 24, "10.3.1.0", "10.3.3.0"),
        (r#""Network":"10.3.0.0/23""#, "10.3.0.0/23", 25, "10.3.0.128", "10.3.1.128"),
        (r#""Network":"10.3.0.0/28""#, "10.3.0.0/28", 30, "10.3.0.4", "10.3.0.12"),
        (r#""Network":"10.3.0.0/16","SubnetLen":28"#, "10.3.0.0/16", 28, "10.3.0.16", "10.3.255.240"),
        (r#""Network":"10.3.0.0/16","SubnetLen":0,"SubnetMin":"0.0.0.0""#, "10.3.0.0/16", 24, "10.3.1.0", "10.3.255.0"),
        (
            r#""Network":"10.3.0.0/16","SubnetMin":"10.3.5.0","SubnetMax":"10.3.8.0""#,
            "10.3.0.0/16",
            24,
            "10.3.5.0",
            "10.3.8.0",
        ),
        (r#""Network":"10.0.0.0/16","NETWORK":"10.9.0.0/16""#, "10.9.0.0/16", 24, "10.9.1.0", "10.9.255.0"),
    ] {
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

#[test]
fn both_families_are_cut_by_the_same_rules() {
    let fields = Fields::parse(r#"{"IPv6Network":"fc00::1/48"}"#).expect("an object");
    let family = FamilyConfig::<Ipv6Net>::parse(&fields).expect("a valid network");
    assert_eq!(family.subnet_len, 64);
    assert_eq!(family.subnet_min.to_string(), "fc00:0:0:1::");
    assert_eq!(family.subnet_max.to_string(), "fc00:0:0:ffff::");
    assert_eq!(family.subnets().count(), 0xffff);
}

#[test]
fn mistakes_name_key_and_value() {
    for (text, expected) in [
        ("", "not a JSON object: EOF"),
        ("[]", "expected a JSON object"),
        (r"{}", "has no Network; set it"),
        (r#"{"Network":"0.0.0.0/0"}"#, "has no Network"),
        (r#"{"Network":null}"#, "Network in the network configuration is null, expected a CIDR"),
        (r#"{"Network":"10.0.0.0"}"#, r#"Network in the network configuration is "10.0.0.0", expected a CIDR"#),
        (r#"{"Network":"fd00::/48"}"#, "expected a CIDR"),
        (r#"{"Network":"010.0.0.0/8"}"#, "expected a CIDR"),
        (r#"{"Network":"10.0.0.0/33"}"#, "expected a CIDR"),
        (r#"{"Network":"10.3.0.0/29"}"#, "Network 10.3.0.0/29 is too small"),
        (r#"{"Network":"10.3.0.0/16","SubnetLen":31}"#, "SubnetLen 31 does not suit the network 10.3.0.0/16"),
        (r#"{"Network":"10.3.0.0/16","SubnetLen":17}"#, "must lie in 18..=30"),
        (r#"{"Network":"10.3.0.0/16","SubnetLen":300}"#, "SubnetLen 300"),
        (r#"{"Network":"10.3.0.0/29","SubnetLen":30}"#, "SubnetLen 30"),
        (r#"{"Network":"10.3.0.0/16","SubnetLen":-1}"#, "SubnetLen in the network configuration is -1"),
        (r#"{"Network":"10.3.0.0/16","SubnetLen":"24"}"#, r#"is "24", expected a prefix length"#),
        (r#"{"Network":"10.3.0.0/16","SubnetMin":""}"#, r#"SubnetMin in the network configuration is """#),
        (r#"{"Network":"10.3.0.0/16","SubnetMin":"10.4.0.0"}"#, "SubnetMin 10.4.0.0 is not in the network 10.3.0.0/16"),
        (r#"{"Network":"10.3.0.0/16","SubnetMax":"10.3.5.1"}"#, "SubnetMax 10.3.5.1 is not the first address of a /24"),
        (r#"{"Network":"10.3.0.0/16","SubnetMin":"10.3.9.0","SubnetMax":"10.3.8.0"}"#, "lies above SubnetMax 10.3.8.0"),
        (r#"{"Network":"10.3.0.0/16","EnableIPv4":"yes"}"#, r#"EnableIPv4 in the network configuration is "yes""#),
        (r#"{"Network":"10.3.0.0/16","Backend":"vxlan"}"#, r#"Backend in the network configuration is "vxlan""#),
        (r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","VNI":16777216}}"#, "VNI in the network"),
        (r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","VNI":-1}}"#, "a VNI of 24 bits"),
        (r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","Port":65536}}"#, "a UDP port"),
        (
            r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","MTU":100}}"#,
            "MTU in the network configuration is 100",
        ),
        (r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","GBP":1}}"#, "expected true or false"),
        (r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","Datapath":"x"}}"#, "kernel, encap or auto"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(!error.is_refusal(), "{text}: {error}");
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for (rest, expected) in [
        (r#""EnableIPv4":false,"EnableIPv6":true"#, "EnableIPv4 false"),
        (r#""EnableIPv6":true"#, "EnableIPv6 true"),
        (r#""enablenftables":true"#, "EnableNFTables true"),
        (r#""SubnetLen":24"#, "Backend udp in the network configuration is not built yet; flannel reads an absent"),
        (r#""Backend":null"#, "has no Type"),
        (r#""Backend":{}"#, "has no Type"),
        (r#""Backend":{"Type":""}"#, "has no Type"),
        (r#""Backend":{"Type":"Host-GW"}"#, "Backend.Type host-gw"),
        (r#""Backend":{"Type":"wireguard"}"#, "Backend.Type wireguard"),
        (r#""Backend":{"Type":"vxlam"}"#, r#"Backend.Type "vxlam" in the network configuration is unknown"#),
        (r#""Backend":{"Type":"vxlan","Datapath":"fast"}"#, "Backend.Datapath fast"),
    ] {
        let error = parse(&format!(r#"{{"Network":"10.3.0.0/16",{rest}}}"#)).expect_err(rest);
        assert!(error.to_string().contains(expected), "{rest}: {error}");
        assert!(error.is_refusal(), "{rest}: {error}");
    }
}

#[test]
fn vxlan_settings_and_their_defaults() {
    let plain = VxlanConfig { vni: 1, port: 8472, mtu: None, gbp: false, learning: false, direct_routing: false };
    assert_eq!(vxlan(r#"{"Type":"VXLAN"}"#), plain);
    assert_eq!(vxlan(r#"{"type":"vxlan","vni":null,"port":0,"mtu":0}"#), plain);
    let set = r#"{"Type":"vxlan","VNI":4096,"Port":4789,"MTU":1400,"GBP":true,"learning":true,"Directrouting":true}"#;
    let all = VxlanConfig { vni: 4096, port: 4789, mtu: Some(1400), gbp: true, learning: true, direct_routing: true };
    assert_eq!(vxlan(set), all);
}

#[test]
fn the_datapath_key_is_ours() {
    let datapath = |value: &str| {
        let text = format!(r#"{{"Network":"10.3.0.0/16","Backend":{{"Type":"vxlan","Datapath":{value}}}}}"#);
        parse(&text).expect("a valid configuration").datapath
    };
    assert_eq!(datapath(r#""kernel""#), Some(Mode::Kernel));
    assert_eq!(datapath(r#""encap""#), Some(Mode::Encap));
    assert_eq!(datapath(r#""auto""#), None);
    assert_eq!(datapath("null"), None);
}

#[test]
fn what_has_no_effect_is_collected() {
    let text = r#"{"Network":"10.3.0.0/16","SubnetLength":24,"Backend":{"Type":"vxlan","Vnl":2,"MacPrefix":"0E-2A"}}"#;
    let warnings: Vec<_> =
        parse(text).expect("a valid configuration").warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            r#"the network configuration has the unknown key "SubnetLength"; it is ignored"#,
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
    for (subnet, allowed) in
        [("10.3.253.0/24", true), ("10.3.252.0/24", false), ("10.3.253.0/25", false), ("10.3.253.1/24", false)]
    {
        assert_eq!(family.allows(subnet.parse().expect("a subnet")), allowed, "{subnet}");
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
    assert_eq!((family.network.to_string().as_str(), family.subnet_len), ("10.3.0.0/16", 24));
    assert_eq!(
        (family.subnet_min.to_string(), family.subnet_max.to_string()),
        ("10.3.0.0".into(), "10.3.255.0".into())
    );
    // One node may have the whole network.
    let small = assigned(r#""Network":"10.3.0.0/26""#).expect("a usable network");
    assert_eq!((small.subnet_len, small.subnet_max), (26, Ipv4Addr::new(10, 3, 0, 0)));
    assert_eq!(FamilyConfig::assigned(family.network, 25).subnet_max, Ipv4Addr::new(10, 3, 255, 128));
    assert!(matches!(assigned(r#""EnableIPv4":true"#), Err(ConfigError::NoNetwork { .. })));
}
