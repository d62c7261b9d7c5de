//! By what leases get into each other's way: a VTEP MAC or public key that two have, and subnets
//! that overlap.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use flannel_common::packet::addr::Mac;
use flannel_host::{family::Family, wireguard_key::PublicKey};
use ipnet::IpNet;

use super::EndId;

/// The resources of one family of a lease that may conflict with another lease's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tie {
    pub(super) subnet: IpNet,
    pub(super) end: Option<EndId>,
}

impl Tie {
    fn family(&self) -> Family {
        Family::of(self.subnet.addr())
    }

    fn mac(&self) -> Option<(Family, Mac)> {
        match self.end? {
            EndId::Mac(mac) => Some((self.family(), mac)),
            EndId::Key(_) => None,
        }
    }

    fn key(&self) -> Option<(Family, PublicKey)> {
        match self.end? {
            EndId::Key(key) => Some((self.family(), key)),
            EndId::Mac(_) => None,
        }
    }
}

/// The ties of all leases that passed the checks that do not involve other leases. MACs and keys
/// are stored separately, because a key takes five times the memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Conflicts {
    macs: Names<(Family, Mac)>,
    keys: Names<(Family, PublicKey)>,
    subnets: Names<IpNet>,
}

/// The names of the leases with each of these.
type Names<T> = BTreeSet<(T, Arc<str>)>;

impl Conflicts {
    /// The ties of these leases.
    pub(super) fn of(ties: &[(Arc<str>, Tie)]) -> Self {
        let mac = |(name, tie): &(Arc<str>, Tie)| Some((tie.mac()?, Arc::clone(name)));
        let key = |(name, tie): &(Arc<str>, Tie)| Some((tie.key()?, Arc::clone(name)));
        Self {
            macs: ties.iter().filter_map(mac).collect(),
            keys: ties.iter().filter_map(key).collect(),
            subnets: ties
                .iter()
                .map(|(name, tie)| (tie.subnet, Arc::clone(name)))
                .collect(),
        }
    }

    pub(super) fn add(&mut self, name: &Arc<str>, tie: Tie) {
        self.subnets.insert((tie.subnet, Arc::clone(name)));
        self.macs
            .extend(tie.mac().map(|mac| (mac, Arc::clone(name))));
        self.keys
            .extend(tie.key().map(|key| (key, Arc::clone(name))));
    }

    pub(super) fn remove(&mut self, name: &Arc<str>, tie: Tie) {
        self.subnets.remove(&(tie.subnet, Arc::clone(name)));
        if let Some(mac) = tie.mac() {
            self.macs.remove(&(mac, Arc::clone(name)));
        }
        if let Some(key) = tie.key() {
            self.keys.remove(&(key, Arc::clone(name)));
        }
    }

    /// The names of the leases with this tie, or one that overlaps.
    pub(super) fn with(&self, tie: Tie) -> Vec<Arc<str>> {
        let subnet = tie.subnet;
        let same_mac = tie
            .mac()
            .into_iter()
            .flat_map(|mac| with_same(&self.macs, mac));
        let same_key = tie
            .key()
            .into_iter()
            .flat_map(|key| with_same(&self.keys, key));
        // Of two subnets that overlap, one holds the other.
        let inside = self
            .subnets
            .range((Bound::Included((subnet, before_all())), Bound::Unbounded));
        let inside = inside
            .take_while(move |(other, _)| subnet.contains(other))
            .map(|(_, name)| name);
        let outside =
            (0..=subnet.prefix_len()).filter_map(move |len| IpNet::new(subnet.addr(), len).ok());
        let outside = outside.flat_map(|larger| with_same(&self.subnets, larger.trunc()));
        same_mac
            .chain(same_key)
            .chain(inside)
            .chain(outside)
            .cloned()
            .collect()
    }
}

fn with_same<T: Copy + Ord>(names: &Names<T>, wanted: T) -> impl Iterator<Item = &Arc<str>> {
    let from = names.range((wanted, before_all())..);
    from.take_while(move |(other, _)| *other == wanted)
        .map(|(_, name)| name)
}

/// Before every name.
fn before_all() -> Arc<str> {
    Arc::from("")
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::addr::Mac;

    use super::*;

    fn tie(subnet: &str, mac: u8) -> Tie {
        Tie {
            subnet: subnet.parse().expect("a subnet"),
            end: Some(EndId::Mac(Mac([2, 0, 0, 0, 0, mac]))),
        }
    }

    #[test]
    fn leases_are_tied_by_their_mac_and_by_subnets_on_either_side() {
        let mut ties = Conflicts::default();
        for (name, subnet, mac) in [
            ("large", "10.5.0.0/16", 1),
            ("middle", "10.5.8.0/22", 2),
            ("small", "10.5.9.0/24", 3),
            ("beside", "10.5.12.0/24", 4),
            ("other", "10.6.0.0/24", 3),
            ("v6", "fd00::/64", 3),
        ] {
            ties.add(&Arc::from(name), tie(subnet, mac));
        }
        let with = |subnet, mac| {
            ties.with(tie(subnet, mac))
                .iter()
                .map(ToString::to_string)
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            with("10.5.8.0/23", 9),
            BTreeSet::from(["large", "middle", "small"].map(str::to_owned))
        );
        assert_eq!(
            with("10.5.12.0/24", 3),
            BTreeSet::from(["large", "beside", "small", "other"].map(str::to_owned))
        );
        assert_eq!(with("10.7.0.0/24", 9), BTreeSet::new());
        assert_eq!(with("fd00::/60", 1), BTreeSet::from(["v6".to_owned()]));
    }
}
