//! The external interface while the agent runs: an event marks it as stale, and it is read again
//! before the next reconciliation.
//!
//! [`Follower`] decides; here the kernel's state is read for it. While the interface cannot serve a
//! family, that family stays as it is and the node is not ready.

use std::time::Instant;

use flannel_host::family::Family;
use flannel_iface::{
    AddressInPods, ExternalInterface, Follower, Host, IfaceError, IfaceOptions, InterfaceChange,
};
use flannel_netlink::{KernelEvent, MAIN_TABLE, Netlink};
use flannel_store::{Hints, config::NetworkConfig};
use ipnet::IpNet;

/// The choice, and how to renew it.
pub(super) struct External {
    netlink: Netlink,
    follower: Follower,
    pods: Vec<IpNet>,
    stale: bool,
    looked: Option<Instant>,
}

impl External {
    /// Chooses for the first time. What the store remembers of the node comes before the options.
    pub(super) async fn choose(
        netlink: &Netlink,
        options: &IfaceOptions,
        families: Vec<Family>,
        pods: Vec<IpNet>,
        hints: &Hints,
    ) -> Result<Self, IfaceError> {
        let options = IfaceOptions {
            public_ip: hints.public_ip.or(options.public_ip),
            public_ipv6: hints.public_ipv6.or(options.public_ipv6),
            ..options.clone()
        };
        let host = Host::read(netlink, &families, &options, &pods).await?;
        let follower = Follower::choose(options, families, &host)?;
        // The first look shows the other addresses, and if the interface is up.
        Ok(Self {
            netlink: netlink.clone(),
            follower,
            pods,
            stale: true,
            looked: None,
        })
    }

    /// Returns the interface in use.
    pub(super) const fn chosen(&self) -> &ExternalInterface {
        self.follower.chosen()
    }

    /// Returns the reason why the interface cannot serve, if it cannot.
    pub(super) fn problem(&self) -> Option<&str> {
        self.follower.problem()
    }

    /// Returns the time of the next look that no event asks for, if there is one.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let pause = self.follower.pause(now)?;
        Some(self.looked.map_or(now, |looked| looked + pause))
    }

    /// Takes in an event. Returns true if the interface has to be looked at because of it.
    pub(super) fn observe(&mut self, event: &KernelEvent) -> bool {
        let ExternalInterface { index, ends, .. } = self.follower.chosen();
        let is_known = |addr| {
            ends.values()
                .any(|end| end.public == addr || end.addr == addr)
        };
        let concerns = match event {
            KernelEvent::Overflow => true,
            KernelEvent::Link(link) => link.index == *index || self.follower.concerns(&link.name),
            KernelEvent::LinkGone { index: gone, .. } => gone == index,
            // On a recreated interface addresses arrive under an index that may not be known yet.
            KernelEvent::Address(address) | KernelEvent::AddressGone(address) => {
                address.key.ifindex == *index
                    || is_known(address.key.addr)
                    || self.problem().is_some()
            }
            KernelEvent::Route { key, .. } => key.table == MAIN_TABLE && key.dst.prefix_len() == 0,
            _ => false,
        };
        self.stale |= concerns;
        concerns
    }

    /// Has it looked at, whatever was announced.
    pub(super) const fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Looks at the interface if there is reason to. Returns what is chosen now, if that is
    /// something else than before.
    pub(super) async fn look_again(&mut self) -> Option<&ExternalInterface> {
        let now = Instant::now();
        if !self.stale && self.next_look().is_none_or(|next| next > now) {
            return None;
        }
        let before = self.follower.chosen().clone();
        let read = Host::read(
            &self.netlink,
            self.follower.families(),
            self.follower.options(),
            &self.pods,
        )
        .await;
        let changes = match read {
            Ok(host) => {
                self.stale = false;
                self.follower.look(&host, now)
            }
            Err(error) => self.follower.fail(
                format!("cannot read the state of the external interface: {error}"),
                now,
            ),
        };
        self.looked = Some(now);
        let chosen = self.follower.chosen();
        for change in &changes {
            log(change, chosen);
        }
        (*chosen != before).then_some(chosen)
    }
}

fn log(change: &InterfaceChange, ExternalInterface { name, .. }: &ExternalInterface) {
    match change {
        InterfaceChange::Lost(why) => tracing::warn!("{why}"),
        InterfaceChange::ServesAgain(after) => {
            tracing::info!(
                interface = name,
                ?after,
                "the external interface serves again"
            );
        }
        InterfaceChange::Moved { from, why } => {
            tracing::warn!(from, to = name, why, "moving to another external interface");
        }
    }
}

/// The addresses of an interface that lie in a pod network.
pub(super) fn addresses_in_pods(
    interface: &ExternalInterface,
    config: &NetworkConfig,
) -> Vec<AddressInPods> {
    AddressInPods::find(
        interface.addresses(),
        &config.networks().collect::<Vec<_>>(),
    )
}

/// Logs them.
pub(super) fn warn_of_pod_networks(interface: &ExternalInterface, config: &NetworkConfig) {
    for found in addresses_in_pods(interface, config) {
        tracing::warn!("{found}; {}", AddressInPods::REMEDY);
    }
}
