//! The pods of this node as mode `fast` sees them: which veths are theirs, what their own ends are,
//! who else is on the way.
//!
//! Owns the view of links and routes it takes from events, and what was decided last. It reads and
//! decides; programs and maps are written by `flannel_reconcile`. Invariants: a veth is a pod's
//! only if a route into our own subnet leads to it (`find`). The address of a pod is that of the
//! veth's other end, as the kernel reports it (`inside`): what a bridge learned is only the pod's
//! own claim. An unknown veth is left alone.
//!
//! Events name what to read again. TCX programs and changes inside a pod are not announced: they
//! are looked for whenever the unannounced state is marked as stale.

mod find;
mod inside;
mod judge;
pub(super) mod others;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_host::family::Family;
use flannel_netlink::{KernelEvent, Link, Netlink, NetlinkError};
use flannel_store::LeaseKey;
use futures::future::join_all;

pub use self::judge::{DeviceSide, Others, Passed, PodReason, PodVerdict};
use flannel_backend_api::offload::Offloads;
use flannel_datapath::PinRoot;

use self::{find::Namespace, inside::Inside, judge::judge};
use super::Exclusions;

/// A pod's veth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The name of its host side.
    pub veth: String,
    /// The decision on it.
    pub verdict: PodVerdict,
}

/// The pods.
#[derive(Debug, Default)]
pub struct Pods {
    namespace: Namespace,
    /// The insides of pods, and who is on a device, as they were last seen.
    insides: BTreeMap<u32, Inside>,
    others: BTreeMap<u32, (Others, Others)>,
    /// Addresses of pods, by their veths; known where some pod is to stay out.
    addresses: BTreeMap<u32, Vec<IpAddr>>,
    /// Links that may have another qdisc, which is not announced as a change of the link.
    stale: BTreeSet<u32>,
    found: BTreeMap<u32, Pod>,
    /// Devices on the way to or from a pod as of the last look.
    on_the_way: BTreeSet<u32>,
    /// One of them changed since.
    disturbed: bool,
    is_read: bool,
}

impl Pods {
    /// Marks everything as stale, so that the next look reads it again.
    pub fn invalidate_all(&mut self) {
        self.is_read = false;
        self.invalidate_unannounced();
    }

    /// Marks TCX programs, the ends of veths and addresses as stale: no event announces their
    /// changes.
    pub fn invalidate_unannounced(&mut self) {
        self.insides.clear();
        self.others.clear();
        self.invalidate_addresses();
    }

    /// Marks the addresses of pods as stale.
    pub fn invalidate_addresses(&mut self) {
        self.addresses.clear();
    }

    /// Records an event. Returns true if the next look may find a difference because of it.
    pub fn observe(&mut self, event: &KernelEvent) -> bool {
        match event {
            KernelEvent::Overflow => {
                self.invalidate_all();
                self.disturbed = true;
                true
            }
            KernelEvent::Link(link) => self.observe_link(link),
            KernelEvent::LinkGone { index, .. } => {
                self.namespace.observe_link_gone(*index);
                self.forget_end(*index);
                self.others.remove(index);
                self.disturbed |= self.on_the_way.contains(index);
                self.on_the_way.contains(index)
            }
            KernelEvent::Route { key, route } => self.namespace.observe_route(*key, route.as_ref()),
            KernelEvent::TrafficControl { device } => self.observe_traffic_control(*device),
            _ => false,
        }
    }

    /// Devices may share a block of filters, whose events name none of them.
    fn observe_traffic_control(&mut self, device: Option<u32>) -> bool {
        let before = self.others.len();
        let concerns = |known: &u32| device.is_none_or(|device| device == *known);
        self.stale.extend(
            self.others
                .extract_if(.., |known, _| concerns(known))
                .map(|(known, _)| known),
        );
        self.others.len() < before
    }

    /// An event about a veth comes also when its other end changed.
    fn observe_link(&mut self, link: &Link) -> bool {
        self.forget_end(link.index);
        let old = self.namespace.links.insert(link.index, link.clone());
        let differs = old.as_ref() != Some(link);
        self.disturbed |= differs && self.on_the_way.contains(&link.index);
        differs || self.on_the_way.contains(&link.index)
    }

    /// Marks the other end of a veth as stale.
    fn forget_end(&mut self, index: u32) {
        self.insides.remove(&index);
        self.addresses.remove(&index);
    }

    /// Reads what may have changed and decides again. `own` is our lease, `tunnels` are the tunnel
    /// devices; our links are pinned below `pins`.
    pub async fn look(
        &mut self,
        netlink: &Netlink,
        pins: &PinRoot,
        own: LeaseKey,
        tunnels: &[u32],
        exclusions: &Exclusions,
        offloads: &mut Offloads,
    ) -> Result<(), NetlinkError> {
        if !self.is_read {
            self.read(netlink).await?;
        }
        while let Some(index) = self.stale.pop_first() {
            if let Some(link) = netlink.link_by_index(index).await? {
                self.observe_link(&link);
            }
        }
        let veths = self.namespace.pods(own);
        self.read_insides(netlink, &veths).await;
        if !exclusions.is_empty() {
            self.ask_addresses(netlink, &veths).await;
        }
        let bridges: BTreeSet<u32> = veths.values().filter_map(|bridge| *bridge).collect();
        self.on_the_way = veths
            .keys()
            .chain(&bridges)
            .chain(tunnels)
            .copied()
            .collect();
        for device in &self.on_the_way {
            if self.namespace.links.contains_key(device) {
                self.others
                    .entry(*device)
                    .or_insert_with(|| others::on(pins, *device));
            }
        }
        offloads
            .refresh(netlink, veths.keys().chain(&bridges).copied())
            .await;
        let pod = |(index, bridge): (&u32, &Option<u32>)| {
            let exclusion = exclusions.reason(self.addresses.get(index).map_or(&[], Vec::as_slice));
            Some((
                *index,
                self.decide(*index, *bridge, tunnels, offloads, exclusion)?,
            ))
        };
        self.found = veths.iter().filter_map(pod).collect();
        Ok(())
    }

    async fn read(&mut self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let links = netlink.links().await?;
        let mut routes = Vec::new();
        for family in Family::BOTH {
            routes.extend(netlink.routes(family).await?);
        }
        self.replace_namespace(Namespace::read(links, routes));
        self.is_read = true;
        Ok(())
    }

    /// Replaces the view by one that was read. A changed device counts here: the event about it may
    /// still be to come, and finds no difference then.
    fn replace_namespace(&mut self, read: Namespace) {
        let known = std::mem::replace(&mut self.namespace, read);
        let differs = |index: &u32| known.links.get(index) != self.namespace.links.get(index);
        self.disturbed |= self.on_the_way.iter().any(differs);
    }

    /// Reads what veths lead to, where that is not known yet.
    async fn read_insides(&mut self, netlink: &Netlink, veths: &BTreeMap<u32, Option<u32>>) {
        let unknown = veths
            .keys()
            .filter(|index| !self.insides.contains_key(index));
        let links: Vec<&Link> = unknown
            .filter_map(|index| self.namespace.links.get(index))
            .collect();
        let insides = inside::read(netlink, &links).await;
        self.insides.extend(insides);
    }

    /// Reads the addresses that are not known yet, all at once. A pod that is being made has
    /// link-local ones at most; it is asked again at the next look.
    async fn ask_addresses(&mut self, netlink: &Netlink, veths: &BTreeMap<u32, Option<u32>>) {
        let unknown = veths
            .keys()
            .filter(|index| !self.addresses.contains_key(index));
        let links: Vec<&Link> = unknown
            .filter_map(|index| self.namespace.links.get(index))
            .collect();
        let asked = links
            .iter()
            .map(|link| async { (link.index, netlink.addresses_of_peer(link).await) });
        for (index, addresses) in join_all(asked).await {
            match addresses {
                Ok(addresses) if addresses.iter().all(is_link_local) => {}
                Ok(addresses) => drop(self.addresses.insert(index, addresses)),
                Err(error) => tracing::debug!(%error, "a pod's addresses are not known"),
            }
        }
    }

    fn decide(
        &self,
        index: u32,
        bridge: Option<u32>,
        tunnels: &[u32],
        offloads: &Offloads,
        exclusion: Option<PodReason>,
    ) -> Option<Pod> {
        let passed = |device| self.passed(device, offloads);
        let veth = passed(index)?;
        let ways: Vec<Passed> = bridge
            .iter()
            .chain(tunnels)
            .filter_map(|device| passed(*device))
            .collect();
        let verdict = judge(&veth, self.insides.get(&index)?, ways.iter(), exclusion);
        Some(Pod {
            veth: veth.link.name,
            verdict,
        })
    }

    fn passed(&self, index: u32, offloads: &Offloads) -> Option<Passed> {
        let (ingress, egress) = *self.others.get(&index)?;
        let link = self.namespace.links.get(&index)?.clone();
        Some(Passed {
            link,
            ingress,
            egress,
            offload: offloads.on_transmit(index),
        })
    }

    /// Returns true if a device on the way changed since the last call.
    pub const fn take_disturbed(&mut self) -> bool {
        std::mem::replace(&mut self.disturbed, false)
    }

    /// The pods as of the last look, by the interface index of their veth.
    pub const fn found(&self) -> &BTreeMap<u32, Pod> {
        &self.found
    }
}

const fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Pods {
        let others = BTreeMap::from([(2, Default::default()), (3, Default::default())]);
        Pods {
            others,
            ..Pods::default()
        }
    }

    /// A full reading that comes before the event about a change is what the event is compared
    /// with.
    #[test]
    fn a_change_that_a_full_reading_finds_disturbs_the_way() {
        let namespace = |mtu| Namespace::read(vec![Link::ethernet(2, "cni0", mtu)], Vec::new());
        let mut pods = Pods {
            namespace: namespace(1500),
            on_the_way: BTreeSet::from([2]),
            is_read: true,
            ..Pods::default()
        };
        pods.invalidate_all();
        pods.replace_namespace(namespace(1500));
        assert!(!pods.take_disturbed(), "nothing changed");
        pods.invalidate_all();
        pods.replace_namespace(namespace(1400));
        assert!(pods.take_disturbed());
        pods.observe(&KernelEvent::Link(Link::ethernet(2, "cni0", 1400)));
        assert!(!pods.take_disturbed(), "once");
    }

    #[test]
    fn a_filter_has_its_device_read_again() {
        let mut pods = known();
        assert!(
            !pods.observe(&KernelEvent::TrafficControl { device: Some(7) }),
            "another device"
        );
        assert!(pods.observe(&KernelEvent::TrafficControl { device: Some(2) }));
        assert_eq!(
            (pods.stale, pods.others.into_keys().collect::<Vec<_>>()),
            (BTreeSet::from([2]), vec![3])
        );
    }

    #[test]
    fn a_filter_of_a_shared_block_has_every_device_read_again() {
        let mut pods = known();
        assert!(pods.observe(&KernelEvent::TrafficControl { device: None }));
        assert!(
            !pods.observe(&KernelEvent::TrafficControl { device: None }),
            "they will be read anyway"
        );
        assert_eq!(
            (pods.stale, pods.others),
            (BTreeSet::from([2, 3]), BTreeMap::new())
        );
    }
}
