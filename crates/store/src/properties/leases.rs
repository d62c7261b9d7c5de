//! Entries of any content: no panic, each is reported by its name, and others are not affected.

use flannel_host::excerpt::excerpt;
use proptest::prelude::*;

use super::noise::damaged;
use crate::{
    config::NetworkConfig,
    {Entry, LeaseAttrs, LeaseKey, LeaseSet, Precedence},
};

const DUAL: &str = r#"{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"vxlan"}}"#;
const GOOD: &str = "10.5.2.0-24&fd00:5:0:2::-64";

/// As flannel writes it, of node `n` with both families.
fn value(n: u8) -> String {
    let mac = |family: u8| format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:{family:02x}:{n:02x}"}}"#);
    format!(
        r#"{{"PublicIP":"192.0.2.{n}","PublicIPv6":"2001:db8::{n:x}","BackendType":"vxlan","BackendData":{},"BackendV6Data":{}}}"#,
        mac(4),
        mac(6)
    )
}

/// A set of our lease, and of one that was there before all others and was written after them: no
/// conflict harms it.
fn with_one_good() -> LeaseSet {
    let own = LeaseAttrs::parse(value(1).as_bytes()).expect("our attributes");
    let mut set = LeaseSet::new(
        &NetworkConfig::parse(DUAL).expect("a configuration"),
        Precedence::FirstRenewed,
        own,
    );
    set.set_own_key("10.5.1.0-24&fd00:5:0:1::-64".parse().expect("our key"));
    set.put(Entry::parse(GOOD, value(2).as_bytes(), 1, 1000));
    assert_eq!(set.resolve().peers.len(), 2);
    set
}

fn any_name() -> impl Strategy<Value = String> {
    let parts = (any::<u8>(), any::<u8>(), 0..40_u8, 0..140_u8);
    prop_oneof![
        ".{0,24}",
        "[0-9a-f.:&-]{0,32}",
        parts.prop_map(|(a, b, v4, v6)| format!("10.{a}.{b}.0-{v4}&fd00:{a:x}:{b:x}::-{v6}")),
        // Shown cut.
        "\\PC{100,140}",
        Just("10.5.3.0-24".to_owned()),
        Just("10.5.3.0-24&fd00:5:0:3::-64".to_owned()),
    ]
    .prop_filter("the good one's own", |name| name != GOOD)
}

proptest! {
    #[test]
    fn no_entry_of_the_store_harms_another(
        entries in prop::collection::vec((any_name(), damaged(value(3))), 1..6),
    ) {
        let mut set = with_one_good();
        for (at, (name, value)) in entries.iter().enumerate() {
            let age = i64::try_from(at).expect("few") + 2;
            set.put(Entry::parse(name, value, age, age));
        }
        let resolved = set.resolve();
        let good = resolved
            .peers
            .iter()
            .filter(|peer| *peer.key == *GOOD)
            .count();
        prop_assert_eq!(good, 2, "{:?}", resolved);
        for (name, value) in &entries {
            let own = Entry::parse(name, value, 0, 0)
                .lease
                .is_ok_and(|lease| lease.key.to_string() == "10.5.1.0-24&fd00:5:0:1::-64");
            let shown = format!("{:?}", excerpt(name));
            let reported = resolved.peers.iter().any(|peer| *peer.key == **name)
                || resolved
                    .rejected
                    .iter()
                    .any(|rejected| rejected.key == *name && rejected.to_string().contains(&shown));
            prop_assert!(reported || own, "{name:?} is not reported in {resolved:?}");
        }
        for (name, _) in &entries {
            set.delete(name);
        }
        prop_assert_eq!(set.resolve(), with_one_good().resolve());
    }

    #[test]
    fn a_key_that_is_read_is_written_the_same(name in any_name()) {
        if let Ok(key) = name.parse::<LeaseKey>() {
            prop_assert_eq!(key.to_string().parse(), Ok(key));
            prop_assert!(
                key.v4.is_none_or(|v4| v4.trunc() == v4)
                    && key.v6.is_none_or(|v6| v6.trunc() == v6)
            );
        }
    }

    #[test]
    fn attributes_that_are_read_are_written_the_same(value in damaged(value(3))) {
        if let Ok(attrs) = LeaseAttrs::parse(&value) {
            prop_assert_eq!(LeaseAttrs::parse(attrs.to_json().as_bytes()), Ok(attrs));
        }
    }
}

/// The name ends at the first zero.
#[test]
fn fuzz_lease_entries() {
    let seeds = [
        format!("{GOOD}\0{}", value(2)),
        format!("10.5.3.0-24\0{}", value(3)),
        "10.5.3.0-24\0{".to_owned(),
    ];
    flannel_fuzz::run(
        "lease_entries",
        &seeds.each_ref().map(String::as_bytes),
        |input| {
            let end = input
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(input.len());
            let (name, text) = (
                String::from_utf8_lossy(&input[..end]),
                input.get(end + 1..).unwrap_or_default(),
            );
            if let Ok(key) = name.parse::<LeaseKey>() {
                assert_eq!(
                    key.to_string().parse::<LeaseKey>().ok(),
                    Some(key),
                    "what is written is read"
                );
            }
            if let Ok(attrs) = LeaseAttrs::parse(text) {
                assert_eq!(
                    LeaseAttrs::parse(attrs.to_json().as_bytes()).ok(),
                    Some(attrs),
                    "what is written is read"
                );
            }
            let mut set = with_one_good();
            set.put(Entry::parse(&name, text, 2, 2000));
            let resolved = set.resolve();
            let good = resolved
                .peers
                .iter()
                .filter(|peer| *peer.key == *GOOD)
                .count();
            assert!(name == GOOD || good == 2, "{resolved:?}");
        },
    );
}

#[test]
fn fuzz_net_conf() {
    let seeds = [
        DUAL,
        r#"{"Network":"10.5.0.0/16","SubnetLen":24,"SubnetMin":"10.5.1.0","SubnetMax":"10.5.9.0","Backend":{"Type":"vxlan","VNI":1,"Port":8472,"MTU":1400,"GBP":false,"DirectRouting":true}}"#,
        r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48","IPv6SubnetLen":64,"Backend":{"Type":"wireguard","ListenPort":51820,"PSK":"","Mode":"separate"}}"#,
        r#"{"Network":"10.5.0.0/16","Backend":{"Type":"ipsec","PSK":"0123456789abcdef0123456789abcdef","UDPEncap":true,"ESPProposal":"aes128gcm16"}}"#,
        r#"{"Network":"10.5.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"a","SubnetAddCommand":"ip route"}}"#,
        r#"{"Network":"10.5.0.0/16","Backend":{"Type":"aws-vpc","RouteTableID":["rtb-1"]}}"#,
    ];
    flannel_fuzz::run("net_conf", &seeds.map(str::as_bytes), |input| {
        let text = String::from_utf8_lossy(input);
        for config in [
            NetworkConfig::parse(&text),
            NetworkConfig::parse_assigned(&text),
        ]
        .into_iter()
        .flatten()
        {
            assert!(
                config.ipv4.is_some() || config.ipv6.is_some(),
                "a network: {config:?}"
            );
        }
    });
}
