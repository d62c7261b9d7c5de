//! How outer packets leave this node: for each peer the path by which the kernel sends them, or why that path is not plain
//! enough for the programs to use it.
//!
//! The kernel is asked, never imitated: one route lookup per peer, with everything that is known of our outer packets.
//! What a lookup cannot tell - rules on marks or source ports, IPsec policies, several next hops - makes the
//! path not plain, and the kernel carries those packets. `to_underlay` checks the same from the other side, packet
//! by packet; this module is why it rarely has anything to say.
//!
//! A backend without a tunnel asks for the routes alone: which peers are on our own link.

mod judge;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures::{StreamExt as _, stream};

use ipnet::IpNet;
pub use judge::{Facts, NotPlain, Path, judge};

use crate::{
    family::Family,
    netlink::{Netlink, NetlinkError, RouteAnswer, RouteQuery, tunnel_depends_on},
};

/// Lookups in flight at once.
const IN_FLIGHT: usize = 64;

/// The paths to all peers, kept until something about the underlay changes.
#[derive(Debug)]
pub struct Underlay {
    port: Option<u16>,
    facts: Option<Result<Facts, String>>,
    answers: BTreeMap<IpAddr, Result<RouteAnswer, String>>,
}

impl Underlay {
    /// For a tunnel to this UDP port, or for none.
    pub const fn new(port: Option<u16>) -> Self {
        Self { port, facts: None, answers: BTreeMap::new() }
    }

    /// Something about the underlay changed: everything is to be asked again.
    pub fn forget(&mut self) {
        self.facts = None;
        self.answers.clear();
    }

    /// A route to this destination changed: peers behind it are to be asked about again. Whether there are any.
    pub fn forget_under(&mut self, destination: IpNet) -> bool {
        let before = self.answers.len();
        self.answers.retain(|peer, _| !destination.contains(peer));
        self.answers.len() != before
    }

    /// Asks the kernel what is not known yet about the paths from `source` by the interface `external` to `peers`, and
    /// forgets other peers. What cannot be read makes paths not plain; it stops nothing.
    pub async fn refresh(&mut self, netlink: &Netlink, external: u32, source: IpAddr, peers: &BTreeSet<IpAddr>) {
        if let Some(port) = self.port
            && !matches!(self.facts, Some(Ok(_)))
        {
            let facts = read_facts(netlink, external, source, port).await;
            self.facts = Some(facts.map_err(|error| error.to_string()));
        }
        self.answers.retain(|peer, _| peers.contains(peer));
        let unknown: Vec<IpAddr> = peers.iter().copied().filter(|peer| !self.answers.contains_key(peer)).collect();
        let port = self.port;
        let asked = stream::iter(unknown).map(async |peer| {
            let query = RouteQuery { dst: peer, src: Some(source), dport: port };
            (peer, netlink.route_get(query).await.map_err(|error| error.to_string()))
        });
        self.answers.extend(asked.buffer_unordered(IN_FLIGHT).collect::<Vec<_>>().await);
    }

    /// The path to a peer, as of the last refresh.
    pub fn path(&self, peer: IpAddr) -> Result<Path, NotPlain> {
        let (Some(facts), Some(answer)) = (&self.facts, self.answers.get(&peer)) else { return Err(NotPlain::Unknown) };
        let facts = facts.as_ref().map_err(|error| NotPlain::Unreadable { error: error.clone() })?;
        let answer = answer.as_ref().map_err(|error| NotPlain::NoRoute { error: error.clone() })?;
        judge(facts, peer, answer)
    }

    /// The device by which a peer on our own segment is reached, if it is one: exactly one route, without a gateway.
    pub fn neighbour_device(&self, peer: IpAddr) -> Option<u32> {
        match self.answers.get(&peer) {
            Some(Ok(answer)) => judge::neighbour_device(answer),
            _ => None,
        }
    }
}

async fn read_facts(netlink: &Netlink, external: u32, source: IpAddr, port: u16) -> Result<Facts, NetlinkError> {
    Ok(Facts {
        source,
        port,
        device: netlink.link_by_index(external).await?,
        rule: tunnel_depends_on(&netlink.rules(Family::of(source)).await?),
        policies: netlink.out_policies().await?,
        policy_default_blocks: netlink.out_policy_default_blocks().await?,
    })
}
