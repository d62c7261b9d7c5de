//! Checks of one family of one lease, by itself and against this node.

use std::net::IpAddr;

use flannel_host::networks::overlap;
use ipnet::IpNet;

use super::{
    AddressFault, EndId, HostAddresses, RejectReason, TunnelEnd,
    end::{self, EndReader},
    lease_family::LeaseFamily,
};
use crate::{BadLease, Entry, Lease, LeaseAttrs, LeaseKey};

/// One family of one lease that passed the checks that do not involve other leases.
pub(super) struct Candidate<'a, P> {
    pub(super) entry: &'a Entry,
    pub(super) subnet: P,
    pub(super) public_ip: IpAddr,
    /// `None` where the backend has no tunnels.
    pub(super) end: Option<TunnelEnd>,
}

impl<P> Candidate<'_, P> {
    pub(super) fn end_id(&self) -> Option<EndId> {
        self.end.as_ref().and_then(TunnelEnd::id)
    }
}

/// One family here: the pod network, and ourselves in it.
pub(super) struct Local<'a, P> {
    host: &'a HostAddresses,
    network: P,
    ends: EndReader,
    attrs: &'a LeaseAttrs,
    subnet: Option<P>,
    public_ip: Option<IpAddr>,
    end: Option<EndId>,
}

impl<'h, P: LeaseFamily> Local<'h, P> {
    pub(super) fn new(
        network: P,
        ends: EndReader,
        key: Option<LeaseKey>,
        attrs: &'h LeaseAttrs,
        host: &'h HostAddresses,
    ) -> Self {
        Self {
            host,
            network,
            ends,
            attrs,
            subnet: key.and_then(P::subnet_of),
            public_ip: P::public_ip(attrs).map(Into::into),
            end: P::data(attrs).and_then(|data| end::id_of(ends, data)),
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
        let public_ip = P::public_ip(&lease.attrs)
            .ok_or(RejectReason::NoPublicIp)?
            .into();
        let end = self.ends.read::<P>(lease, self.attrs)?;
        self.check_subnet(subnet)?;
        self.check_public_ip(public_ip, subnet)?;
        if let Some(ours) = end
            .as_ref()
            .and_then(TunnelEnd::id)
            .filter(|id| self.end == Some(*id))
        {
            return Err(RejectReason::OurEnd(ours));
        }
        Ok(Candidate {
            entry,
            subnet,
            public_ip,
            end,
        })
    }

    fn check_public_ip(&self, address: IpAddr, subnet: P) -> Result<(), RejectReason> {
        if self.public_ip == Some(address) {
            return Err(RejectReason::OurPublicIp(address));
        }
        let fault = AddressFault::of(address)
            .or_else(|| self.host.fault(address))
            .or_else(|| self.among_pods(address, subnet));
        fault.map_or(Ok(()), |fault| {
            Err(RejectReason::BadPublicIp { address, fault })
        })
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
        if subnet.length() < network.length()
            || !(network.first()..=network.last()).contains(&subnet.first())
        {
            return Err(RejectReason::OutsideNetwork {
                subnet: subnet.into(),
                network: network.into(),
            });
        }
        match self.subnet.filter(|ours| overlap(*ours, subnet)) {
            Some(ours) => Err(RejectReason::OurSubnet {
                subnet: subnet.into(),
                ours: ours.into(),
            }),
            None => Ok(()),
        }
    }
}
