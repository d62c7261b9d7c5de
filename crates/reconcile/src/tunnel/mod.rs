//! The tunnel devices, and the peers behind them where these are more than a link.

pub mod device;
pub mod rivals;
mod turns;

use std::time::Instant;

use flannel_backend_api::{
    Desired, Device, DeviceError, Node, TunnelDevice, TunnelFacts, TunnelPeers,
};
use flannel_host::family::Family;
use flannel_netlink::Netlink;
use flannel_status::Dirty;

/// The peers behind the tunnel devices; none where the backend has only links.
pub(super) struct Tunnels(pub(super) Option<Box<dyn TunnelPeers>>);

impl Tunnels {
    /// Prepares what a device needs, and with `read_back` reads what is behind it.
    pub(super) async fn prepare(
        &mut self,
        netlink: &Netlink,
        device: &Device,
        wanted: &dyn TunnelDevice,
        node: &Node,
        read_back: bool,
    ) -> Result<(), DeviceError> {
        let Some(peers) = &mut self.0 else {
            return Ok(());
        };
        match peers
            .prepare(netlink, device, wanted, node, read_back)
            .await
        {
            Err(error) => Err(rivals::named(netlink, wanted, error).await),
            Ok(()) => Ok(()),
        }
    }

    /// Some peers of a plane want `after` instead of `before`.
    pub(super) fn change(&mut self, device: &str, before: &Desired, after: &Desired) {
        if let Some(peers) = &mut self.0 {
            peers.change(device, &before.tunnel_peers, &after.tunnel_peers);
        }
    }

    /// Clears what a plane desires for its peers, which is unknown again.
    pub(super) fn clear_desired(&mut self, device: &str, family: Family) {
        if let Some(peers) = &mut self.0 {
            peers.clear_desired(device, family);
        }
    }

    /// Returns the facts on a tunnel device that has a key.
    pub(super) fn facts(&self, device: &Device) -> Option<TunnelFacts> {
        self.0.as_ref()?.facts(&device.name)
    }

    /// Returns the peers that were refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.0.iter().flat_map(|peers| peers.dirty())
    }

    /// Returns the number of peers that were restored.
    pub(super) fn repairs(&self) -> u64 {
        self.0.as_ref().map_or(0, |peers| peers.repairs())
    }

    /// When something that was refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.0.as_ref()?.next_retry()
    }
}
