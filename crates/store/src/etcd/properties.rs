//! Invariants of the choice of a subnet, whatever is leased already.

use std::{collections::BTreeSet, fmt::Debug};

use ipnet::{Ipv4Net, Ipv6Net};
use proptest::{collection::vec, prelude::*};

use super::listing::Stored;
use crate::{
    config::{FamilyConfig, NetworkConfig, Prefix},
    etcd::lease::choose::{Choice, Identity, choose},
    memory::Recorded,
    {Entry, LeaseAttrs, LeaseKey, LeaseRequest},
};

/// A few dozen subnets of each family that is on, from bounds within the network.
fn any_config() -> impl Strategy<Value = NetworkConfig> {
    let cut = || {
        (
            18..=22_u8,
            2..=5_u8,
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
        )
    };
    (cut(), cut(), 0..3_u8).prop_map(|(v4, v6, families)| {
        let bounds = |cut: u8, a: prop::sample::Index, b: prop::sample::Index| {
            let (a, b) = (a.index(1 << cut), b.index(1 << cut));
            (a.min(b), a.max(b))
        };
        let (length, cut, a, b) = v4;
        let (min, max) = bounds(cut, a, b);
        let address = |at: usize| {
            let subnet = u32::try_from(at << (32 - length - cut)).expect("IPv4");
            std::net::Ipv4Addr::from((10 << 24) + subnet)
        };
        let v4 = format!(
            r#""Network":"10.0.0.0/{length}","SubnetLen":{},"SubnetMin":"{}","SubnetMax":"{}""#,
            length + cut, address(min), address(max)
        );
        let (length, cut, a, b) = (v6.0 + 30, v6.1, v6.2, v6.3);
        let (min, max) = bounds(cut, a, b);
        let address = |at: usize| {
            let subnet = (at as u128) << (128 - length - cut);
            std::net::Ipv6Addr::from((0xfd00 << 112) + subnet)
        };
        let v6 = format!(
            r#""EnableIPv6":true,"IPv6Network":"fd00::/{length}","IPv6SubnetLen":{},"IPv6SubnetMin":"{}","IPv6SubnetMax":"{}""#,
            length + cut, address(min), address(max)
        );
        let families = match families {
            0 => v4,
            1 => format!(r#""EnableIPv4":false,{v6}"#),
            _ => format!("{v4},{v6}"),
        };
        let text = format!(r#"{{{families},"Backend":{{"Type":"vxlan"}}}}"#);
        NetworkConfig::parse(&text).expect("a configuration")
    })
}

/// Names of leases of any length, in and around such networks; some are none.
fn any_taken() -> impl Strategy<Value = Vec<String>> {
    let v4 = (0..=0x3fff_u32, 16..=31_u8).prop_map(|(bits, length)| {
        let net = Ipv4Net::new(((10 << 24) + bits).into(), length)
            .expect("a length")
            .trunc();
        format!("{}-{length}", net.addr())
    });
    let v6 = (any::<u16>(), 40..=64_u8).prop_map(|(bits, length)| {
        let address = std::net::Ipv6Addr::from((0xfd00 << 112) + (u128::from(bits) << 70));
        format!(
            "{}-{length}",
            Ipv6Net::new(address, length)
                .expect("a length")
                .trunc()
                .addr()
        )
    });
    vec(
        prop_oneof![
            4 => v4.clone(),
            2 => (v4, v6).prop_map(|(v4, v6)| format!("{v4}&{v6}")),
            1 => ".{0,8}",
        ],
        0..12,
    )
}

fn stored(name: &str, node: u16) -> Stored {
    let [upper, lower] = node.to_be_bytes();
    let value = format!(r#"{{"PublicIP":"172.16.{upper}.{lower}"}}"#);
    Stored {
        entry: Entry::parse(name, value.as_bytes(), 1, 1).into(),
        etcd_lease: 7,
        claimed_by: None,
    }
}

fn free<P: Prefix>(family: Option<&FamilyConfig<P>>, taken: &[P]) -> Option<usize> {
    let overlap = |a: &P, b: &P| a.first() <= b.last() && b.first() <= a.last();
    family.map(|family| {
        family
            .subnets()
            .filter(|subnet| !taken.iter().any(|other| overlap(subnet, other)))
            .count()
    })
}

fn subnets_of<P: Copy>(leases: &[Stored], part: impl Fn(LeaseKey) -> Option<P>) -> Vec<P> {
    leases
        .iter()
        .filter_map(|lease| lease.entry.name.parse().ok().and_then(&part))
        .collect()
}

fn disjoint_and_allowed<P: Prefix + Debug>(
    family: Option<&FamilyConfig<P>>,
    subnet: Option<P>,
    taken: &[P],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(family.is_some(), subnet.is_some());
    if let (Some(family), Some(subnet)) = (family, subnet) {
        prop_assert!(family.allows(subnet), "{subnet} of {family:?}");
        let clash = taken
            .iter()
            .find(|other| subnet.first() <= other.last() && other.first() <= subnet.last());
        prop_assert_eq!(clash, None, "{}", subnet);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Nodes come until none gets a subnet any more.
    #[test]
    fn subnets_are_disjoint_and_in_range_and_all_are_given_out(
        config in any_config(),
        taken in any_taken(),
        previous in any_taken(),
    ) {
        let mut leases: Vec<_> = taken.iter().map(|name| stored(name, 0)).collect();
        let left = |leases: &[Stored]| {
            let v4 = free(config.ipv4.as_ref(), &subnets_of(leases, |key| key.v4));
            let v6 = free(config.ipv6.as_ref(), &subnets_of(leases, |key| key.v6));
            v4.into_iter().chain(v6).min().expect("a family")
        };
        let expected = left(&leases);
        let mut previous = previous
            .iter()
            .filter_map(|name| name.parse::<LeaseKey>().ok());
        for node in 1.. {
            let attrs = LeaseAttrs {
                public_ip: Some(std::net::Ipv4Addr::from(
                    (172 << 24) + (17 << 16) + u32::from(node),
                )),
                public_ipv6: Some(std::net::Ipv6Addr::from(
                    (0x2001_0db8 << 96) + u128::from(node),
                )),
                ..LeaseAttrs::default()
            };
            let request = LeaseRequest {
                config: config.clone(),
                attrs,
                previous: previous.next(),
            };
            let identity = Identity {
                request: &request,
                recorded: &Recorded::Nothing,
                held_by_others: &BTreeSet::new(),
            };
            let key = match choose(&identity, &leases, &mut rand::rng()) {
                Ok(Choice::Create(key)) => key,
                Ok(other) => {
                    return Err(TestCaseError::fail(format!(
                        "{other:?}, and nothing is \
                    ours"
                    )));
                }
                Err(_out_of_subnets) => {
                    prop_assert_eq!(left(&leases), 0, "told to be out of subnets");
                    prop_assert_eq!(usize::from(node) - 1, expected);
                    return Ok(());
                }
            };
            disjoint_and_allowed(
                config.ipv4.as_ref(),
                key.v4,
                &subnets_of(&leases, |key| key.v4),
            )?;
            disjoint_and_allowed(
                config.ipv6.as_ref(),
                key.v6,
                &subnets_of(&leases, |key| key.v6),
            )?;
            leases.push(stored(&key.to_string(), node));
        }
    }
}
