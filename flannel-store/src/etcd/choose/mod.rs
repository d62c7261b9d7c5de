//! The choice of the subnets to ask for. Pure: it depends on the existing leases, the request and
//! the random numbers alone. New subnets are chosen for each family separately.

#[cfg(test)]
mod tests;

use std::fmt;

use rand::{Rng, seq::IndexedRandom};
use tracing::warn;

use super::listing::Stored;
use crate::{
    config::{FamilyConfig, NetworkConfig, Prefix},
    {Lease, LeaseKey, LeaseRequest, OutOfSubnets},
};

/// So many free subnets are drawn from: enough that nodes starting together rarely draw the same.
const DRAW_FROM: usize = 100;

/// The next step towards a lease.
#[derive(Debug)]
pub(super) enum Choice<'a> {
    /// This lease is ours already: it has our address, and its subnets suit the configuration.
    Reuse(&'a Stored, LeaseKey),
    /// This lease has our address and is of no use: delete it and choose again.
    Discard(&'a Stored, Useless),
    /// No lease has these subnets: create one.
    Create(LeaseKey),
}

/// Reasons a lease of ours cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Useless {
    /// The configuration is another one now.
    Unsuitable,
    /// An older lease of another node overlaps one of its subnets. A key of two subnets does not
    /// reserve either of them, so nodes that start together may draw the same subnet of one family.
    /// The younger lease is discarded, because peers would not believe it.
    Overtaken,
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsuitable => "does not suit the network configuration",
            Self::Overtaken => "overlaps an older one of another node",
        })
    }
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
        return Ok(match () {
            () if !suits(config, lease.key) => Choice::Discard(stored, Useless::Unsuitable),
            () if is_overtaken(stored, lease, leases) => Choice::Discard(stored, Useless::Overtaken),
            () => Choice::Reuse(stored, lease.key),
        });
    }
    let taken = Taken::new(leases);
    let previous = request.previous.unwrap_or_default();
    let v4 = config.ipv4.as_ref().map(|family| pick(family, previous.v4, &taken.v4, rng)).transpose()?;
    let v6 = config.ipv6.as_ref().map(|family| pick(family, previous.v6, &taken.v6, rng)).transpose()?;
    Ok(Choice::Create(LeaseKey { v4, v6 }))
}

/// Returns true if a node of this configuration may hold the lease: each enabled family in range,
/// no other family.
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

/// Returns true if an older lease of another node overlaps ours. Age counts as in
/// [`crate::LeaseSet`].
fn is_overtaken(ours: &Stored, lease: &Lease, leases: &[Stored]) -> bool {
    leases.iter().filter(|other| age(other) < age(ours)).filter_map(Stored::lease).any(|other| {
        !other.attrs.is_same_node(&lease.attrs)
            && (overlap(other.key.v4, lease.key.v4) || overlap(other.key.v6, lease.key.v6))
    })
}

fn age(stored: &Stored) -> (i64, &str) {
    (stored.entry.created, &stored.entry.name)
}

fn overlap<P: Prefix>(a: Option<P>, b: Option<P>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.first() <= b.last() && b.first() <= a.last())
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

/// Returns the previous subnet if it suits the configuration and is free, else another one.
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
    // Both run upwards: `reached` is the highest address of all that start at or before the
    // candidate's end.
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
