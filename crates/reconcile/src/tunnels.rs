//! The ends of tunnels that are more than a link: WireGuard devices, and the process of the backend
//! udp. What the planes want of them is passed on by the kind of tunnel.

use std::time::Instant;

use flannel_backends::{
    Desired, Node, TunnelSpec, udp::SharedUdpStatus, wireguard::SharedWireguardPeers,
};
use flannel_host::family::Family;
use flannel_netlink::Netlink;
use flannel_status::Dirty;

use super::{
    device::Device,
    device_error::DeviceError,
    rivals,
    udp::UdpTunnel,
    wireguard::{WireguardDevices, WireguardFacts},
};

/// All of them.
pub(super) struct Tunnels {
    pub(super) wireguard: WireguardDevices,
    pub(super) udp: UdpTunnel,
}

impl Tunnels {
    /// Without any.
    pub(super) fn none() -> Self {
        let wireguard = WireguardDevices::new(None, SharedWireguardPeers::default());
        Self {
            wireguard,
            udp: UdpTunnel::new(None, SharedUdpStatus::default()),
        }
    }

    /// Sees to what a device needs, and with `read_back` finds out what it has.
    pub(super) async fn prepare(
        &mut self,
        netlink: &Netlink,
        device: &Device,
        spec: &TunnelSpec,
        node: &Node,
        read_back: bool,
    ) -> Result<(), DeviceError> {
        let prepared = match spec {
            TunnelSpec::Wireguard(spec) if read_back => self
                .wireguard
                .read_back(netlink, device, spec)
                .await
                .map_err(DeviceError::from),
            TunnelSpec::Udp(spec) => self
                .udp
                .prepare(device, spec, node, read_back)
                .await
                .map_err(DeviceError::from),
            _ => Ok(()),
        };
        match prepared {
            Err(error) => Err(rivals::named(netlink, spec, error).await),
            Ok(()) => Ok(()),
        }
    }

    /// Some peers of a plane want `after` instead of `before`.
    pub(super) fn change(&mut self, device: &str, before: &Desired, after: &Desired) {
        self.wireguard
            .change(device, &before.wireguard, &after.wireguard);
        self.udp.peers_mut().change(&before.udp, &after.udp);
    }

    /// Clears what a plane desires for its peers, which is unknown again.
    pub(super) fn clear_desired(&mut self, device: &str, family: Family) {
        self.wireguard.clear_desired(device, family);
        if family == Family::V4 {
            self.udp.peers_mut().clear_desired();
        }
    }

    /// Returns the facts on a tunnel device that is a WireGuard device.
    pub(super) fn wireguard_facts(&self, device: &Device) -> Option<WireguardFacts> {
        self.wireguard.facts(&device.name)
    }

    /// Returns the peers that were refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.wireguard.dirty().chain(self.udp.dirty())
    }

    /// When something that was refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.wireguard
            .next_retry()
            .into_iter()
            .chain(self.udp.next_retry())
            .min()
    }
}
