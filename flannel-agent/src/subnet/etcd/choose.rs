//! Which subnet to ask for. Pure: the leases there are, and what we want, give one choice.

use ipnet::Ipv4Net;
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
    let our_ip = request.attrs.public_ip;
    let is_ours =
        |stored: &&Stored| our_ip.is_some() && stored.lease().is_some_and(|lease| lease.attrs.public_ip == our_ip);
    if let Some(stored) = leases.iter().find(is_ours)
        && let Some(lease) = stored.lease()
    {
        return Ok(if suits(config, lease.key) { Choice::Reuse(stored, lease.key) } else { Choice::Discard(stored) });
    }
    let taken = Taken::new(leases);
    if let Some(previous) = request.previous {
        if !suits(config, previous) {
            warn!("the previous subnet {previous} does not suit the network configuration; choosing another");
        } else if taken.is_free(previous) {
            return Ok(Choice::Create(previous));
        }
    }
    let v4 = config.ipv4.as_ref().map(|family| draw(family, &taken.v4, rng)).transpose()?;
    let v6 = config.ipv6.as_ref().map(|family| draw(family, &taken.v6, rng)).transpose()?;
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

/// First and last addresses, as numbers, sorted. Those of every well-formed key, whatever its value.
struct Taken {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
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

    fn is_free(&self, key: LeaseKey) -> bool {
        let free = |taken: &[(u128, u128)], (first, last)| taken.iter().all(|other| other.1 < first || last < other.0);
        key.v4.is_none_or(|subnet: Ipv4Net| free(&self.v4, range(subnet)))
            && key.v6.is_none_or(|subnet| free(&self.v6, range(subnet)))
    }
}

fn range<P: Prefix>(subnet: P) -> (u128, u128) {
    (subnet.first(), subnet.last())
}

/// One of the first free subnets, at random.
fn draw<P: Prefix>(family: &FamilyConfig<P>, taken: &[(u128, u128)], rng: &mut impl Rng) -> Result<P, OutOfSubnets> {
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

    fn request(previous: Option<&str>) -> LeaseRequest {
        let text =
            r#"{"Network":"10.5.0.0/16","SubnetMin":"10.5.4.0","SubnetMax":"10.5.7.0","Backend":{"Type":"vxlan"}}"#;
        LeaseRequest {
            config: NetworkConfig::parse(text).expect("a configuration"),
            attrs: LeaseAttrs { public_ip: Some([192, 0, 2, 1].into()), ..LeaseAttrs::default() },
            previous: previous.map(|key| key.parse().expect("a key")),
        }
    }

    fn stored(name: &str, ip: u8) -> Stored {
        let value = format!(r#"{{"PublicIP":"192.0.2.{ip}"}}"#);
        Stored { entry: Entry::parse(name, value.as_bytes(), 1, 1), etcd_lease: 7 }
    }

    fn choice(previous: Option<&str>, leases: &[Stored]) -> String {
        match choose(&request(previous), leases, &mut rand::rng()) {
            Ok(Choice::Reuse(_, key)) => format!("reuse {key}"),
            Ok(Choice::Discard(stored)) => format!("discard {}", stored.entry.name),
            Ok(Choice::Create(key)) => format!("create {key}"),
            Err(error) => error.to_string(),
        }
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
}
