//! The underlay: for each peer the path by which the kernel sends outer packets, or the reason why
//! that path is not plain enough for the programs to use it.
//!
//! The kernel is asked, never imitated: one route lookup per peer, with everything that is known of
//! our outer packets. If a lookup does not cover something - rules on marks or source ports, IPsec
//! policies - the path is not plain, and the kernel carries those packets. Of several next hops the
//! kernel chooses one for each packet. `to_underlay` checks the same from the other side, packet by
//! packet; because of this module it rarely finds a difference.
//!
//! A tunnel device with changed offload settings keeps all paths from being plain: the programs
//! skip the device that has to do the work.
//!
//! A backend without a tunnel queries only the routes, to find the peers on our own link.

mod judge;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use flannel_host::family::Family;
use flannel_netlink::{Link, Netlink, NetlinkError, RouteAnswer, RouteQuery, tunnel_depends_on};
use futures::{StreamExt as _, stream};

use crate::offload::OffloadSetting;
pub use judge::{NotPlain, Path, RouteDevices, UnderlayFacts, Uplink, by_devices, judge};

/// Lookups in flight at once.
const IN_FLIGHT: usize = 64;

/// The known state of the underlay until it changes, and the routes to the peers of the last query.
#[derive(Debug)]
pub struct Underlay {
    port: Option<u16>,
    facts: Option<Result<UnderlayFacts, String>>,
    /// Those by which routes asked about lead.
    devices: RouteDevices,
    answers: HashMap<IpAddr, Result<RouteAnswer, String>>,
    /// The setting of the tunnel device by which packets must not skip it.
    tunnel: Option<OffloadSetting>,
    /// The peers to which packets without an outer UDP checksum are lost on the way.
    unsummed_lost: BTreeSet<IpAddr>,
}

impl Underlay {
    /// For a tunnel to this UDP port, or for none.
    pub fn new(port: Option<u16>) -> Self {
        Self {
            port,
            facts: None,
            devices: BTreeMap::new(),
            answers: HashMap::new(),
            tunnel: None,
            unsummed_lost: BTreeSet::new(),
        }
    }

    /// Discards the facts that all peers share, after a change of the underlay.
    pub fn forget(&mut self) {
        self.facts = None;
        self.devices.clear();
    }

    /// Stores the offload setting by which packets must not skip the tunnel device. Returns true if
    /// it differs, so that every path has to be asked for again.
    pub fn set_tunnel(&mut self, setting: Option<OffloadSetting>) -> bool {
        let differs = self.tunnel != setting;
        self.tunnel = setting;
        differs
    }

    /// Stores the peers to which packets without an outer UDP checksum are lost on the way. Returns
    /// true if they differ, so that every path has to be asked for again.
    pub fn set_unsummed_lost(&mut self, peers: &BTreeSet<IpAddr>) -> bool {
        let differs = self.unsummed_lost != *peers;
        if differs {
            self.unsummed_lost.clone_from(peers);
        }
        differs
    }

    /// Returns true if a device by which a route leads differs from its last known state.
    pub fn differs(&self, link: &Link) -> bool {
        self.devices
            .get(&link.index)
            .is_some_and(|known| known.as_ref() != Ok(link))
    }

    /// Returns true if a route leads by this device.
    pub fn leads_by(&self, index: u32) -> bool {
        self.devices.contains_key(&index)
    }

    /// Asks the kernel about the paths from `source` to `peers`, and for what is the same for all
    /// where that is not known. An error makes the paths it concerns not plain; it stops nothing.
    pub async fn ask(&mut self, netlink: &Netlink, source: IpAddr, peers: BTreeSet<IpAddr>) {
        if let Some(port) = self.port
            && !matches!(self.facts, Some(Ok(_)))
        {
            let facts = read_facts(netlink, source, port).await;
            self.facts = Some(facts.map_err(|error| error.to_string()));
        }
        let port = self.port;
        let asked = stream::iter(peers).map(async |peer| {
            let query = RouteQuery {
                dst: peer,
                src: Some(source),
                dport: port,
            };
            (
                peer,
                netlink
                    .route_get(query)
                    .await
                    .map_err(|error| error.to_string()),
            )
        });
        self.answers = asked.buffer_unordered(IN_FLIGHT).collect().await;
        if self.port.is_some() {
            self.look_at_devices(netlink).await;
        }
    }

    async fn look_at_devices(&mut self, netlink: &Netlink) {
        let answers = self.answers.values().flatten();
        let unknown: BTreeSet<u32> = answers
            .flat_map(by_devices)
            .filter(|index| !self.devices.contains_key(index))
            .collect();
        for index in unknown {
            let device = match netlink.link_by_index(index).await {
                Ok(link) => link.ok_or(NotPlain::NoDevice(index)),
                Err(error) => Err(NotPlain::Unreadable {
                    error: error.to_string(),
                }),
            };
            self.devices.insert(index, device);
        }
    }

    /// The path to a peer that was asked about last.
    pub fn path(&self, peer: IpAddr) -> Result<Path, NotPlain> {
        let (Some(facts), Some(answer)) = (&self.facts, self.answers.get(&peer)) else {
            return Err(NotPlain::Unknown);
        };
        let facts = facts.as_ref().map_err(|error| NotPlain::Unreadable {
            error: error.clone(),
        })?;
        let answer = answer.as_ref().map_err(|error| NotPlain::NoRoute {
            error: error.clone(),
        })?;
        let path = judge(facts, &self.devices, peer, answer)?;
        if self.unsummed_lost.contains(&peer) {
            return Err(NotPlain::LosesUnsummed);
        }
        self.tunnel
            .clone()
            .map_or(Ok(path), |setting| Err(NotPlain::Offload(setting)))
    }

    /// The device by which a peer on our own segment is reached, if it is one: exactly one route,
    /// without a gateway.
    pub fn neighbour_device(&self, peer: IpAddr) -> Option<u32> {
        match self.answers.get(&peer) {
            Some(Ok(answer)) => judge::neighbour_device(answer),
            _ => None,
        }
    }
}

async fn read_facts(
    netlink: &Netlink,
    source: IpAddr,
    port: u16,
) -> Result<UnderlayFacts, NetlinkError> {
    Ok(UnderlayFacts {
        source,
        port,
        rule: tunnel_depends_on(&netlink.rules(Family::of(source)).await?),
        policies: netlink.out_policies().await?,
        policy_default_blocks: netlink.out_policy_default_blocks().await?,
    })
}
