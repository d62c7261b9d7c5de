//! Golden texts, as flannel writes them, and what a reader makes of others.

use super::*;

const VXLAN: &str = r#"{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}"#;

#[test]
fn values_are_written_as_flannel_writes_them() {
    let attrs = |v4: Option<&str>, v6: Option<&str>, backend: &str| LeaseAttrs {
        public_ip: v4.map(|text| text.parse().expect("an address")),
        public_ipv6: v6.map(|text| text.parse().expect("an address")),
        backend_type: backend.to_owned().into(),
        backend_data: v4.and(data(backend, 4)),
        backend_v6_data: v6.and(data(backend, 6)),
    };
    let (v4, v6) = (Some("192.168.64.3"), Some("fd00::3"));
    for (attrs, expected) in [
        (attrs(v4, None, "vxlan"), VXLAN),
        (
            attrs(None, v6, "vxlan"),
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::3","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:46"}}"#,
        ),
        (
            attrs(v4, v6, "vxlan"),
            r#"{"PublicIP":"192.168.64.3","PublicIPv6":"fd00::3","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"},"BackendV6Data":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:46"}}"#,
        ),
        (
            attrs(v4, None, "host-gw"),
            r#"{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"host-gw"}"#,
        ),
        (
            attrs(None, v6, "host-gw"),
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::3","BackendType":"host-gw"}"#,
        ),
        (
            attrs(v4, v6, "host-gw"),
            r#"{"PublicIP":"192.168.64.3","PublicIPv6":"fd00::3","BackendType":"host-gw"}"#,
        ),
        (
            attrs(v4, None, ""),
            r#"{"PublicIP":"192.168.64.3","PublicIPv6":null}"#,
        ),
        (
            attrs(None, v6, ""),
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::3"}"#,
        ),
        (
            attrs(v4, v6, ""),
            r#"{"PublicIP":"192.168.64.3","PublicIPv6":"fd00::3"}"#,
        ),
        (
            LeaseAttrs::default(),
            r#"{"PublicIP":"0.0.0.0","PublicIPv6":null}"#,
        ),
    ] {
        assert_eq!(attrs.to_json(), expected);
        assert_eq!(LeaseAttrs::parse(expected.as_bytes()), Ok(attrs));
    }
}

fn data(backend: &str, family: u8) -> Option<RawJson> {
    let vtep_mac = Mac([0xc6, 0xd2, 0x32, 0x6f, 0x8f, 0x40 + family]);
    (backend == "vxlan").then(|| {
        VxlanData {
            vni: Some(1),
            vtep_mac,
            zero_checksum_v6: false,
            other_source: false,
        }
        .to_json()
    })
}

#[test]
fn a_node_is_known_by_ipv4_and_else_by_ipv6() {
    let attrs = |ips: &str| {
        let (v4, v6) = ips.split_once(' ').expect("two addresses");
        LeaseAttrs {
            public_ip: v4.parse().ok(),
            public_ipv6: v6.parse().ok(),
            ..LeaseAttrs::default()
        }
    };
    for (ours, theirs, same) in [
        ("192.0.2.1 -", "192.0.2.1 -", true),
        ("192.0.2.1 -", "192.0.2.2 -", false),
        ("192.0.2.1 fd00::1", "192.0.2.1 fd00::2", true),
        ("192.0.2.1 fd00::1", "192.0.2.2 fd00::1", false),
        ("- fd00::1", "- fd00::1", true),
        ("- fd00::1", "- fd00::2", false),
        // A family was turned on or off.
        ("192.0.2.1 fd00::1", "192.0.2.1 -", true),
        ("192.0.2.1 fd00::1", "- fd00::1", true),
        // Without an address of either family, as some stock nodes with only IPv6 publish it.
        ("- fd00::1", "- -", false),
        ("192.0.2.1 -", "- -", false),
        ("- -", "- -", false),
    ] {
        let (ours, theirs) = (attrs(ours), attrs(theirs));
        assert_eq!(ours.is_same_node(&theirs), same, "{ours:?} {theirs:?}");
        assert_eq!(theirs.is_same_node(&ours), same, "{theirs:?} {ours:?}");
    }
    assert_eq!(
        attrs("192.0.2.1 fd00::1").node_address(),
        "192.0.2.1".parse().ok()
    );
    assert_eq!(attrs("- fd00::1").node_address(), "fd00::1".parse().ok());
}

#[test]
fn the_reader_ignores_case_and_unknown_keys() {
    let text =
        br#"{"publicip":"192.168.64.3","backendTYPE":"vxlan","backenddata":{"vtepmac":"C6:D2:32:6F:8F:44"},"New":1}"#;
    let attrs = LeaseAttrs::parse(text).expect("a value");
    assert_eq!(attrs.public_ip, Some([192, 168, 64, 3].into()));
    let data = VxlanData::parse(&attrs.backend_data.expect("data")).expect("vxlan data");
    assert_eq!(
        (data.vni, data.vtep_mac.to_string().as_str()),
        (None, "c6:d2:32:6f:8f:44")
    );
}

#[test]
fn malformed_values_say_what_is_wrong() {
    for (text, expected) in [
        (
            &b"\xff"[..],
            "the value is not a JSON object: invalid utf-8",
        ),
        (b"hi", "the value is not a JSON object"),
        (
            br#"{"PublicIP":"fd00::1"}"#,
            r#"PublicIP is "fd00::1", expected an IPv4 address"#,
        ),
        (
            br#"{"PublicIPv6":1}"#,
            "PublicIPv6 is 1, expected an IPv6 address or null",
        ),
        (br#"{"BackendType":1}"#, "BackendType is 1"),
    ] {
        let error = LeaseAttrs::parse(text).expect_err("malformed");
        assert!(error.to_string().contains(expected), "{error}");
    }
    for (data, expected) in [
        (
            r#"{"BackendData":"x"}"#,
            "the backend data is not a JSON object",
        ),
        (
            r#"{"BackendData":{}}"#,
            "VtepMAC is absent, expected a MAC address",
        ),
        (r#"{"BackendData":{"VtepMAC":"c6"}}"#, r#"VtepMAC is "c6""#),
        (
            r#"{"BackendData":{"VtepMAC":"c6:d2:32:6f:8f:44","VNI":"1"}}"#,
            r#"VNI is "1""#,
        ),
    ] {
        let data = LeaseAttrs::parse(data.as_bytes())
            .expect("a value")
            .backend_data
            .expect("data");
        let error = VxlanData::parse(&data).expect_err("malformed");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
