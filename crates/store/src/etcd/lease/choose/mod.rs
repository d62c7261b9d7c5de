//! The choice of the subnets to ask for. Pure: it depends only on the existing leases, on what the
//! node knows of itself, and on random numbers. New subnets are chosen for each family separately.
//!
//! A lease is ours by our record of it, by our public address, or as that of our former subnet by
//! our VTEP MAC or public key. A node that comes back with another address keeps its subnet so. An
//! address that another node had before does not make its lease ours: its device is another one.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt};

use flannel_host::{family::Family, networks::overlap};
use rand::{Rng, seq::IndexedRandom};
use tracing::warn;

use crate::etcd::listing::Stored;
use crate::{
    config::{FamilyConfig, NetworkConfig, Prefix},
    memory::Recorded,
    {EndMatch, Lease, LeaseAttrs, LeaseKey, LeaseRequest, OutOfSubnets},
};

/// The number of free subnets from which one is drawn at random. With this many, nodes that start
/// together rarely draw the same.
const DRAW_FROM: usize = 100;

/// The next step towards a lease.
#[derive(Debug)]
pub(in crate::etcd) enum Choice<'a> {
    /// This lease is ours already, and its subnets suit the configuration.
    Reuse(&'a Stored, LeaseKey, Proof),
    /// This lease is ours and cannot be used: delete it and choose again.
    Discard(&'a Stored, Useless),
    /// No lease has these subnets: create one.
    Create(LeaseKey),
}

/// By what a lease is known to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::etcd) enum Proof {
    /// The record of this machine: no client wrote the lease since.
    Record,
    /// Our public address, or our former subnet with our VTEP MAC or public key. Another machine
    /// may have the same, so its holder is asked first.
    Likeness,
}

/// Reasons why our own lease cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::etcd) enum Useless {
    /// The configuration is another one now.
    Unsuitable,
    /// An older lease of another node overlaps one of its subnets. A key of two subnets does not
    /// reserve either of them, so nodes that start together may draw the same subnet of one family.
    /// The younger lease is discarded, because peers would refuse it.
    Overtaken,
    /// We hold another one.
    Surplus,
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsuitable => "does not suit the network configuration",
            Self::Overtaken => "overlaps an older one of another node",
            Self::Surplus => "is left from before, and we hold another one",
        })
    }
}

/// The node's knowledge of itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd) struct Identity<'a> {
    pub(in crate::etcd) request: &'a LeaseRequest,
    pub(in crate::etcd) recorded: &'a Recorded,
    /// The names of leases that looked like ours, and whose holders answered.
    pub(in crate::etcd) held_by_others: &'a BTreeSet<String>,
}

impl Identity<'_> {
    /// Returns the proof that a lease is ours; `None` if it is another node's. `remembers` is true
    /// if the former subnet is free, so that this node can have it back.
    fn proof(&self, stored: &Stored, remembers: bool) -> Option<Proof> {
        let lease = stored.lease()?;
        if self.is_recorded(stored, lease) {
            return Some(Proof::Record);
        }
        let ends = lease.attrs.compare_ends(&self.request.attrs);
        let is_likely = if lease.attrs.is_same_node(&self.request.attrs) {
            // Whose address this was before: its device is another one, and we had another subnet.
            let is_left = remembers && stored.etcd_lease != 0 && ends == EndMatch::Other;
            !is_left || self.request.previous == Some(lease.key)
        } else {
            let is_copy = *self.recorded == Recorded::OfAnotherMachine;
            !is_copy && self.request.previous == Some(lease.key) && ends == EndMatch::Same
        };
        (is_likely && !self.held_by_others.contains(&*stored.entry.name)).then_some(Proof::Likeness)
    }

    fn is_recorded(&self, stored: &Stored, lease: &Lease) -> bool {
        let Recorded::Lease(record) = self.recorded else {
            return false;
        };
        // An operator may have made it a reservation.
        let is_last =
            [record.etcd_lease, 0].contains(&stored.etcd_lease) && stored.claimed_by.is_none();
        let same_value =
            || LeaseAttrs::parse(record.value.as_bytes()).is_ok_and(|attrs| attrs == lease.attrs);
        *stored.entry.name == record.name && is_last && same_value()
    }

    /// Returns the leases that this node left behind, in addition to the one that it holds: those
    /// of its record, and those with both its address and its end of the tunnel. Reservations stay.
    pub(in crate::etcd) fn surplus<'a>(
        &self,
        leases: &'a [Stored],
        held: &str,
    ) -> impl Iterator<Item = &'a Stored> {
        let ours = |stored: &&Stored| {
            stored.lease().is_some_and(|lease| {
                let is_alike = || {
                    lease.attrs.is_same_node(&self.request.attrs)
                        && lease.attrs.compare_ends(&self.request.attrs) == EndMatch::Same
                };
                self.is_recorded(stored, lease) || is_alike()
            })
        };
        let others = leases
            .iter()
            .filter(|stored| *stored.entry.name != *held && stored.etcd_lease != 0);
        others.filter(ours)
    }
}

/// Chooses among the leases of a listing. Of those that are ours the one of the former subnet comes
/// first, then a recorded one, then one that suits.
pub(in crate::etcd) fn choose<'a>(
    identity: &Identity<'_>,
    leases: &'a [Stored],
    rng: &mut impl Rng,
) -> Result<Choice<'a>, OutOfSubnets> {
    let request = identity.request;
    let config = &request.config;
    let taken = Taken::new(leases);
    let remembers = request
        .previous
        .is_some_and(|key| suits(config, key) && taken.is_free(key));
    let ours = leases.iter().filter_map(|stored| {
        let key = stored.lease()?.key;
        Some((stored, key, identity.proof(stored, remembers)?))
    });
    let order = |(_, key, proof): &(&Stored, LeaseKey, Proof)| {
        (
            request.previous != Some(*key),
            *proof != Proof::Record,
            !suits(config, *key),
        )
    };
    if let Some((stored, key, proof)) = ours.min_by_key(order) {
        return Ok(match () {
            () if !suits(config, key) => Choice::Discard(stored, Useless::Unsuitable),
            () if is_overtaken(stored, key, leases) => Choice::Discard(stored, Useless::Overtaken),
            () => Choice::Reuse(stored, key, proof),
        });
    }
    let previous = request.previous.unwrap_or_default();
    let v4 = config
        .ipv4
        .as_ref()
        .map(|family| pick(family, previous.v4, &taken.v4, rng))
        .transpose()?;
    let v6 = config
        .ipv6
        .as_ref()
        .map(|family| pick(family, previous.v6, &taken.v6, rng))
        .transpose()?;
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
fn is_overtaken(ours: &Stored, key: LeaseKey, leases: &[Stored]) -> bool {
    let is_same_node = |other: &Lease| {
        ours.lease()
            .is_some_and(|lease| other.attrs.is_same_node(&lease.attrs))
    };
    let older = leases
        .iter()
        .filter(|other| age(other) < age(ours))
        .filter_map(Stored::lease);
    older
        .filter(|other| !is_same_node(other))
        .flat_map(|other| {
            Family::BOTH.map(|family| other.key.subnet(family).zip(key.subnet(family)))
        })
        .flatten()
        .any(|(theirs, own)| overlap(theirs, own))
}

fn age(stored: &Stored) -> (i64, &str) {
    (stored.entry.created, &stored.entry.name)
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
        let keys = || {
            leases
                .iter()
                .filter_map(|stored| stored.entry.name.parse::<LeaseKey>().ok())
        };
        let mut taken = Self {
            v4: keys().filter_map(|key| key.v4).map(range).collect(),
            v6: keys().filter_map(|key| key.v6).map(range).collect(),
        };
        taken.v4.sort_unstable();
        taken.v6.sort_unstable();
        taken
    }

    fn is_free(&self, key: LeaseKey) -> bool {
        key.v4.is_none_or(|v4| is_free(v4, &self.v4))
            && key.v6.is_none_or(|v6| is_free(v6, &self.v6))
    }
}

fn is_free<P: Prefix>(subnet: P, taken: &[Range]) -> bool {
    taken
        .iter()
        .all(|other| other.1 < subnet.first() || subnet.last() < other.0)
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
            warn!(
                "the previous subnet {previous} does not suit the network configuration; choosing \
                 another"
            );
        } else if is_free(previous, taken) {
            return Ok(previous);
        }
    }
    draw(family, taken, rng)
}

/// One of the first free subnets, at random.
fn draw<P: Prefix>(
    family: &FamilyConfig<P>,
    taken: &[Range],
    rng: &mut impl Rng,
) -> Result<P, OutOfSubnets> {
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
