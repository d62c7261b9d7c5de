//! The WireGuard devices of the node, and the peers of each: what the planes want of them, what
//! they have, and the difference.
//!
//! With one device for both families, both planes want something of the same peer. So a device is
//! changed only when every plane that uses it has worked its peers in: a peer that is half known
//! would lose the prefixes of the other family.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Instant, SystemTime},
};

use flannel_backend_api::{
    Device, DeviceError, Node, TunnelDevice, TunnelFacts, TunnelPeer, TunnelPeers, vanished,
};
use flannel_host::{family::Family, wireguard_key::PublicKey};
use flannel_netlink::{Netlink, WireguardPeer, WireguardPeerState};
use flannel_status::Dirty;
use flannel_tracker::{Failure, Tracker};
use futures::future::{FutureExt as _, LocalBoxFuture};
use ipnet::IpNet;

use super::{
    Control, SharedWireguardPeers, WireguardError, WireguardKeys, WireguardSpec, has_session,
};

/// The devices, by name.
pub struct WireguardDevices {
    keys: WireguardKeys,
    shared: SharedWireguardPeers,
    devices: BTreeMap<String, WireguardState>,
}

/// One device.
struct WireguardState {
    spec: WireguardSpec,
    /// Its interface index, and the handle on it.
    control: Option<(u32, Control)>,
    /// The desired state of the planes, by peer: each subnet behind it, and its endpoint.
    wanted: BTreeMap<PublicKey, BTreeMap<IpNet, SocketAddr>>,
    peers: Tracker<PublicKey, WireguardPeer>,
}

impl WireguardDevices {
    /// For a node with these keys.
    pub const fn new(keys: WireguardKeys, shared: SharedWireguardPeers) -> Self {
        Self {
            keys,
            shared,
            devices: BTreeMap::new(),
        }
    }

    /// Reads the device back, and sets its key and port if they differ.
    async fn read_back(
        &mut self,
        netlink: &Netlink,
        device: &Device,
        spec: &WireguardSpec,
    ) -> Result<(), WireguardError> {
        let keys = self.keys;
        let state = self
            .devices
            .entry(device.name.clone())
            .or_insert_with(|| WireguardState {
                spec: spec.clone(),
                control: None,
                wanted: BTreeMap::new(),
                peers: Tracker::default(),
            });
        state.spec = spec.clone();
        let control = state.open(netlink, device).await?;
        let found = control.read().await?;
        if found.private_key != Some(keys.private) || found.port != spec.port {
            tracing::info!(
                device = device.name,
                key = %keys.public,
                port = spec.port,
                "setting key and port"
            );
            control.set_identity(&keys.private, spec.port).await?;
        }
        self.shared.read(&found.peers, SystemTime::now());
        state.found(found.peers);
        Ok(())
    }

    /// Makes peers as they are wanted, and with `sweep` removes those that are not wanted.
    async fn make(&mut self, device: &str, sweep: bool) {
        let Some(state) = self.devices.get_mut(device) else {
            return;
        };
        let Some((_, control)) = state.control.clone() else {
            return;
        };
        let now = Instant::now();
        let pending = state.peers.pending(now, sweep);
        for (key, peer) in pending.upserts {
            match control.replace_peer(&key, &peer).await {
                Ok(()) => state.peers.made(&key, peer),
                Err(error) => refused(&mut state.peers, key, &error, now),
            }
        }
        for (key, _) in pending.deletes {
            match control.remove_peer(&key).await {
                Ok(()) => {
                    tracing::info!(device, %key, "removed a peer that has no lease");
                    state.peers.removed(&key);
                    self.shared.forget(&key);
                }
                Err(error) => refused(&mut state.peers, key, &error, now),
            }
        }
    }
}

impl TunnelPeers for WireguardDevices {
    fn prepare<'a>(
        &'a mut self,
        netlink: &'a Netlink,
        device: &'a Device,
        wanted: &'a dyn TunnelDevice,
        _node: &'a Node,
        read_back: bool,
    ) -> LocalBoxFuture<'a, Result<(), DeviceError>> {
        let wanted = (wanted as &dyn Any).downcast_ref::<WireguardSpec>();
        let spec = wanted.filter(|_| read_back);
        async move {
            match spec {
                Some(spec) => Ok(self.read_back(netlink, device, spec).await?),
                None => Ok(()),
            }
        }
        .boxed_local()
    }

    fn change(
        &mut self,
        device: &str,
        before: &BTreeMap<IpNet, TunnelPeer>,
        after: &BTreeMap<IpNet, TunnelPeer>,
    ) {
        let Some(state) = self.devices.get_mut(device) else {
            return;
        };
        let touched: BTreeSet<PublicKey> = before
            .values()
            .chain(after.values())
            .filter_map(|peer| peer.key)
            .collect();
        for (subnet, peer) in before {
            if let Some(key) = peer.key {
                state.wanted.entry(key).or_default().remove(subnet);
            }
        }
        for (subnet, peer) in after {
            if let Some(key) = peer.key {
                let subnets = state.wanted.entry(key).or_default();
                subnets.insert(*subnet, peer.endpoint);
            }
        }
        for key in touched {
            state.want(key);
        }
    }

    fn clear_desired(&mut self, device: &str, family: Family) {
        let Some(state) = self.devices.get_mut(device) else {
            return;
        };
        for subnets in state.wanted.values_mut() {
            subnets.retain(|subnet, _| Family::of(subnet.addr()) != family);
        }
        let keys: Vec<_> = state.wanted.keys().copied().collect();
        for key in keys {
            state.want(key);
        }
    }

    fn apply<'a>(&'a mut self, device: &'a str, sweep: bool) -> LocalBoxFuture<'a, ()> {
        self.make(device, sweep).boxed_local()
    }

    fn facts(&self, device: &str) -> Option<TunnelFacts> {
        let state = self.devices.get(device)?;
        let (_, control) = state.control.as_ref()?;
        Some(TunnelFacts {
            key: self.keys.public,
            port: state.spec.port,
            implementation: control.implementation(),
        })
    }

    fn dirty(&self) -> Vec<Dirty> {
        let of_device = |(device, state): (&String, &WireguardState)| -> Vec<Dirty> {
            let named =
                |(key, failure): (_, &Failure)| failure.to_dirty(format!("peer {key} of {device}"));
            state.peers.failures().map(named).collect()
        };
        self.devices.iter().flat_map(of_device).collect()
    }

    fn repairs(&self) -> u64 {
        self.devices
            .values()
            .map(|state| state.peers.repairs())
            .sum()
    }

    fn next_retry(&self) -> Option<Instant> {
        self.devices
            .values()
            .filter_map(|state| state.peers.next_retry())
            .min()
    }
}

impl WireguardState {
    /// The handle on the device, which is another one if the device is.
    async fn open(
        &mut self,
        netlink: &Netlink,
        device: &Device,
    ) -> Result<Control, WireguardError> {
        if let Some((index, control)) = &self.control
            && *index == device.index
        {
            return Ok(control.clone());
        }
        let link = netlink
            .link_by_index(device.index)
            .await?
            .ok_or_else(|| vanished(&device.name))?;
        let control = Control::open(&link).await?;
        self.control = Some((device.index, control.clone()));
        Ok(control)
    }

    /// Takes in the peers of the device. The endpoint of a peer follows its packets, as it does
    /// behind a NAT. It counts as wanted while there is a session, and is set back after that.
    fn found(&mut self, peers: BTreeMap<PublicKey, WireguardPeerState>) {
        let now = SystemTime::now();
        let settled = |(key, state): (PublicKey, WireguardPeerState)| {
            let wanted = self.peers.wanted().get(&key).map(|peer| peer.endpoint);
            let endpoint = wanted
                .filter(|_| has_session(&state, now))
                .unwrap_or(state.peer.endpoint);
            (
                key,
                WireguardPeer {
                    endpoint,
                    ..state.peer
                },
            )
        };
        let peers = peers.into_iter().map(settled).collect();
        self.peers.found(peers);
    }

    /// The peer of this key as the planes want it. Of several endpoints, which are a mistake of the
    /// leases, that of the first subnet counts.
    fn want(&mut self, key: PublicKey) {
        let subnets = self.wanted.get(&key).filter(|subnets| !subnets.is_empty());
        let peer = subnets.map(|subnets| WireguardPeer {
            endpoint: subnets.values().next().copied(),
            allowed: subnets.keys().copied().collect(),
            preshared_key: self.spec.preshared_key,
            keepalive: self.spec.keepalive,
        });
        if peer.is_none() {
            self.wanted.remove(&key);
        }
        self.peers.set_desired(&key, peer);
    }
}

fn refused(
    peers: &mut Tracker<PublicKey, WireguardPeer>,
    key: PublicKey,
    error: &WireguardError,
    now: Instant,
) {
    if peers.failed(&key, error.to_string(), now) {
        tracing::warn!(%key, %error, "a WireGuard peer was refused; it is tried again");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flannel_host::wireguard_key::SecretKey;

    use super::*;

    const DEVICE: &str = "flannel-wg";

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn rows(rows: &[(&str, u8, &str)]) -> BTreeMap<IpNet, TunnelPeer> {
        let row = |(subnet, number, endpoint): &(&str, u8, &str)| {
            let end = TunnelPeer {
                endpoint: endpoint.parse().expect("an endpoint"),
                key: Some(key(*number)),
            };
            (subnet.parse().expect("a subnet"), end)
        };
        rows.iter().map(row).collect()
    }

    fn devices() -> WireguardDevices {
        let spec = WireguardSpec {
            name: DEVICE.to_owned(),
            port: 51820,
            mtu: 1420,
            preshared_key: None,
            keepalive: Some(25),
        };
        let state = WireguardState {
            spec,
            control: None,
            wanted: BTreeMap::new(),
            peers: Tracker::default(),
        };
        let devices = BTreeMap::from([(DEVICE.to_owned(), state)]);
        let keys = WireguardKeys {
            private: SecretKey([1; 32]),
            public: key(1),
        };
        WireguardDevices {
            devices,
            ..WireguardDevices::new(keys, SharedWireguardPeers::default())
        }
    }

    /// The peers that are wanted, in words.
    fn wanted(devices: &WireguardDevices) -> Vec<String> {
        let state = &devices.devices[DEVICE];
        let peer = |(key, peer): (&PublicKey, &WireguardPeer)| {
            let allowed: Vec<String> = peer.allowed.iter().map(ToString::to_string).collect();
            format!(
                "{} {} {}",
                key.0[0],
                peer.endpoint.expect("an endpoint"),
                allowed.join(",")
            )
        };
        state.peers.wanted().iter().map(peer).collect()
    }

    #[test]
    fn both_families_of_a_node_are_behind_one_peer() {
        let mut devices = devices();
        let v4 = rows(&[("10.5.9.0/24", 9, "192.0.2.9:1")]);
        let v6 = rows(&[("fd00:5:0:9::/64", 9, "192.0.2.9:1")]);
        devices.change(DEVICE, &BTreeMap::new(), &v4);
        devices.change(DEVICE, &BTreeMap::new(), &v6);
        assert_eq!(
            wanted(&devices),
            ["9 192.0.2.9:1 10.5.9.0/24,fd00:5:0:9::/64"]
        );
        devices.change(DEVICE, &v4, &BTreeMap::new());
        assert_eq!(wanted(&devices), ["9 192.0.2.9:1 fd00:5:0:9::/64"]);
        devices.clear_desired(DEVICE, Family::V6);
        assert_eq!(wanted(&devices), [""; 0]);
    }

    #[test]
    fn another_key_takes_the_place_of_the_former() {
        let mut devices = devices();
        let before = rows(&[
            ("10.5.9.0/24", 9, "192.0.2.9:1"),
            ("10.5.8.0/24", 8, "192.0.2.8:1"),
        ]);
        let after = rows(&[
            ("10.5.9.0/24", 7, "192.0.2.9:1"),
            ("10.5.8.0/24", 8, "192.0.2.88:1"),
        ]);
        devices.change(DEVICE, &BTreeMap::new(), &before);
        devices.change(DEVICE, &before, &after);
        assert_eq!(
            wanted(&devices),
            ["7 192.0.2.9:1 10.5.9.0/24", "8 192.0.2.88:1 10.5.8.0/24"]
        );
    }

    /// Returns the endpoints that need a change, given the one found and the age of the handshake.
    fn repaired(endpoint: &str, handshake: Option<u64>) -> Vec<Option<SocketAddr>> {
        let mut devices = devices();
        devices.change(
            DEVICE,
            &BTreeMap::new(),
            &rows(&[("10.5.9.0/24", 9, "192.0.2.9:1")]),
        );
        let state = devices.devices.get_mut(DEVICE).expect("a device");
        let peer = state.peers.wanted()[&key(9)].clone();
        let found = WireguardPeerState {
            peer: WireguardPeer {
                endpoint: Some(endpoint.parse().expect("an endpoint")),
                ..peer
            },
            last_handshake: handshake
                .map(|seconds| SystemTime::now() - Duration::from_secs(seconds)),
            received: 0,
            sent: 0,
        };
        state.found(BTreeMap::from([(key(9), found)]));
        state
            .peers
            .pending(Instant::now(), true)
            .upserts
            .into_iter()
            .map(|(_, peer)| peer.endpoint)
            .collect()
    }

    #[test]
    fn an_endpoint_that_roamed_is_set_back_once_the_session_has_ended() {
        let published = Some("192.0.2.9:1".parse().expect("an endpoint"));
        assert_eq!(repaired("192.0.2.9:1", None), []);
        assert_eq!(repaired("198.51.100.1:7", Some(20)), []);
        assert_eq!(repaired("198.51.100.1:7", Some(200)), [published]);
        assert_eq!(repaired("198.51.100.1:7", None), [published]);
    }
}
