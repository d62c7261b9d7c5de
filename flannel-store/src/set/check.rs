//! Checks of one family of one lease, by itself and against this node.

use std::net::IpAddr;

use flannel_common::addr::Mac;
use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{AddressFault, HostAddresses, RejectReason, Vtep};
use crate::{
    config::{BackendKind, Prefix},
    {BadLease, Entry, Lease, LeaseAttrs, LeaseKey, RawJson, VxlanData},
};

/// Access to the parts of a lease that belong to one family.
pub(super) trait LeaseFamily: Prefix {
    const FAMILY: Family;
    fn subnet_of(key: LeaseKey) -> Option<Self>;
    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address>;
    fn data(attrs: &LeaseAttrs) -> Option<&RawJson>;
}

impl LeaseFamily for Ipv4Net {
    const FAMILY: Family = Family::V4;

    fn subnet_of(key: LeaseKey) -> Option<Self> {
        key.v4
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

    fn subnet_of(key: LeaseKey) -> Option<Self> {
        key.v6
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
pub(super) struct Candidate<'a, P> {
    pub(super) entry: &'a Entry,
    pub(super) subnet: P,
    pub(super) public_ip: IpAddr,
    /// `None` where the backend has no tunnels.
    pub(super) vtep: Option<Vtep>,
}

/// One family here: the pod network, and ourselves in it.
pub(super) struct Local<'a, P> {
    host: &'a HostAddresses,
    network: P,
    has_vteps: bool,
    subnet: Option<P>,
    public_ip: Option<IpAddr>,
    mac: Option<Mac>,
}

impl<'h, P: LeaseFamily> Local<'h, P> {
    pub(super) fn new(
        network: P,
        backend: BackendKind,
        key: Option<LeaseKey>,
        attrs: &LeaseAttrs,
        host: &'h HostAddresses,
    ) -> Self {
        Self {
            host,
            network,
            has_vteps: backend.properties().has_vteps,
            subnet: key.and_then(P::subnet_of),
            public_ip: P::public_ip(attrs).map(Into::into),
            mac: P::data(attrs).and_then(|data| VxlanData::parse(data).ok()).map(|data| data.vtep_mac),
        }
    }

    /// Checks the family of a lease that has this subnet in it.
    pub(super) fn check<'a>(
        &self,
        entry: &'a Entry,
        lease: &Lease,
        subnet: P,
    ) -> Result<Candidate<'a, P>, RejectReason> {
        if let Some(bad) = lease.malformed_in(P::FAMILY) {
            return Err(RejectReason::Malformed(BadLease::Value(bad.clone())));
        }
        let public_ip = P::public_ip(&lease.attrs).ok_or(RejectReason::NoPublicIp)?.into();
        let vtep = if self.has_vteps { Some(vtep_of::<P>(lease)?) } else { None };
        self.check_subnet(subnet)?;
        self.check_public_ip(public_ip, subnet)?;
        if let Some(Vtep { mac, .. }) = vtep.filter(|vtep| self.mac == Some(vtep.mac)) {
            return Err(RejectReason::OurMac(mac));
        }
        Ok(Candidate { entry, subnet, public_ip, vtep })
    }

    fn check_public_ip(&self, address: IpAddr, subnet: P) -> Result<(), RejectReason> {
        if self.public_ip == Some(address) {
            return Err(RejectReason::OurPublicIp(address));
        }
        let fault =
            AddressFault::of(address).or_else(|| self.host.fault(address)).or_else(|| self.among_pods(address, subnet));
        fault.map_or(Ok(()), |fault| Err(RejectReason::BadPublicIp { address, fault }))
    }

    /// Nodes may be in the pod network where no node's subnet is (`SubnetMin`): this one is then,
    /// too.
    fn among_pods(&self, address: IpAddr, theirs: P) -> Option<AddressFault> {
        let holds = |prefix: &P| Into::<IpNet>::into(*prefix).contains(&address);
        let network: IpNet = self.network.into();
        let subnets = [Some(theirs), self.subnet];
        if let Some(subnet) = subnets.into_iter().flatten().find(holds) {
            return Some(AddressFault::Pods(subnet.into()));
        }
        let is_shared = self.public_ip.is_some_and(|ours| network.contains(&ours));
        (!is_shared && network.contains(&address)).then_some(AddressFault::Pods(network))
    }

    fn check_subnet(&self, subnet: P) -> Result<(), RejectReason> {
        let network = self.network;
        if subnet.length() < network.length() || !(network.first()..=network.last()).contains(&subnet.first()) {
            return Err(RejectReason::OutsideNetwork { subnet: subnet.into(), network: network.into() });
        }
        match self.subnet.filter(|ours| overlap(*ours, subnet)) {
            Some(ours) => Err(RejectReason::OurSubnet { subnet: subnet.into(), ours: ours.into() }),
            None => Ok(()),
        }
    }
}

fn vtep_of<P: LeaseFamily>(lease: &Lease) -> Result<Vtep, RejectReason> {
    let data = P::data(&lease.attrs).ok_or(RejectReason::NoBackendData)?;
    let VxlanData { vtep_mac: mac, zero_checksum_v6, other_source, .. } =
        VxlanData::parse(data).map_err(RejectReason::BackendData)?;
    if !mac.is_unicast() {
        return Err(RejectReason::BadMac(mac));
    }
    Ok(Vtep { mac, zero_checksum_v6, other_source: other_source || lease.overwritten.contains(&P::FAMILY) })
}

pub(super) fn overlap<P: Prefix>(a: P, b: P) -> bool {
    a.first() <= b.last() && b.first() <= a.last()
}
