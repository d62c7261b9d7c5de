//! The peers behind a tunnel device that is more than a link.

use std::{collections::BTreeMap, time::Instant};

use flannel_host::{family::Family, wireguard_key::PublicKey};
use flannel_netlink::Netlink;
use flannel_status::Dirty;
use futures::future::LocalBoxFuture;
use ipnet::IpNet;

use crate::{Device, DeviceError, Node, TunnelDevice, TunnelPeer};

/// The peers behind a node's tunnel devices: those of a WireGuard device, or of a process that has
/// the device open. What the planes want of them is compared with what is there, as with objects of
/// the kernel.
pub trait TunnelPeers {
    /// Prepares what the device needs, and with `read_back` reads what is behind it.
    fn prepare<'a>(
        &'a mut self,
        netlink: &'a Netlink,
        device: &'a Device,
        wanted: &'a dyn TunnelDevice,
        node: &'a Node,
        read_back: bool,
    ) -> LocalBoxFuture<'a, Result<(), DeviceError>>;

    /// Some peers of a plane want `after` instead of `before`, each by the subnet behind it.
    fn change(
        &mut self,
        device: &str,
        before: &BTreeMap<IpNet, TunnelPeer>,
        after: &BTreeMap<IpNet, TunnelPeer>,
    );

    /// Clears what a plane desires for its peers, which is unknown again.
    fn clear_desired(&mut self, device: &str, family: Family);

    /// Makes peers as they are wanted, and with `sweep` removes those that are not wanted.
    fn apply<'a>(&'a mut self, device: &'a str, sweep: bool) -> LocalBoxFuture<'a, ()>;

    /// Returns the facts on a device that has a key; `None` until it was read.
    fn facts(&self, _device: &str) -> Option<TunnelFacts> {
        None
    }

    /// Returns the peers that were refused.
    fn dirty(&self) -> Vec<Dirty>;

    /// Returns the number of peers that were restored.
    fn repairs(&self) -> u64 {
        0
    }

    /// When something that was refused is due again.
    fn next_retry(&self) -> Option<Instant>;
}

/// A device with a key, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelFacts {
    /// Our public key.
    pub key: PublicKey,
    /// Its UDP port.
    pub port: u16,
    /// The party that implements it: `kernel` or `process`.
    pub implementation: &'static str,
}
