//! Texts of any content: no panic, and what is accepted can be leased from.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::config::Prefix;

const KEYS: &[&str] = &[
    "Network",
    "SubnetLen",
    "SubnetMin",
    "SubnetMax",
    "EnableIPv4",
    "EnableIPv6",
    "IPv6Network",
    "IPv6SubnetLen",
    "IPv6SubnetMin",
    "IPv6SubnetMax",
    "EnableNFTables",
    "Backend",
    "network",
    "Unknown",
];

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        select(
            &[
                "null",
                "true",
                "false",
                "0",
                "-1",
                "1e9",
                "18446744073709551616",
                "[]",
                "{}",
                r#""""#
            ][..]
        )
        .prop_map(str::to_owned),
        (0..40_u8).prop_map(|n| n.to_string()),
        (any::<u16>(), 0..36_u8).prop_map(|(bits, length)| format!(
            r#""10.{}.{}.0/{length}""#,
            bits >> 8,
            bits & 255
        )),
        (any::<u16>(), 0..132_u8)
            .prop_map(|(bits, length)| format!(r#""fd00:{bits:x}::/{length}""#)),
        (any::<u16>(), any::<u8>()).prop_map(|(bits, low)| format!(
            r#""10.{}.{}.{low}""#,
            bits >> 8,
            bits & 255
        )),
        any::<u64>()
            .prop_map(|bits| format!(r#""{}""#, std::net::Ipv6Addr::from(u128::from(bits) << 64))),
        select(
            &[
                r#"{"Type":"vxlan"}"#,
                r#"{"Type":"host-gw"}"#,
                r#"{"Type":"alloc"}"#,
                r#"{"Type":"vxlan","VNI":1,"Port":1,"MTU":1400}"#
            ][..]
        )
        .prop_map(str::to_owned),
        "[ -~]{0,6}",
    ]
}

/// Members that may go together, in some order.
fn any_text() -> impl Strategy<Value = String> {
    vec((select(KEYS), any_value()), 0..8).prop_map(|members| {
        let members: Vec<_> = members
            .iter()
            .map(|(key, value)| format!("{key:?}:{value}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

/// Texts of which most are accepted.
fn likely_text() -> impl Strategy<Value = String> {
    (8..=28_u8, 0..=30_u8, any::<u32>(), any::<u32>()).prop_map(|(length, len, min, max)| {
        let at = |bits: u32| Ipv4Addr::from((10 << 24) | (bits & 0x00ff_ffff));
        let step = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        let (min, max) = (at(min & step), at(max & step));
        format!(r#"{{"Network":"10.0.0.0/{length}","SubnetLen":{len},"SubnetMin":"{min}","SubnetMax":"{max}","Backend":{{"Type":"vxlan"}}}}"#)
    })
}

fn leasable<P: Prefix>(family: &FamilyConfig<P>) -> Result<(), TestCaseError> {
    let (min, max) = (P::to_bits(family.subnet_min), P::to_bits(family.subnet_max));
    prop_assert!(
        min <= max && min >= family.network.first() && max <= family.network.last(),
        "{family:?}"
    );
    let first: Vec<_> = family.subnets().take(100).collect();
    prop_assert!(
        !first.is_empty() && first.iter().all(|subnet| family.allows(*subnet)),
        "{family:?}"
    );
    prop_assert_eq!(first[0].first(), min);
    prop_assert!(
        first
            .windows(2)
            .all(|pair| pair[0].last() + 1 == pair[1].first()),
        "{family:?}"
    );
    let last = P::from_bits(max, family.subnet_len);
    prop_assert!(
        family.allows(last) && last.last() <= family.network.last(),
        "{family:?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_is_accepted_can_be_leased_from(
        text in prop_oneof![any_text(), likely_text(), ".{0,40}"],
    ) {
        for parsed in [
            NetworkConfig::parse(&text),
            NetworkConfig::parse_assigned(&text),
        ] {
            match parsed {
                Ok(config) => {
                    prop_assert!(config.ipv4.is_some() || config.ipv6.is_some());
                    config.ipv4.as_ref().map_or(Ok(()), leasable)?;
                    config.ipv6.as_ref().map_or(Ok(()), leasable)?;
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
