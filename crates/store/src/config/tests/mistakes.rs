//! Tables: what is wrong with a text.

use super::{
    super::{BackendConfig, IpipConfig},
    VXLAN, parse,
};

/// Configurations, without a backend where it does not matter.
const MISTAKES: &[(&str, &str)] = &[
    ("", "not a JSON object: EOF"),
    ("[]", "expected a JSON object"),
    (
        r#"{"Backend":{"Type":"vxlan"}}"#,
        "has no Network; set it to the pod network, for example \"10.244.0.0/16\", or",
    ),
    (r#"{"Network":"0.0.0.0/0"}"#, "or EnableIPv4 to false"),
    (
        r#"{"Network":null}"#,
        "Network in the network configuration is null, expected a CIDR",
    ),
    (
        r#"{"Network":"10.0.0.0"}"#,
        r#"Network in the network configuration is "10.0.0.0", expected a CIDR"#,
    ),
    (r#"{"Network":"fd00::/48"}"#, "expected a CIDR"),
    (r#"{"Network":"010.0.0.0/8"}"#, "expected a CIDR"),
    (r#"{"Network":"10.0.0.0/33"}"#, "expected a CIDR"),
    (
        r#"{"Network":"10.3.0.0/29"}"#,
        "Network 10.3.0.0/29 is too small",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetLen":31}"#,
        "SubnetLen 31 does not suit the network 10.3.0.0/16",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetLen":17}"#,
        "must lie in 18..=30",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetLen":300}"#,
        "SubnetLen 300",
    ),
    (
        r#"{"Network":"10.3.0.0/29","SubnetLen":30}"#,
        "SubnetLen 30",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetLen":-1}"#,
        "SubnetLen in the network configuration is -1",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetLen":"24"}"#,
        r#"is "24", expected a prefix length"#,
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetMin":""}"#,
        r#"SubnetMin in the network configuration is """#,
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetMin":"10.4.0.0"}"#,
        "SubnetMin 10.4.0.0 is not in the network 10.3.0.0/16",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetMax":"10.3.5.1"}"#,
        "SubnetMax 10.3.5.1 is not the first address of a /24",
    ),
    (
        r#"{"Network":"10.3.0.0/16","SubnetMin":"10.3.9.0","SubnetMax":"10.3.8.0"}"#,
        "lies above SubnetMax 10.3.8.0",
    ),
    (
        r#"{"Network":"10.3.0.0/16","EnableIPv4":"yes"}"#,
        r#"EnableIPv4 in the network configuration is "yes""#,
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":"vxlan"}"#,
        r#"Backend in the network configuration is "vxlan""#,
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","VNI":16777216}}"#,
        "VNI in the network",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","VNI":-1}}"#,
        "a VNI of 24 bits",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","Port":65536}}"#,
        "a UDP port",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","MTU":100}}"#,
        "MTU in the network configuration is 100",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","GBP":1}}"#,
        "expected true or false",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":"vxlan","Datapath":"x"}}"#,
        "kernel, encap, fast or auto",
    ),
    (
        r#"{"Network":"10.3.0.0/16","Backend":{"Type":1}}"#,
        "Type in the network configuration is 1, expected the name",
    ),
];

/// The ends of configurations of IPv6.
const IPV6_MISTAKES: &[(&str, &str)] = &[
    (
        "",
        "has no IPv6Network; set it to the pod network, for example \"fd00:10:244::/48\", or \
             EnableIPv6 to false",
    ),
    (r#","IPv6Network":"::/0""#, "has no IPv6Network"),
    (
        r#","IPv6Network":"10.3.0.0/16""#,
        "expected a CIDR such as fd00:10:244::/48",
    ),
    (
        r#","IPv6Network":"fd00::/125""#,
        "IPv6Network fd00::/125 is too small",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetLen":127"#,
        "IPv6SubnetLen 127 does not suit the network fd00::/48",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetLen":49"#,
        "must lie in 50..=126",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetMin":"fd01::""#,
        "IPv6SubnetMin fd01:: is not in the network fd00::/48",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetMin":"10.3.0.0""#,
        "an IP address of the network's family",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetMax":"fd00::1""#,
        "IPv6SubnetMax fd00::1 is not the first address of a",
    ),
    (
        r#","IPv6Network":"fd00::/48","Backend":{"Type":"vxlan","MTU":1349}"#,
        "1350..=65535 with IPv6",
    ),
    (
        r#","IPv6Network":"fd00::/48","IPv6SubnetMin":"fd00:0:0:9::","IPv6SubnetMax":"fd00:0:0:8::""#,
        "lies above",
    ),
];

#[test]
fn mistakes_name_key_and_value() {
    for (text, expected) in MISTAKES {
        let with_backend = text.replacen(
            "{\"",
            &format!("{{{VXLAN},\""),
            usize::from(!text.contains("Backend")),
        );
        let error = parse(&with_backend).expect_err(text);
        assert_eq!(error.mistakes().len(), 1, "{text}: {error}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(!error.is_refusal(), "{text}: {error}");
    }
    for (rest, expected) in IPV6_MISTAKES {
        let text = format!(r#"{{"EnableIPv4":false,"EnableIPv6":true,{VXLAN}{rest}}}"#);
        let error = parse(&text).expect_err(rest);
        assert_eq!(error.mistakes().len(), 1, "{error}");
        assert!(
            error.to_string().contains(expected) && !error.is_refusal(),
            "{rest}: {error}"
        );
    }
}

#[test]
fn every_mistake_is_reported_at_once_and_none_twice() {
    let text = r#"{
        "EnableIPv6": true, "EnableNFTables": 1,
        "Network": "10.3.0.0", "SubnetLen": "24", "SubnetMin": "x",
        "IPv6Network": "fd00::/48", "IPv6SubnetLen": 49, "IPv6SubnetMin": "fd01::", "IPv6SubnetMax": "fd00::1",
        "Backend": {"Type": "vxlan", "VNI": -1, "Port": -1, "MTU": 1300, "GBP": 1, "Learning": 2, "Datapath": 3}
    }"#;
    let error = parse(text).expect_err("many mistakes");
    let reported = error.to_string();
    assert!(!error.is_refusal(), "{reported}");
    let mut lines = reported.lines();
    assert_eq!(lines.next(), Some("12 mistakes:"), "{reported}");
    for (line, expected) in lines.by_ref().zip([
        "  Network in ",
        "  SubnetLen in ",
        "  SubnetMin in ",
        "  IPv6SubnetLen 49 ",
        "  IPv6SubnetMin fd01:: is not in the network",
        // The alignment of IPv6SubnetMax cannot be checked without a length.
        "  EnableNFTables in ",
        "  VNI in ",
        "  Port in ",
        "  MTU in ",
        "  GBP in ",
        "  Learning in ",
        "  Datapath in ",
    ]) {
        assert!(
            line.starts_with(expected),
            "{line:?} for {expected:?} in {reported}"
        );
    }
    assert_eq!(lines.next(), None, "{reported}");

    // One name of another program is enough to make waiting pointless.
    let error = parse(r#"{"Network":"10.3.0.0","Backend":{"Type":"wireguard-native"}}"#)
        .expect_err("two mistakes");
    assert_eq!((error.mistakes().len(), error.is_refusal()), (2, true));
}

#[test]
fn ipip_carries_ipv4_alone_and_has_one_key() {
    let settings = |rest: &str| parse(&format!(r#"{{"Network":"10.3.0.0/16",{rest}}}"#));
    for (rest, direct_routing) in [("", false), (r#","DirectRouting":true"#, true)] {
        let config =
            settings(&format!(r#""Backend":{{"Type":"ipip"{rest}}}"#)).expect("a configuration");
        assert_eq!(
            config.backend,
            BackendConfig::Ipip(IpipConfig { direct_routing })
        );
        assert_eq!(config.warnings, []);
    }
    let error = settings(
        r#""EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"ipip","DirectRouting":7}"#,
    );
    let error = error.expect_err("two mistakes").to_string();
    let expected = "Backend.Type ipip carries IPv4 alone; set EnableIPv6 to false";
    assert!(
        error.contains(expected) && error.contains("DirectRouting"),
        "{error}"
    );
    let unknown = settings(r#""Backend":{"Type":"ipip","VNI":7}"#).expect("a configuration");
    assert!(
        unknown
            .warnings
            .iter()
            .any(|warning| warning.to_string().contains("VNI")),
        "{:?}",
        unknown.warnings
    );
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for (rest, expected) in [
        (
            r#""EnableIPv4":false"#,
            "enables neither IPv4 nor IPv6; set EnableIPv4 or EnableIPv6 to true",
        ),
        (
            r#""SubnetLen":24"#,
            "has no Backend, which flannel reads as udp; write \"Backend\": {\"Type\": \"vxlan\"}, \
             or",
        ),
        (r#""Backend":null"#, "has no Type"),
        (r#""Backend":{}"#, "has no Type"),
        (r#""Backend":{"Type":""}"#, "has no Type"),
        (
            r#""Backend":{"Type":"wireguard-native"}"#,
            "wireguard-native in the network configuration is another name; it is k3s's name of \
             flannel's wireguard: write \"Type\": \"wireguard\"",
        ),
        (
            r#""Backend":{"Type":"vxlam"}"#,
            r#"Backend.Type "vxlam" in the network configuration is unknown; write "vxlan", "host-gw", "wireguard", "ipsec", "ipip", "udp", "extension", "aws-vpc", "gce", "tencent-vpc", "ali-vpc" or "alloc""#,
        ),
    ] {
        let error = parse(&format!(
            r#"{{"Network":"10.3.0.0/16",{rest}{}}}"#,
            backend_unless_in(rest)
        ))
        .expect_err(rest);
        assert_eq!(error.mistakes().len(), 1, "{error}");
        assert!(error.to_string().contains(expected), "{rest}: {error}");
        assert!(error.is_refusal(), "{rest}: {error}");
    }
}

/// So that each text has one mistake. `SubnetLen` stands for a text without a backend.
fn backend_unless_in(rest: &str) -> String {
    if rest.contains("Backend") || rest.contains("SubnetLen") {
        String::new()
    } else {
        format!(",{VXLAN}")
    }
}
