//! The addresses of this host while the agent runs: events invalidate them, and the next
//! reconciliation reads them again.

use flannel_netlink::{Address, KernelEvent, Netlink};
use flannel_store::HostAddresses;
use ipnet::IpNet;

/// The reader of the host's addresses. It reads them only when they may have changed.
pub(super) struct HostAddressReader {
    netlink: Netlink,
    stale: bool,
}

impl HostAddressReader {
    /// Nothing is read yet.
    pub(super) const fn new(netlink: Netlink) -> Self {
        Self { netlink, stale: true }
    }

    /// Takes in an event. It is no reason for a reconciliation by itself.
    pub(super) const fn observe(&mut self, event: &KernelEvent) {
        if matches!(event, KernelEvent::Overflow | KernelEvent::Address(_) | KernelEvent::AddressGone(_)) {
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
                Some(HostAddresses::new(addresses.iter().filter_map(with_prefix)))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read this host's addresses; leases are judged by those known before");
                None
            }
        }
    }
}

fn with_prefix(Address { key, .. }: &Address) -> Option<IpNet> {
    IpNet::new(key.addr, key.prefix_len).ok()
}
