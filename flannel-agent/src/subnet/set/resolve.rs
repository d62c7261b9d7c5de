//! From entries to peers.
//!
//! Per family: each lease is checked alone and against ourselves, then the survivors against each other.
//!
//! * One VTEP MAC, several public addresses: the lease written last counts. A node that came back with another
//!   address leaves its old lease behind for up to a day, and that one must not shut out the living node. The
//!   same MAC with the same address is one node with two leases, and no conflict.
//! * Overlapping subnets: the lease created first counts (then the lexically first name), so that a newcomer
//!   cannot take away what another node is using.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use flannel_common::addr::Mac;
use ipnet::{Ipv4Net, Ipv6Net};

use super::{LeaseSet, Peer, RejectReason, Rejected, Resolved, Vtep};
use crate::family::Family;
use crate::{
    config::Prefix,
    subnet::{Entry, Lease, LeaseAttrs, RawJson, VxlanData},
};

/// What resolving needs to know about a family.
trait LeaseFamily: Prefix {
    const FAMILY: Family;
    fn subnet_of(lease: &Lease) -> Option<Self>;
    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address>;
    fn data(attrs: &LeaseAttrs) -> Option<&RawJson>;
}

impl LeaseFamily for Ipv4Net {
    const FAMILY: Family = Family::V4;

    fn subnet_of(lease: &Lease) -> Option<Self> {
        lease.key.v4
    }

    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address> {
        attrs.public_ip
    }

    fn data(attrs: &LeaseAttrs) -> Option<&RawJson> {
        attrs.backend_data.as_ref()
    }
}

impl LeaseFamily for Ipv6Net {
    const FAMILY: Family = Family::V6;

    fn subnet_of(lease: &Lease) -> Option<Self> {
        lease.key.v6
    }

    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address> {
        attrs.public_ipv6
    }

    fn data(attrs: &LeaseAttrs) -> Option<&RawJson> {
        attrs.backend_v6_data.as_ref()
    }
}

/// One family of one lease that passed the checks it can pass alone.
#[derive(Clone, Copy)]
struct Candidate<'a, P> {
    entry: &'a Entry,
    subnet: P,
    public_ip: IpAddr,
    vtep: Vtep,
}

/// Ourselves, in one family.
struct Own<P> {
    subnet: Option<P>,
    public_ip: Option<IpAddr>,
    mac: Option<Mac>,
}

impl LeaseSet {
    /// The peers to program, and the entries that are refused.
    pub fn resolve(&self) -> Resolved {
        let mut resolved = Resolved::default();
        let leases: Vec<_> = self.entries.values().filter_map(|entry| self.check_entry(entry, &mut resolved)).collect();
        if let Some(network) = self.networks.v4 {
            self.resolve_family(network, &leases, &mut resolved);
        }
        if let Some(network) = self.networks.v6 {
            self.resolve_family(network, &leases, &mut resolved);
        }
        resolved.peers.sort();
        resolved.rejected.sort_by(|a, b| (&a.key, a.family).cmp(&(&b.key, b.family)));
        resolved
    }

    /// What does not depend on a family. `None` for refused entries and for our own.
    fn check_entry<'a>(&self, entry: &'a Entry, resolved: &mut Resolved) -> Option<(&'a Entry, &'a Lease)> {
        let reason = match &entry.lease {
            Err(malformed) => RejectReason::Malformed(malformed.clone()),
            Ok(lease) if self.is_own(lease) => return None,
            Ok(lease) if lease.attrs.backend_type != self.backend_type => {
                RejectReason::BackendType { theirs: lease.attrs.backend_type.clone(), ours: self.backend_type }
            }
            Ok(lease) => return Some((entry, lease)),
        };
        resolved.rejected.push(Rejected { key: entry.name.clone(), family: None, reason });
        None
    }

    /// Our lease: the key we hold, with our address (IPv4 where there is one). The same key with another address is somebody's claim.
    pub(super) fn is_own(&self, lease: &Lease) -> bool {
        let node = |attrs: &LeaseAttrs| attrs.public_ip.map(IpAddr::from).or(attrs.public_ipv6.map(IpAddr::from));
        self.own_key == Some(lease.key) && node(&lease.attrs) == node(&self.own_attrs)
    }

    fn resolve_family<P: LeaseFamily>(&self, network: P, leases: &[(&Entry, &Lease)], resolved: &mut Resolved) {
        let own = Own::<P> {
            subnet: self.own_key.and_then(|key| P::subnet_of(&Lease { key, attrs: LeaseAttrs::default() })),
            public_ip: P::public_ip(&self.own_attrs).map(Into::into),
            mac: P::data(&self.own_attrs).and_then(|data| VxlanData::parse(data).ok()).map(|data| data.vtep_mac),
        };
        let mut refuse = |entry: &Entry, reason| {
            resolved.rejected.push(Rejected { key: entry.name.clone(), family: Some(P::FAMILY), reason });
        };
        let mut candidates = Vec::with_capacity(leases.len());
        for (entry, lease) in leases {
            let Some(subnet) = P::subnet_of(lease) else { continue };
            match check(entry, subnet, &lease.attrs, network, &own) {
                Ok(candidate) => candidates.push(candidate),
                Err(reason) => refuse(entry, reason),
            }
        }
        let candidates = drop_duplicate_macs(candidates, &mut refuse);
        resolved.peers.extend(drop_overlaps(candidates, &mut refuse).into_iter().map(|candidate| Peer {
            subnet: candidate.subnet.into(),
            public_ip: candidate.public_ip,
            vtep: Some(candidate.vtep),
            key: candidate.entry.name.clone(),
        }));
    }
}

/// Everything one family of a lease can be refused for on its own, and against ourselves.
fn check<'a, P: LeaseFamily>(
    entry: &'a Entry,
    subnet: P,
    attrs: &LeaseAttrs,
    network: P,
    own: &Own<P>,
) -> Result<Candidate<'a, P>, RejectReason> {
    let public_ip: IpAddr = P::public_ip(attrs).ok_or(RejectReason::NoPublicIp)?.into();
    let data = P::data(attrs).ok_or(RejectReason::NoBackendData)?;
    let VxlanData { vtep_mac: mac, zero_checksum_v6, .. } =
        VxlanData::parse(data).map_err(RejectReason::BackendData)?;
    if !is_unicast(public_ip) {
        return Err(RejectReason::BadPublicIp(public_ip));
    }
    if !mac.is_unicast() {
        return Err(RejectReason::BadMac(mac));
    }
    if subnet.length() < network.length() || !(network.first()..=network.last()).contains(&subnet.first()) {
        return Err(RejectReason::OutsideNetwork { subnet: subnet.into(), network: network.into() });
    }
    if let Some(ours) = own.subnet.filter(|ours| overlap(*ours, subnet)) {
        return Err(RejectReason::OurSubnet { subnet: subnet.into(), ours: ours.into() });
    }
    if own.public_ip == Some(public_ip) {
        return Err(RejectReason::OurPublicIp(public_ip));
    }
    if own.mac == Some(mac) {
        return Err(RejectReason::OurMac(mac));
    }
    Ok(Candidate { entry, subnet, public_ip, vtep: Vtep { mac, zero_checksum_v6 } })
}

fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast)
}

fn overlap<P: Prefix>(a: P, b: P) -> bool {
    a.first() <= b.last() && b.first() <= a.last()
}

fn drop_duplicate_macs<'a, P>(
    candidates: Vec<Candidate<'a, P>>,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    let mut winners: HashMap<Mac, (&'a Entry, IpAddr)> = HashMap::new();
    for candidate in &candidates {
        let winner = winners.entry(candidate.vtep.mac).or_insert((candidate.entry, candidate.public_ip));
        if is_newer(candidate.entry, winner.0) {
            *winner = (candidate.entry, candidate.public_ip);
        }
    }
    let believed = |candidate: &Candidate<'a, P>| {
        let (winner, public_ip) = winners[&candidate.vtep.mac];
        if candidate.public_ip == public_ip {
            return true;
        }
        refuse(candidate.entry, RejectReason::DuplicateMac { mac: candidate.vtep.mac, winner: winner.name.clone() });
        false
    };
    let mut candidates = candidates;
    candidates.retain(believed);
    candidates
}

/// Written later; of two written together, the lexically first.
fn is_newer(a: &Entry, b: &Entry) -> bool {
    (a.modified, Reverse(&a.name)) > (b.modified, Reverse(&b.name))
}

fn drop_overlaps<'a, P: Prefix>(
    mut candidates: Vec<Candidate<'a, P>>,
    refuse: &mut impl FnMut(&Entry, RejectReason),
) -> Vec<Candidate<'a, P>> {
    candidates.sort_by_key(|candidate| (candidate.entry.created, &candidate.entry.name));
    let mut taken: BTreeMap<u128, Candidate<'a, P>> = BTreeMap::new();
    for candidate in candidates {
        // What is taken is disjoint, so of all that starts at or before our end only the last can reach us.
        let before = taken.range(..=candidate.subnet.last()).next_back();
        match before.filter(|(_, other)| overlap(other.subnet, candidate.subnet)) {
            Some((_, winner)) => {
                let (subnet, winner) = (candidate.subnet.into(), winner.entry.name.clone());
                refuse(candidate.entry, RejectReason::Overlap { subnet, winner });
            }
            None => {
                taken.insert(candidate.subnet.first(), candidate);
            }
        }
    }
    taken.into_values().collect()
}
