//! Which subnets to ask for. Pure: the leases there are, and what we want, give one choice. New subnets are chosen for each
//! family by itself.

use rand::{Rng, seq::IndexedRandom};
use tracing::warn;

use super::listing::Stored;
use crate::{
    config::{FamilyConfig, NetworkConfig, Prefix},
    subnet::{LeaseKey, LeaseRequest, OutOfSubnets},
};

/// So many free subnets are drawn from: enough that nodes starting together rarely draw the same.
const DRAW_FROM: usize = 100;

/// What to do next.
#[derive(Debug)]
pub(super) enum Choice<'a> {
    /// This lease is ours already: it has our address, and its subnets suit the configuration.
    Reuse(&'a Stored, LeaseKey),
    /// This lease has our address and does not suit the configuration any more: delete it and choose again.
    Discard(&'a Stored),
    /// Nobody has these subnets: create the lease.
    Create(LeaseKey),
}

/// Chooses among the leases of a listing.
pub(super) fn choose<'a>(
    request: &LeaseRequest,
    leases: &'a [Stored],
    rng: &mut impl Rng,
) -> Result<Choice<'a>, OutOfSubnets> {
    let config = &request.config;
    let is_ours = |stored: &&Stored| stored.lease().is_some_and(|lease| lease.attrs.is_same_node(&request.attrs));
    if let Some(stored) = leases.iter().find(is_ours)
        && let Some(lease) = stored.lease()
    {
        return Ok(if suits(config, lease.key) { Choice::Reuse(stored, lease.key) } else { Choice::Discard(stored) });
    }
    let taken = Taken::new(leases);
    let previous = request.previous.unwrap_or_default();
    let v4 = config.ipv4.as_ref().map(|family| pick(family, previous.v4, &taken.v4, rng)).transpose()?;
    let v6 = config.ipv6.as_ref().map(|family| pick(family, previous.v6, &taken.v6, rng)).transpose()?;
    Ok(Choice::Create(LeaseKey { v4, v6 }))
}

/// Whether a node of this configuration may hold the lease: each enabled family in range, no other family.
fn suits(config: &NetworkConfig, key: LeaseKey) -> bool {
    suits_family(config.ipv4.as_ref(), key.v4) && suits_family(config.ipv6.as_ref(), key.v6)
}

fn suits_family<P: Prefix>(family: Option<&FamilyConfig<P>>, subnet: Option<P>) -> bool {
    match (family, subnet) {
        (Some(family), Some(subnet)) => family.allows(subnet),
        (None, None) => true,
        _ => false,
    }
}

/// First and last address, as numbers.
type Range = (u128, u128);

/// Sorted. The subnets of every well-formed key, whatever its value.
struct Taken {
    v4: Vec<Range>,
    v6: Vec<Range>,
}

impl Taken {
    fn new(leases: &[Stored]) -> Self {
        let keys = || leases.iter().filter_map(|stored| stored.entry.name.parse::<LeaseKey>().ok());
        let mut taken = Self {
            v4: keys().filter_map(|key| key.v4).map(range).collect(),
            v6: keys().filter_map(|key| key.v6).map(range).collect(),
        };
        taken.v4.sort_unstable();
        taken.v6.sort_unstable();
        taken
    }
}

fn range<P: Prefix>(subnet: P) -> Range {
    (subnet.first(), subnet.last())
}

/// The previous subnet if it suits and nobody has it, else another one.
fn pick<P: Prefix>(
    family: &FamilyConfig<P>,
    previous: Option<P>,
    taken: &[Range],
    rng: &mut impl Rng,
) -> Result<P, OutOfSubnets> {
    if let Some(previous) = previous {
        if !family.allows(previous) {
            warn!("the previous subnet {previous} does not suit the network configuration; choosing another");
        } else if taken.iter().all(|other| other.1 < previous.first() || previous.last() < other.0) {
            return Ok(previous);
        }
    }
    draw(family, taken, rng)
}

/// One of the first free subnets, at random.
fn draw<P: Prefix>(family: &FamilyConfig<P>, taken: &[Range], rng: &mut impl Rng) -> Result<P, OutOfSubnets> {
    // Both run upwards: `reached` is the highest address of all that start at or before the candidate's end.
    let (mut pending, mut reached) = (taken.iter().peekable(), None);
    let is_free = |subnet: &P| {
        while let Some((_, last)) = pending.next_if(|(first, _)| *first <= subnet.last()) {
            reached = reached.max(Some(*last));
        }
        reached.is_none_or(|reached| reached < subnet.first())
    };
    let free: Vec<P> = family.subnets().filter(is_free).take(DRAW_FROM).collect();
    free.choose(rng).copied().ok_or_else(|| OutOfSubnets {
        network: family.network.into(),
        subnet_len: family.subnet_len,
        first: family.subnet_min.into(),
        last: family.subnet_max.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subnet::{Entry, LeaseAttrs};

    const V4: &str = r#""Network":"10.5.0.0/16","SubnetMin":"10.5.4.0","SubnetMax":"10.5.7.0""#;
    const V6: &str =
        r#""EnableIPv6":true,"IPv6Network":"fd00::/48","IPv6SubnetMin":"fd00:0:0:4::","IPv6SubnetMax":"fd00:0:0:7::""#;

    /// Of node 1, whose addresses are 192.0.2.1 and 2001:db8::1.
    fn request(families: &str, previous: Option<&str>) -> LeaseRequest {
        let config = NetworkConfig::parse(&format!(r#"{{{families},"Backend":{{"Type":"vxlan"}}}}"#));
        let config = config.expect("a configuration");
        let public_ip = config.ipv4.map(|_| [192, 0, 2, 1].into());
        let public_ipv6 = config.ipv6.map(|_| "2001:db8::1".parse().expect("an address"));
        let attrs = LeaseAttrs { public_ip, public_ipv6, ..LeaseAttrs::default() };
        LeaseRequest { config, attrs, previous: previous.map(|key| key.parse().expect("a key")) }
    }

    fn with_ip(name: &str, ip: &str, ipv6: &str) -> Stored {
        let value = format!(r#"{{"PublicIP":"{ip}","PublicIPv6":{ipv6}}}"#);
        Stored { entry: Entry::parse(name, value.as_bytes(), 1, 1), etcd_lease: 7 }
    }

    fn stored(name: &str, n: u8) -> Stored {
        with_ip(name, &format!("192.0.2.{n}"), "null")
    }

    fn dual(name: &str, n: u8) -> Stored {
        with_ip(name, &format!("192.0.2.{n}"), &format!(r#""2001:db8::{n}""#))
    }

    fn ipv6_only(name: &str, n: u8) -> Stored {
        with_ip(name, "0.0.0.0", &format!(r#""2001:db8::{n}""#))
    }

    fn chosen(families: &str, previous: Option<&str>, leases: &[Stored]) -> String {
        match choose(&request(families, previous), leases, &mut rand::rng()) {
            Ok(Choice::Reuse(_, key)) => format!("reuse {key}"),
            Ok(Choice::Discard(stored)) => format!("discard {}", stored.entry.name),
            Ok(Choice::Create(key)) => format!("create {key}"),
            Err(error) => error.to_string(),
        }
    }

    fn choice(previous: Option<&str>, leases: &[Stored]) -> String {
        chosen(V4, previous, leases)
    }

    #[test]
    fn our_address_decides_first() {
        assert_eq!(choice(None, &[stored("10.5.9.0-24", 2), stored("10.5.5.0-24", 1)]), "reuse 10.5.5.0-24");
        for unsuitable in ["10.5.8.0-24", "10.5.5.0-25", "10.5.5.0-24&fd00::-64"] {
            assert_eq!(choice(Some("10.5.6.0-24"), &[stored(unsuitable, 1)]), format!("discard {unsuitable}"));
        }
    }

    #[test]
    fn the_previous_subnet_comes_next() {
        assert_eq!(choice(Some("10.5.6.0-24"), &[]), "create 10.5.6.0-24");
        let neighbours = [stored("10.5.4.0-24", 2), stored("10.5.5.0-24", 3), stored("10.5.7.0-24", 4)];
        assert_eq!(choice(Some("10.5.6.0-24"), &neighbours), "create 10.5.6.0-24");
        assert_eq!(choice(Some("10.5.5.0-24"), &neighbours), "create 10.5.6.0-24");
        assert_eq!(choice(Some("10.5.9.0-24"), &neighbours), "create 10.5.6.0-24");
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
        let malformed = Stored { entry: Entry::parse("10.5.4.0-22", b"{", 1, 1), etcd_lease: 0 };
        let text = choice(None, &[malformed]);
        assert!(text.starts_with("out of subnets: every /24 from 10.5.4.0 to 10.5.7.0"), "{text}");
    }

    #[test]
    fn any_free_subnet_may_be_drawn() {
        let mut seen: Vec<_> = (0..200).map(|_| choice(None, &[])).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4, "{seen:?}");
    }

    #[test]
    fn with_both_families_ipv4_tells_who_we_are_and_both_must_suit() {
        let families = format!("{V4},{V6}");
        let choice = |lease| chosen(&families, None, &[lease]);
        assert_eq!(choice(dual("10.5.5.0-24&fd00:0:0:5::-64", 1)), "reuse 10.5.5.0-24&fd00:0:0:5::-64");
        let same_v4 = with_ip("10.5.5.0-24&fd00:0:0:5::-64", "192.0.2.1", r#""2001:db8::9""#);
        assert_eq!(choice(same_v4), "reuse 10.5.5.0-24&fd00:0:0:5::-64");
        for unsuitable in ["10.5.5.0-24", "10.5.5.0-24&fd00:0:0:9::-64", "10.5.5.0-24&fd00:0:0:5::-65"] {
            assert_eq!(choice(dual(unsuitable, 1)), format!("discard {unsuitable}"));
        }
        let before_ipv4 = "0.0.0.0-0&fd00:0:0:5::-64";
        assert_eq!(choice(ipv6_only(before_ipv4, 1)), format!("discard {before_ipv4}"), "from before IPv4 was on");
        let other = with_ip("10.5.5.0-24&fd00:0:0:5::-64", "192.0.2.2", r#""2001:db8::1""#);
        assert!(choice(other).starts_with("create "), "another node with our IPv6 address is another node");
    }

    #[test]
    fn with_ipv6_alone_nodes_are_told_apart() {
        let families = format!(r#""EnableIPv4":false,{V6}"#);
        let choice = |leases: &[Stored]| chosen(&families, Some("0.0.0.0-0&fd00:0:0:6::-64"), leases);
        let key = "0.0.0.0-0&fd00:0:0:5::-64";
        assert_eq!(choice(&[ipv6_only(key, 1)]), format!("reuse {key}"));
        let others = [ipv6_only(key, 2), with_ip("0.0.0.0-0&fd00:0:0:4::-64", "0.0.0.0", "null")];
        assert_eq!(choice(&others), "create 0.0.0.0-0&fd00:0:0:6::-64");
        let unsuitable = "10.5.5.0-24&fd00:0:0:5::-64";
        assert_eq!(choice(&[dual(unsuitable, 1)]), format!("discard {unsuitable}"), "from before IPv4 was off");
    }

    #[test]
    fn each_family_keeps_what_it_had_if_it_can() {
        let families = format!("{V4},{V6}");
        let all_but = |free: &str| {
            let names = (4..8).map(|n| (format!("10.5.{n}.0-24"), format!("0.0.0.0-0&fd00:0:0:{n}::-64")));
            let names = names.flat_map(|(v4, v6)| [v4, v6]).filter(|name| !free.contains(name.as_str()));
            names.map(|name| ipv6_only(&name, 9)).collect::<Vec<_>>()
        };
        let leases = all_but("10.5.4.0-24 10.5.5.0-24 0.0.0.0-0&fd00:0:0:6::-64");
        let choice = |previous| chosen(&families, Some(previous), &leases);
        assert_eq!(choice("10.5.5.0-24&fd00:0:0:6::-64"), "create 10.5.5.0-24&fd00:0:0:6::-64");
        assert_eq!(choice("10.5.5.0-24"), "create 10.5.5.0-24&fd00:0:0:6::-64", "IPv6 is new");
        assert_eq!(choice("10.5.5.0-24&fd00:0:0:5::-64"), "create 10.5.5.0-24&fd00:0:0:6::-64", "taken");
        assert_eq!(choice("10.5.5.0-24&fd00:0:0:9::-64"), "create 10.5.5.0-24&fd00:0:0:6::-64", "not in range");
        let full = chosen(&families, None, &all_but("10.5.4.0-24"));
        assert!(full.starts_with("out of subnets: every /64 from fd00:0:0:4:: to fd00:0:0:7::"), "{full}");
    }
}
