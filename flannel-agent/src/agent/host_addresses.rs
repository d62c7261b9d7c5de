//! The addresses of this host while the agent runs: events invalidate them, and the next
//! reconciliation reads them again.

use std::collections::BTreeSet;

use flannel_host::family::Family;
use flannel_netlink::{Address, KernelEvent, Netlink};
use flannel_store::{HostAddresses, LeaseKey};
use ipnet::IpNet;

/// The reader of the host's addresses. It reads them only when they may have changed.
pub(super) struct HostAddressReader {
    netlink: Netlink,
    /// The pod networks.
    networks: Vec<IpNet>,
    stale: bool,
    among_pods: Vec<HostPrefix>,
}

/// A prefix of a device of this host, in a pod network. Tunnel devices have none: their address is
/// a single one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPrefix {
    pub(super) device: String,
    pub(super) index: u32,
    pub(super) is_bridge: bool,
    /// The address with the length of the prefix.
    pub(super) address: IpNet,
}

impl HostAddressReader {
    /// A reader that has not read yet.
    pub(super) const fn new(netlink: Netlink, networks: Vec<IpNet>) -> Self {
        Self {
            netlink,
            networks,
            stale: true,
            among_pods: Vec::new(),
        }
    }

    /// The prefixes of devices that are in a pod network, as of the last look.
    pub(super) fn among_pods(&self) -> &[HostPrefix] {
        &self.among_pods
    }

    /// The bridges of pods: those with an address in our own subnet. A node may have one for its
    /// external interface.
    pub(super) fn bridges(&self, own: LeaseKey, external: u32) -> Vec<String> {
        let is_own = |prefix: &&HostPrefix| {
            let address = prefix.address.addr();
            own.subnet(Family::of(address))
                .is_some_and(|subnet| subnet.contains(&address))
        };
        let bridges = self
            .among_pods
            .iter()
            .filter(|prefix| prefix.is_bridge && prefix.index != external);
        let names: BTreeSet<&String> = bridges
            .filter(is_own)
            .map(|prefix| &prefix.device)
            .collect();
        names.into_iter().cloned().collect()
    }

    /// Takes in an event, which does not call for a reconciliation by itself.
    pub(super) const fn observe(&mut self, event: &KernelEvent) {
        if matches!(
            event,
            KernelEvent::Overflow | KernelEvent::Address(_) | KernelEvent::AddressGone(_)
        ) {
            self.stale = true;
        }
    }

    /// Reads them at the next [`Self::refresh`], whatever was announced.
    pub(super) const fn invalidate(&mut self) {
        self.stale = true;
    }

    /// The addresses, if they may have changed since the last call.
    pub(super) async fn refresh(&mut self) -> Option<HostAddresses> {
        if !self.stale {
            return None;
        }
        match self.netlink.addresses().await {
            Ok(addresses) => {
                self.stale = false;
                self.read_among_pods(&addresses).await;
                Some(HostAddresses::new(addresses.iter().filter_map(with_prefix)))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read this host's addresses; leases are judged by \
                    those known before");
                None
            }
        }
    }

    async fn read_among_pods(&mut self, addresses: &[Address]) {
        let is_inside = |address: &IpNet| {
            self.networks
                .iter()
                .any(|network| network.contains(&address.addr()))
        };
        let is_prefix = |address: &IpNet| address.prefix_len() < address.max_prefix_len();
        let mut found = Vec::new();
        for address in addresses {
            let Some(prefix) = with_prefix(address).filter(is_prefix).filter(is_inside) else {
                continue;
            };
            let index = address.key.ifindex;
            // Without an answer the device is gone, which is an event, too.
            if let Ok(Some(link)) = self.netlink.link_by_index(index).await {
                let is_bridge = link.kind.as_deref() == Some("bridge");
                found.push(HostPrefix {
                    device: link.name,
                    index,
                    is_bridge,
                    address: prefix,
                });
            }
        }
        self.among_pods = found;
    }
}

fn with_prefix(Address { key, .. }: &Address) -> Option<IpNet> {
    IpNet::new(key.addr, key.prefix_len).ok()
}
