//! The external interface while the agent runs: an event marks it as stale, and it is read again
//! before the next reconciliation.
//!
//! It is followed by its name (see [`iface::follow()`]), each family separately. While it cannot
//! serve a family, that family stays as it is and the node is not ready. An interface that cannot
//! serve for longer than [`GRACE`] is given up, and the options choose again, as at start. So a
//! device that is recreated stays the external interface, and one that is replaced by another
//! interrupts the node only briefly.

use std::time::{Duration, Instant};

use flannel_host::family::Family;
use flannel_netlink::{KernelEvent, Netlink};
use flannel_store::{Hints, config::NetworkConfig};

use crate::iface::{self, AddressInPods, ExternalInterface, Followed, Host, IfaceError, IfaceOptions};

/// The time for which the chosen interface may be unusable before another one is chosen.
const GRACE: Duration = Duration::from_secs(10);

/// The choice, and how to renew it.
pub(super) struct External {
    netlink: Netlink,
    options: IfaceOptions,
    families: Vec<Family>,
    chosen: ExternalInterface,
    doubted: bool,
    lost: Option<Loss>,
}

struct Loss {
    since: Instant,
    why: String,
}

impl External {
    /// Chooses for the first time. What the store remembers of the node comes before the options.
    pub(super) async fn choose(
        netlink: &Netlink,
        options: &IfaceOptions,
        families: Vec<Family>,
        hints: &Hints,
    ) -> Result<Self, IfaceError> {
        let options = IfaceOptions {
            public_ip: hints.public_ip.or(options.public_ip),
            public_ipv6: hints.public_ipv6.or(options.public_ipv6),
            ..options.clone()
        };
        let host = Host::read(netlink, &families, &options).await?;
        let chosen = iface::select(&options, &families, &host)?;
        Ok(Self { netlink: netlink.clone(), options, families, chosen, doubted: false, lost: None })
    }

    /// Returns the interface in use.
    pub(super) const fn chosen(&self) -> &ExternalInterface {
        &self.chosen
    }

    /// Returns the reason why the interface cannot serve, if it cannot.
    pub(super) fn problem(&self) -> Option<&str> {
        self.lost.as_ref().map(|lost| lost.why.as_str())
    }

    /// Takes in an event. Whether the interface is to be looked at because of it.
    pub(super) fn observe(&mut self, event: &KernelEvent) -> bool {
        let ExternalInterface { index, name, ends, .. } = &self.chosen;
        let is_public = |addr| ends.values().any(|end| end.public == addr);
        let concerns = match event {
            KernelEvent::Overflow => true,
            KernelEvent::Link(link) => link.index == *index || link.name == *name,
            KernelEvent::LinkGone { index: gone, .. } => gone == index,
            // On a recreated interface addresses arrive under an index that may not be known yet.
            KernelEvent::Address(address) | KernelEvent::AddressGone(address) => {
                address.key.ifindex == *index || is_public(address.key.addr) || self.lost.is_some()
            }
            _ => false,
        };
        self.doubted |= concerns;
        concerns
    }

    /// It is to be looked at, whatever was announced.
    pub(super) const fn invalidate(&mut self) {
        self.doubted = true;
    }

    /// Looks at the interface if there is reason to. What is chosen now, if that is something else
    /// than before.
    pub(super) async fn look_again(&mut self) -> Option<&ExternalInterface> {
        if !self.doubted && self.lost.is_none() {
            return None;
        }
        let (found, lost) = self.find().await;
        if let Some(why) = lost {
            self.lose(why);
        } else {
            self.doubted = false;
            if let Some(lost) = self.lost.take() {
                tracing::info!(interface = found.name, after = ?lost.since.elapsed(), "the external interface serves again");
            }
        }
        let changed = found != self.chosen;
        self.chosen = found;
        changed.then_some(&self.chosen)
    }

    fn lose(&mut self, why: String) {
        match &mut self.lost {
            Some(lost) if lost.why == why => {}
            Some(lost) => lost.why = why,
            None => {
                tracing::warn!("{why}");
                self.lost = Some(Loss { since: Instant::now(), why });
            }
        }
    }

    /// The interface as it is, as far as it serves, and what it lacks.
    async fn find(&self) -> (ExternalInterface, Option<String>) {
        let host = match Host::read_devices(&self.netlink, &self.options).await {
            Ok(host) => host,
            Err(error) => {
                let why = format!("cannot read the state of the external interface: {error}");
                return (self.chosen.clone(), Some(why));
            }
        };
        let Followed { interface, lost } = iface::follow(&self.options, &self.chosen, &host);
        if lost.is_empty() {
            return (interface, None);
        }
        let texts: Vec<_> = lost.iter().map(ToString::to_string).collect();
        let why = texts.join("; ");
        if self.lost.as_ref().is_some_and(|lost| lost.since.elapsed() >= GRACE)
            && let Ok(another) = self.choose_another().await
        {
            tracing::warn!(from = self.chosen.name, to = another.name, why, "moving to another external interface");
            return (another, None);
        }
        (interface, Some(why))
    }

    async fn choose_another(&self) -> Result<ExternalInterface, IfaceError> {
        let host = Host::read(&self.netlink, &self.families, &self.options).await?;
        iface::select(&self.options, &self.families, &host)
    }
}

/// The addresses of an interface that lie in a pod network.
pub(super) fn addresses_in_pods(interface: &ExternalInterface, config: &NetworkConfig) -> Vec<AddressInPods> {
    AddressInPods::find(interface.addresses(), &config.networks().collect::<Vec<_>>())
}

/// Logs them.
pub(super) fn warn_of_pod_networks(interface: &ExternalInterface, config: &NetworkConfig) {
    for found in addresses_in_pods(interface, config) {
        tracing::warn!("{found}; {}", AddressInPods::REMEDY);
    }
}
