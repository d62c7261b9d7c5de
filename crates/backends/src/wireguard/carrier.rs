//! The peers of a WireGuard device, as carriers of packets.

use std::{collections::BTreeSet, net::IpAddr, time::SystemTime};

use flannel_backend_api::{Carrier, CarrierState, CarryingDevice, MissingPart};
use flannel_host::{duration, error_chain::chain, wireguard_key::PublicKey};
use flannel_netlink::{Link, WireguardDevice, WireguardPeerState};
use ipnet::IpNet;

use super::{Control, WireguardError, device::is_wireguard};

/// The part that findings name.
pub(crate) const PART: &str = "wireguard";

/// A WireGuard device as it was read.
pub(crate) struct CarryingWireguard {
    name: String,
    /// The peers, or the reason why they cannot be read.
    found: Result<WireguardDevice, String>,
}

impl CarryingWireguard {
    /// Reads the device; none if it is of another kind.
    pub(crate) async fn read(link: &Link) -> Option<Self> {
        if !is_wireguard(link).await {
            return None;
        }
        Some(Self {
            name: link.name.clone(),
            found: read(link).await.map_err(|error| chain(&error)),
        })
    }
}

async fn read(link: &Link) -> Result<WireguardDevice, WireguardError> {
    Control::open(link).await?.read().await
}

impl CarryingDevice for CarryingWireguard {
    fn carrier(&self, destination: IpAddr) -> Carrier {
        let device = &self.name;
        let (state, text) = match &self.found {
            Err(error) => (
                CarrierState::Unknown,
                format!("the peers of {device} cannot be read: {error}"),
            ),
            Ok(found) => match carrying(found, destination) {
                None => (
                    CarrierState::Repairable,
                    format!("no peer of {device} has {destination}: packets end there"),
                ),
                Some((key, peer)) => by_peer(device, key, peer),
            },
        };
        Carrier {
            part: PART,
            state,
            text,
        }
    }

    fn missing(&self, subnet: IpNet) -> Option<MissingPart> {
        match &self.found {
            Err(error) => Some(MissingPart {
                object: self.name.clone(),
                found: Some(error.clone()),
                wanted: "an answer",
            }),
            Ok(found) => carrying(found, subnet.addr())
                .is_none()
                .then(|| MissingPart {
                    object: format!("{}: WireGuard peer for {subnet}", self.name),
                    found: None,
                    wanted: "a peer",
                }),
        }
    }
}

/// The peer to which the device sends packets for an address: that with the longest prefix.
fn carrying(
    device: &WireguardDevice,
    destination: IpAddr,
) -> Option<(&PublicKey, &WireguardPeerState)> {
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
    Some((key, state))
}

fn by_peer(device: &str, key: &PublicKey, peer: &WireguardPeerState) -> (CarrierState, String) {
    let Some(endpoint) = peer.peer.endpoint else {
        let text = format!("the peer {key} of {device} has no address");
        return (CarrierState::Repairable, text);
    };
    let text = format!("{device} sends it to the peer {key} at {endpoint}");
    match peer.last_handshake {
        Some(at) => {
            let age = SystemTime::now().duration_since(at).unwrap_or_default();
            let age = duration::format(age.as_secs());
            (
                CarrierState::Carries,
                format!("{text}, last handshake {age} ago"),
            )
        }
        None if peer.sent > 0 => (
            CarrierState::Doubtful,
            format!(
                "{text}, which never made a handshake: a firewall may drop UDP there, or its key \
                 or port is another"
            ),
        ),
        None => (
            CarrierState::Carries,
            format!("{text}; the first packet makes the handshake"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flannel_netlink::WireguardPeer;

    use super::*;

    fn peer(prefix: &str, endpoint: Option<&str>, sent: u64) -> WireguardPeerState {
        WireguardPeerState {
            peer: WireguardPeer {
                endpoint: endpoint.map(|text| text.parse().expect("an endpoint")),
                allowed: [prefix.parse().expect("a prefix")].into(),
                preshared_key: None,
                keepalive: None,
            },
            last_handshake: None,
            received: 0,
            sent,
        }
    }

    fn device(peers: Vec<WireguardPeerState>) -> CarryingWireguard {
        let keyed = (1..).map(|byte| PublicKey([byte; 32])).zip(peers);
        CarryingWireguard {
            name: "flannel-wg".to_owned(),
            found: Ok(WireguardDevice {
                peers: keyed.collect(),
                ..WireguardDevice::default()
            }),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_longest_prefix_of_a_peer_wins() {
        let device = device(vec![
            peer("10.244.0.0/16", None, 0),
            peer("10.244.2.0/24", None, 0),
        ]);
        let found = device.found.as_ref().expect("peers");
        let key = |address| carrying(found, ip(address)).map(|(key, _)| key.0[0]);
        assert_eq!(key("10.244.2.9"), Some(2));
        assert_eq!(key("10.244.3.9"), Some(1));
        assert_eq!(key("10.9.0.1"), None);
    }

    #[test]
    fn a_peer_with_an_address_carries_unless_it_never_answered() {
        let endpoint = Some("192.0.2.9:51820");
        let prefix = "10.244.2.0/24";
        let state = |peer| device(vec![peer]).carrier(ip("10.244.2.9")).state;
        assert_eq!(state(peer(prefix, endpoint, 0)), CarrierState::Carries);
        assert_eq!(state(peer(prefix, endpoint, 148)), CarrierState::Doubtful);
        assert_eq!(state(peer(prefix, None, 148)), CarrierState::Repairable);
        let greeted = WireguardPeerState {
            last_handshake: Some(SystemTime::now() - Duration::from_secs(3)),
            ..peer(prefix, endpoint, 148)
        };
        let carrier = device(vec![greeted]).carrier(ip("10.244.2.9"));
        assert_eq!(carrier.state, CarrierState::Carries);
        assert!(carrier.text.contains("last handshake 3"), "{carrier:?}");
    }

    #[test]
    fn a_subnet_without_a_peer_and_a_device_that_does_not_answer_are_missing() {
        let subnet = "10.244.3.0/24".parse().expect("a subnet");
        let with_another = device(vec![peer("10.244.2.0/24", None, 0)]);
        assert_eq!(
            with_another.missing(subnet),
            Some(MissingPart {
                object: "flannel-wg: WireGuard peer for 10.244.3.0/24".to_owned(),
                found: None,
                wanted: "a peer",
            })
        );
        assert_eq!(
            with_another.carrier(ip("10.244.3.9")).state,
            CarrierState::Repairable
        );
        let silent = CarryingWireguard {
            found: Err("no process answers".to_owned()),
            ..with_another
        };
        assert_eq!(
            silent.carrier(ip("10.244.3.9")).state,
            CarrierState::Unknown
        );
        let found = silent.missing(subnet).and_then(|missing| missing.found);
        assert_eq!(found.as_deref(), Some("no process answers"));
    }
}
