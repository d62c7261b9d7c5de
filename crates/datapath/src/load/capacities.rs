//! The capacities of maps that depend on the network, the machine and the options.

use aya::util::nr_cpus;
use flannel_common::{
    abi::{
        maps::{
            ARRIVALS, ENTRANCES, ENTRANCES6, FLOW_HINTS, FLOW_HINTS6, FLOWS, FLOWS6, PEER_TRAFFIC,
            PEER_TRAFFIC6, PEERS, PEERS_MAX, PEERS6, PENDING, PENDING6, PROBATION, PROBATION6,
        },
        traffic::{PEER_TRAFFIC_MAX, peer_slots},
    },
    flow::{
        pending::{CPUS_MAX, SLOTS_PER_CPU},
        probation::PROBATION_SLOTS,
    },
};
use flannel_host::family::Family;

use crate::DatapathError;

/// A map's name and how many elements it holds.
pub(crate) type Capacity = (&'static str, u32);

/// The number of subnets in the network of each family; 0 where the family is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subnets {
    /// Of the IPv4 network.
    pub v4: u64,
    /// Of the IPv6 network.
    pub v6: u64,
}

impl Subnets {
    /// The families that are on.
    pub(crate) fn families(self) -> impl Iterator<Item = Family> {
        let on = [(Family::V4, self.v4), (Family::V6, self.v6)];
        on.into_iter()
            .filter(|(_, subnets)| *subnets > 0)
            .map(|(family, _)| family)
    }

    /// The capacities of the maps of each family, `flows` of known flows. What belongs to one that
    /// is off has one element: none cannot be.
    pub(crate) fn capacities(self, flows: u32) -> Result<[Capacity; 15], DatapathError> {
        let peers = |family, subnets| match u32::try_from(subnets) {
            Ok(capacity) if capacity <= PEERS_MAX => Ok(capacity.max(1)),
            _ => Err(DatapathError::TooManySubnets { family, subnets }),
        };
        let if_on = |subnets, capacity| if subnets == 0 { 1 } else { capacity };
        let traffic = |subnets| u32::try_from(subnets).map_or(PEER_TRAFFIC_MAX, peer_slots);
        let notes = pending_slots();
        Ok([
            (PEERS, peers(Family::V4, self.v4)?),
            (PEERS6, peers(Family::V6, self.v6)?),
            (PEER_TRAFFIC, if_on(self.v4, traffic(self.v4))),
            (PEER_TRAFFIC6, if_on(self.v6, traffic(self.v6))),
            (PENDING, if_on(self.v4, notes)),
            (PENDING6, if_on(self.v6, notes)),
            (FLOWS, if_on(self.v4, flows)),
            (FLOWS6, if_on(self.v6, flows)),
            (ARRIVALS, notes),
            (ENTRANCES, if_on(self.v4, flows)),
            (ENTRANCES6, if_on(self.v6, flows)),
            (PROBATION, if_on(self.v4, PROBATION_SLOTS)),
            (PROBATION6, if_on(self.v6, PROBATION_SLOTS)),
            (FLOW_HINTS, if_on(self.v4, PROBATION_SLOTS)),
            (FLOW_HINTS6, if_on(self.v6, PROBATION_SLOTS)),
        ])
    }
}

/// Slots for records on every CPU there may be.
pub(crate) fn pending_slots() -> u32 {
    let cpus = nr_cpus()
        .ok()
        .and_then(|cpus| u32::try_from(cpus).ok())
        .unwrap_or(CPUS_MAX);
    cpus.min(CPUS_MAX) * SLOTS_PER_CPU
}
