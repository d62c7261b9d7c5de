//! The task that asks the kernel for its routes to peers whose pods do not answer.
//!
//! Commands may use routes, routing rules, policies or a router elsewhere, so the agent does not
//! know which route is right. It reports a peer only if packets of pods follow the default route of
//! table `main`, or no route. A peer that answers, or another one that answers by the default
//! route, shows that the operator means it so.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_backend_api::{PeerWay, Way};
use flannel_backends::unmanaged::EXTENSION;
use flannel_echo::{SharedEchoes, gateway};
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::{DeviceName, MatchedRoute, Netlink, NetlinkError, RouteType};
use flannel_reconcile::SharedPeers;
use flannel_status::UnroutedPeer;
use flannel_store::LeaseKey;
use ipnet::IpNet;
use tokio::{sync::watch, time::timeout};

use super::shared::{SharedExtensionStatus, Unrouted};

/// Between two looks at the routes.
const PERIOD: Duration = Duration::from_secs(5);
/// A look takes this part of the time at most, however many peers do not answer.
const SHARE: u32 = 20;

/// The knowledge of other tasks that the task uses.
#[derive(Debug)]
pub struct RouteWatchSetup {
    /// The kernel.
    pub netlink: Netlink,
    /// The peers.
    pub peers: SharedPeers,
    /// Their answers.
    pub echoes: SharedEchoes,
}

pub(super) struct RouteWatch {
    setup: RouteWatchSetup,
    shared: SharedExtensionStatus,
    own: watch::Receiver<LeaseKey>,
}

/// The packets of pods of this node, as the kernel receives them.
#[derive(Clone, Copy, Debug)]
struct FromPods {
    source: IpAddr,
    device: u32,
}

impl RouteWatch {
    pub(super) const fn new(
        setup: RouteWatchSetup,
        shared: SharedExtensionStatus,
        own: watch::Receiver<LeaseKey>,
    ) -> Self {
        Self { setup, shared, own }
    }

    /// Runs until the main loop is gone.
    pub(super) async fn run(mut self) {
        let mut pause = PERIOD;
        // A new subnet is looked at with the others.
        while !matches!(timeout(pause, self.own.changed()).await, Ok(Err(_))) {
            let begun = Instant::now();
            match self.look().await {
                Ok(Some(unrouted)) => self.shared.set_unrouted(unrouted),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(error = chain(&error), "cannot ask for the routes to peers");
                }
            }
            pause = PERIOD.max(begun.elapsed() * SHARE);
        }
    }

    /// Returns the peers without a route of commands; `None` while commands are still to run.
    async fn look(&self) -> Result<Option<Unrouted>, NetlinkError> {
        let Some(status) = self.shared.status().filter(|status| status.waiting == 0) else {
            return Ok(None);
        };
        let failing: BTreeSet<_> = status
            .failures
            .into_iter()
            .map(|failure| failure.peer)
            .collect();
        let own = *self.own.borrow();
        let mut unrouted = Unrouted::default();
        for family in Family::BOTH {
            let Some(subnet) = own.subnet(family) else {
                continue;
            };
            let Some(from) = self.pods_packets(subnet).await? else {
                continue;
            };
            let (answering, others) = self.peers(family, &failing);
            if let Some(peer) = answering
                && self
                    .entry(from, peer)
                    .await?
                    .is_some_and(|entry| entry.is_default())
            {
                continue;
            }
            for peer in others {
                if let Some(route) = self.fault(from, peer).await? {
                    unrouted.push(|| UnroutedPeer {
                        subnet: peer.to_string(),
                        default_route: route,
                    });
                }
            }
        }
        Ok(Some(unrouted))
    }

    /// The subnets of a peer that answers, and of the peers that do not.
    fn peers(&self, family: Family, failing: &BTreeSet<String>) -> (Option<IpNet>, Vec<IpNet>) {
        let mut answering = None;
        let mut others = Vec::new();
        self.setup.peers.list(|way @ PeerWay { peer, .. }| {
            if way.way != Way::Carried(&EXTENSION) || Family::of(peer.public_ip) != family {
                return;
            }
            if self.setup.echoes.pods_answer(way) {
                answering = Some(peer.subnet);
            } else if !failing.contains(&*peer.key) {
                others.push(peer.subnet);
            }
        });
        (answering, others)
    }

    /// Returns how packets of pods come to the kernel; `None` if no device carries the whole
    /// subnet, as before the first pod.
    async fn pods_packets(&self, own: IpNet) -> Result<Option<FromPods>, NetlinkError> {
        let source = pod(own);
        let entry = self.setup.netlink.entry_from_here(source).await?;
        let is_own =
            entry.answer.kind == RouteType::Unicast && entry.prefix_len >= own.prefix_len();
        Ok(entry
            .answer
            .oif
            .filter(|_| is_own)
            .map(|device| FromPods { source, device }))
    }

    /// The entry for packets to a peer; `None` if the kernel refuses to forward these for another
    /// reason.
    async fn entry(
        &self,
        from: FromPods,
        peer: IpNet,
    ) -> Result<Option<MatchedRoute>, NetlinkError> {
        match self
            .setup
            .netlink
            .forwarding_entry(gateway(peer), from.source, from.device)
            .await
        {
            Err(error) if error.errno().is_some() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Returns the default route that packets to a peer follow, or `None` in its place if there is
    /// no route.
    async fn fault(
        &self,
        from: FromPods,
        peer: IpNet,
    ) -> Result<Option<Option<String>>, NetlinkError> {
        let Some(entry) = self.entry(from, peer).await? else {
            return Ok(None);
        };
        if entry.is_default() {
            return Ok(Some(Some(describe(&entry))));
        }
        if entry.answer.kind != RouteType::Unreachable {
            return Ok(None);
        }
        // A host that does not forward gives the same answer.
        let from_here = self.setup.netlink.entry_from_here(gateway(peer)).await?;
        Ok((from_here.answer.kind == RouteType::Unreachable).then_some(None))
    }
}

/// The first address that a pod of a subnet may have.
fn pod(subnet: IpNet) -> IpAddr {
    match gateway(subnet) {
        IpAddr::V4(gateway) => IpAddr::V4((gateway.to_bits() + 1).into()),
        IpAddr::V6(gateway) => IpAddr::V6((gateway.to_bits() + 1).into()),
    }
}

/// A route in words.
fn describe(route: &MatchedRoute) -> String {
    let by = route.answer.oif.map_or_else(
        || "by several next hops".to_owned(),
        |oif| format!("by {}", DeviceName(oif)),
    );
    route
        .answer
        .gateway
        .map_or_else(|| by.clone(), |gateway| format!("{by} via {gateway}"))
}
