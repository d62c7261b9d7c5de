//! Desired and actual state of one family: its entries in the kernel, and those in the peer maps.

use std::{net::IpAddr, time::Instant};

use flannel_backend_api::Desired;
use flannel_datapath::Maps;
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::{Netlink, NetlinkError};
use flannel_status::{Dirty, Repairs, UnreachableStatus};

use super::{
    entries::Entries, ownership::Ownership, peer_maps::PeerMaps, plane_setup::PlaneSetup,
    unreachable::UnreachableRoute,
};

/// The objects of one family.
pub(super) struct FamilyState {
    family: Family,
    pub(super) entries: Entries,
    pub(super) unreachable: UnreachableRoute,
    peer_maps: PeerMaps,
}

impl FamilyState {
    /// Creates the state before the kernel is read.
    pub(super) fn new(family: Family, setup: &PlaneSetup) -> Self {
        Self {
            family,
            entries: Entries::new(setup.nexthops_from),
            unreachable: UnreachableRoute::new(setup.network.prefix, setup.unreachable_route),
            peer_maps: PeerMaps::new(family),
        }
    }

    /// Finds out what is there.
    pub(super) async fn read_back(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        ours: &Ownership,
    ) -> Result<(), NetlinkError> {
        self.entries
            .read_back(netlink, ours, &mut self.unreachable)
            .await?;
        if let Some(maps) = maps {
            self.read_back_maps(maps);
        }
        Ok(())
    }

    /// Finds out what is in the peer maps.
    pub(super) fn read_back_maps(&mut self, maps: &mut Maps) {
        if let Err(error) = self.peer_maps.read_back(maps) {
            tracing::warn!(family = %self.family, error = chain(&error), "cannot read the peer \
                maps back");
        }
    }

    /// Discards the desired state of all peers.
    pub(super) fn clear_desired(&mut self) {
        self.entries.clear_desired();
        self.peer_maps.clear_desired();
    }

    /// Some peers want `after` instead of `before`.
    pub(super) fn change(&mut self, before: &Desired, after: &Desired) {
        self.peer_maps.change(before, after);
        self.entries.change(before, after);
    }

    /// Sets the desired unreachable route for the network, if our address `own` permits it.
    pub(super) fn want_unreachable(&mut self, own: IpAddr) {
        self.entries
            .want_unreachable(self.unreachable.network, self.unreachable.wanted(own));
    }

    /// Adds the entries of peers. The entries that a route needs precede it.
    pub(super) async fn upsert(
        &mut self,
        netlink: &Netlink,
        maps: Option<&mut Maps>,
        now: Instant,
    ) {
        self.entries.upsert_before_routes(netlink, now).await;
        if let Some(maps) = maps {
            self.peer_maps.upsert(maps, now);
        }
        self.entries.upsert_routes(netlink, now).await;
    }

    /// Removes the entries of peers that are gone, in the reverse order.
    pub(super) async fn sweep(&mut self, netlink: &Netlink, maps: Option<&mut Maps>, now: Instant) {
        self.entries.sweep_routes(netlink, now).await;
        if let Some(maps) = maps {
            self.peer_maps.sweep(maps, now);
        }
        self.entries.sweep_after_routes(netlink, now).await;
    }

    /// Returns true if the programs know all peers as senders whose entries are desired.
    pub(super) fn knows_every_sender(&self) -> bool {
        self.peer_maps.knows_every_sender()
    }

    /// The unreachable route for the network.
    pub(super) fn unreachable_status(&self, own: IpAddr) -> UnreachableStatus {
        let network = self.unreachable.network;
        UnreachableStatus {
            network: network.to_string(),
            in_place: self.entries.has_unreachable(network),
            reason: self.unreachable.refusal(own).map(|why| why.to_string()),
        }
    }

    /// Returns the entries that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.entries.dirty().chain(self.peer_maps.dirty())
    }

    /// Returns the number of repairs, by kind of object.
    pub(super) const fn repairs(&self) -> Repairs {
        Repairs {
            maps: self.peer_maps.repairs(),
            ..self.entries.repairs()
        }
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.entries
            .next_retry()
            .into_iter()
            .chain(self.peer_maps.next_retry())
            .min()
    }
}
