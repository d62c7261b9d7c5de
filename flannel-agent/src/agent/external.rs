//! The external interface while the agent runs: events cast doubt on it, and before the next reconciliation it is looked at
//! again.
//!
//! It is followed by its name (see [`iface::follow`]). While it cannot serve, everything stays as it is and the node is not
//! ready. One that cannot serve for longer than [`GRACE`] is given up for whatever the options would choose now, as at start:
//! so a device that is made anew keeps its node, and one that is replaced by another loses it for a moment only.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use anyhow::bail;

use crate::{
    cli::RunOptions,
    family::Family,
    iface::{self, ExternalInterface, Host, IfaceError, IfaceOptions},
    netlink::{KernelEvent, Netlink},
    subnet::Hints,
};

/// How long the chosen interface may be away before another one is chosen.
const GRACE: Duration = Duration::from_secs(10);

/// An interface, and the source address of outer packets on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) interface: ExternalInterface,
    pub(super) source: Ipv4Addr,
}

/// The choice, and how to renew it.
pub(super) struct External {
    netlink: Netlink,
    options: IfaceOptions,
    chosen: Chosen,
    doubted: bool,
    lost: Option<Loss>,
}

struct Loss {
    since: Instant,
    why: String,
}

impl External {
    /// Chooses for the first time. What the store remembers of the node comes before the options.
    pub(super) async fn choose(netlink: &Netlink, options: &RunOptions, hints: &Hints) -> anyhow::Result<Self> {
        let options = IfaceOptions {
            iface: options.ifaces.clone(),
            patterns: options.iface_patterns.clone(),
            can_reach: options.iface_can_reach,
            public_ip: hints.public_ip.or(options.public_ip).map(IpAddr::V4),
        };
        let host = Host::read(netlink, Family::V4, &options).await?;
        let interface = iface::select(&options, Family::V4, &host)?;
        let Some(chosen) = Chosen::of(interface, &host) else { bail!("the external interface has no IPv4 address") };
        Ok(Self { netlink: netlink.clone(), options, chosen, doubted: false, lost: None })
    }

    /// What is chosen.
    pub(super) const fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Why it does not serve, if it does not.
    pub(super) fn problem(&self) -> Option<&str> {
        self.lost.as_ref().map(|lost| lost.why.as_str())
    }

    /// Takes in an event. Whether the interface is to be looked at because of it.
    pub(super) fn observe(&mut self, event: &KernelEvent) -> bool {
        let ExternalInterface { index, name, public, .. } = &self.chosen.interface;
        let concerns = match event {
            KernelEvent::Overflow => true,
            KernelEvent::Link(link) => link.index == *index || link.name == *name,
            KernelEvent::LinkGone { index: gone, .. } => gone == index,
            // On an interface made anew addresses come under an index we may not know yet.
            KernelEvent::Address(address) | KernelEvent::AddressGone(address) => {
                address.key.ifindex == *index || address.key.addr == *public || self.lost.is_some()
            }
            _ => false,
        };
        self.doubted |= concerns;
        concerns
    }

    /// It is to be looked at, whatever was announced.
    pub(super) const fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Looks at the interface if there is reason to. What is chosen now, if that is something else than before.
    pub(super) async fn look_again(&mut self) -> Option<&Chosen> {
        if !self.doubted && self.lost.is_none() {
            return None;
        }
        match self.find().await {
            Ok(found) => {
                self.doubted = false;
                if let Some(lost) = self.lost.take() {
                    tracing::info!(interface = found.interface.name, after = ?lost.since.elapsed(), "the external interface serves again");
                }
                let changed = found != self.chosen;
                self.chosen = found;
                changed.then_some(&self.chosen)
            }
            Err(why) => {
                self.lose(why);
                None
            }
        }
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

    async fn find(&self) -> Result<Chosen, String> {
        let unreadable = |error| format!("cannot read the state of the external interface: {error}");
        let host = Host::read_devices(&self.netlink, &self.options).await.map_err(unreadable)?;
        let why = match iface::follow(&self.options, &self.chosen.interface, &host) {
            Ok(interface) => return Chosen::of(interface, &host).ok_or_else(|| "it has no IPv4 address".to_owned()),
            Err(lost) => lost.to_string(),
        };
        if self.lost.as_ref().is_some_and(|lost| lost.since.elapsed() >= GRACE)
            && let Ok(another) = self.choose_another().await
        {
            tracing::warn!(
                from = self.chosen.interface.name,
                to = another.interface.name,
                why,
                "moving to another external interface"
            );
            return Ok(another);
        }
        Err(why)
    }

    async fn choose_another(&self) -> Result<Chosen, IfaceError> {
        let family = Family::of(self.chosen.interface.addr);
        let host = Host::read(&self.netlink, family, &self.options).await?;
        let interface = iface::select(&self.options, family, &host)?;
        Ok(Chosen::of(interface, &host).unwrap_or_else(|| self.chosen.clone()))
    }
}

impl Chosen {
    /// The source address is the public one if this host has it, else the interface's own: the public one is then somebody
    /// else's doing, a NAT in front of us.
    fn of(interface: ExternalInterface, host: &Host) -> Option<Self> {
        let is_local = host.addresses.iter().any(|address| address.key.addr == interface.public);
        match if is_local { interface.public } else { interface.addr } {
            IpAddr::V4(source) => Some(Self { interface, source }),
            IpAddr::V6(_) => None,
        }
    }
}
