//! The state behind a route: the peers of a WireGuard device, the process behind a TUN device, the
//! policies and associations of IPsec. A packet that the route sends there is lost if it is gone.
//! `explain` and `maps dump --diff` read it, also while no agent runs.

use std::{collections::BTreeSet, net::IpAddr, path::Path, time::SystemTime};

use flannel_host::error_chain::chain;
use flannel_netlink::{Link, Netlink, NetlinkError, PolicyDirection, WireguardDevice};
use ipnet::IpNet;

use crate::{ipsec, wireguard};

/// The kind of link of a TUN device.
const TUN: &str = "tun";

/// The carrier of the packets that a route sends to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A WireGuard device.
    Wireguard {
        /// Its name.
        device: String,
        /// Its peer with the packet's destination; none if no peer has it. The reason if the device
        /// cannot be read.
        peer: Result<Option<CarryingPeer>, String>,
    },
    /// A TUN device.
    Process {
        /// Its name.
        device: String,
        /// True if a process has it open.
        is_served: bool,
    },
    /// IPsec.
    Ipsec {
        /// The policy for the packet; none if no policy covers it.
        policy: Option<IpsecWay>,
    },
}

/// A peer of a WireGuard device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarryingPeer {
    /// Its public key.
    pub key: String,
    /// Its address and port; empty if that is not known.
    pub endpoint: String,
    /// Seconds since it proved its key; none if it never did.
    pub handshake_age: Option<u64>,
    /// Bytes that were sent to it.
    pub sent: u64,
}

/// An IPsec policy for the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpsecWay {
    /// The node to which it sends encrypted packets.
    pub to: IpAddr,
    /// True if there is an association with that node's keys.
    pub has_keys: bool,
}

/// A device behind which something carries the packets.
pub struct CarryingDevice {
    name: String,
    kind: Kind,
}

enum Kind {
    Wireguard(Result<WireguardDevice, String>),
    Process { is_served: bool },
}

impl CarryingDevice {
    /// Reads what is behind a device; none where the device itself or a route carries packets.
    pub async fn read(link: &Link) -> Option<Self> {
        let is_wireguard = link.kind.as_deref() == Some(wireguard::Control::KIND);
        let kind = if is_wireguard || wireguard::has_process(&link.name).await {
            Kind::Wireguard(read_wireguard(link).await.map_err(|error| chain(&error)))
        } else if link.kind.as_deref() == Some(TUN) {
            Kind::Process {
                is_served: link.running,
            }
        } else {
            return None;
        };
        Some(Self {
            name: link.name.clone(),
            kind,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what carries the packets to an address.
    pub fn to(&self, destination: IpAddr) -> Carrier {
        let device = self.name.clone();
        match &self.kind {
            Kind::Wireguard(found) => {
                let peer = found
                    .as_ref()
                    .map(|found| carrying(found, destination, SystemTime::now()));
                Carrier::Wireguard {
                    device,
                    peer: peer.map_err(Clone::clone),
                }
            }
            Kind::Process { is_served } => Carrier::Process {
                device,
                is_served: *is_served,
            },
        }
    }
}

/// Reads what is behind the route's device, or the policies of a node with the backend ipsec. None
/// where only a route carries packets.
pub async fn read(
    netlink: &Netlink,
    device: Option<&Link>,
    [source, destination]: [IpAddr; 2],
    state_dir: &Path,
) -> Result<Option<Carrier>, NetlinkError> {
    if let Some(link) = device
        && let Some(device) = CarryingDevice::read(link).await
    {
        return Ok(Some(device.to(destination)));
    }
    let network = ipsec::recorded_network(state_dir).map(IpNet::from);
    if !network.is_some_and(|network| network.contains(&destination)) {
        return Ok(None);
    }
    let associations = netlink.tunnel_associations().await?;
    let covers = |src: &IpNet, dst: &IpNet| src.contains(&source) && dst.contains(&destination);
    let policies = netlink.tunnel_policies().await?;
    let mut out = policies
        .iter()
        .filter(|(key, _)| key.direction == PolicyDirection::Out);
    let policy = out
        .find(|(key, _)| covers(&key.src, &key.dst))
        .map(|(_, policy)| IpsecWay {
            to: policy.dst,
            has_keys: associations
                .iter()
                .any(|association| association.serves(policy)),
        });
    Ok(Some(Carrier::Ipsec { policy }))
}

async fn read_wireguard(link: &Link) -> Result<WireguardDevice, wireguard::WireguardError> {
    wireguard::Control::open(link).await?.read().await
}

/// The peer to which the device sends packets for an address: that with the longest prefix.
fn carrying(
    device: &WireguardDevice,
    destination: IpAddr,
    now: SystemTime,
) -> Option<CarryingPeer> {
    let longest = |allowed: &BTreeSet<IpNet>| {
        allowed
            .iter()
            .filter(|prefix| prefix.contains(&destination))
            .map(IpNet::prefix_len)
            .max()
    };
    let with_length = device
        .peers
        .iter()
        .filter_map(|(key, state)| Some((longest(&state.peer.allowed)?, key, state)));
    let (_, key, state) = with_length.max_by_key(|(length, ..)| *length)?;
    let age = |at: SystemTime| now.duration_since(at).unwrap_or_default().as_secs();
    Some(CarryingPeer {
        key: key.to_string(),
        endpoint: state
            .peer
            .endpoint
            .map(|endpoint| endpoint.to_string())
            .unwrap_or_default(),
        handshake_age: state.last_handshake.map(age),
        sent: state.sent,
    })
}

#[cfg(test)]
mod tests {
    use flannel_host::wireguard_key::PublicKey;
    use flannel_netlink::{WireguardPeer, WireguardPeerState};

    use super::*;

    #[test]
    fn the_longest_prefix_of_a_peer_wins() {
        let peer = |prefix: &str| WireguardPeerState {
            peer: WireguardPeer {
                endpoint: None,
                allowed: [prefix.parse().expect("a prefix")].into(),
                preshared_key: None,
                keepalive: None,
            },
            last_handshake: None,
            received: 0,
            sent: 148,
        };
        let [wide, narrow] = [1, 2].map(|byte| PublicKey([byte; 32]));
        let peers = [
            (wide, peer("10.244.0.0/16")),
            (narrow, peer("10.244.2.0/24")),
        ]
        .into();
        let device = WireguardDevice {
            peers,
            ..WireguardDevice::default()
        };
        let found = |address: &str| {
            let address = address.parse().expect("an address");
            carrying(&device, address, SystemTime::UNIX_EPOCH).map(|found| found.key)
        };
        assert_eq!(found("10.244.2.9"), Some(narrow.to_string()));
        assert_eq!(found("10.244.3.9"), Some(wide.to_string()));
        assert_eq!(found("10.9.0.1"), None);
    }
}
