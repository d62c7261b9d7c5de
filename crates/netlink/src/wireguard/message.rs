//! The messages, and how an answer is read. A device of many peers comes in several parts, and a
//! peer of many prefixes may be in two of them.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use flannel_host::wireguard_key::{KEY_LEN, PublicKey, SecretKey};
use ipnet::IpNet;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute,
    WireguardCmd, WireguardMessage, WireguardPeer as PeerMessage, WireguardPeerAttribute,
    WireguardPeerFlags, WireguardTimeSpec,
};

use super::device::{WireguardDevice, WireguardPeer, WireguardPeerState};

/// The kernel's form of a key that is not set.
const NO_KEY: [u8; KEY_LEN] = [0; KEY_LEN];

pub(super) fn question(ifindex: u32) -> WireguardMessage {
    WireguardMessage {
        cmd: WireguardCmd::GetDevice,
        attributes: vec![WireguardAttribute::IfIndex(ifindex)],
    }
}

pub(super) fn identity(ifindex: u32, key: SecretKey, port: u16) -> WireguardMessage {
    change(
        ifindex,
        vec![
            WireguardAttribute::PrivateKey(key.0),
            WireguardAttribute::ListenPort(port),
        ],
    )
}

pub(super) fn peer(ifindex: u32, key: PublicKey, peer: &WireguardPeer) -> WireguardMessage {
    let mut attributes = vec![
        WireguardPeerAttribute::PublicKey(key.0),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        WireguardPeerAttribute::PresharedKey(peer.preshared_key.map_or(NO_KEY, |key| key.0)),
        WireguardPeerAttribute::PersistentKeepalive(peer.keepalive.unwrap_or(0)),
    ];
    attributes.extend(peer.endpoint.map(WireguardPeerAttribute::Endpoint));
    attributes.push(WireguardPeerAttribute::AllowedIps(
        peer.allowed.iter().map(allowed).collect(),
    ));
    change(
        ifindex,
        vec![WireguardAttribute::Peers(vec![PeerMessage(attributes)])],
    )
}

pub(super) fn removal(ifindex: u32, key: PublicKey) -> WireguardMessage {
    let peer = PeerMessage(vec![
        WireguardPeerAttribute::PublicKey(key.0),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe),
    ]);
    change(ifindex, vec![WireguardAttribute::Peers(vec![peer])])
}

fn change(ifindex: u32, more: Vec<WireguardAttribute>) -> WireguardMessage {
    let mut attributes = vec![WireguardAttribute::IfIndex(ifindex)];
    attributes.extend(more);
    WireguardMessage {
        cmd: WireguardCmd::SetDevice,
        attributes,
    }
}

fn allowed(prefix: &IpNet) -> WireguardAllowedIp {
    let family = match prefix {
        IpNet::V4(_) => WireguardAddressFamily::Ipv4,
        IpNet::V6(_) => WireguardAddressFamily::Ipv6,
    };
    WireguardAllowedIp(vec![
        WireguardAllowedIpAttr::Family(family),
        WireguardAllowedIpAttr::IpAddr(prefix.network()),
        WireguardAllowedIpAttr::Cidr(prefix.prefix_len()),
    ])
}

/// The device that these parts describe.
pub(super) fn device<'a>(parts: impl Iterator<Item = &'a WireguardMessage>) -> WireguardDevice {
    let mut device = WireguardDevice::default();
    for attribute in parts.flat_map(|part| &part.attributes) {
        match attribute {
            WireguardAttribute::PrivateKey(key) => device.private_key = Some(SecretKey(*key)),
            WireguardAttribute::ListenPort(port) => device.port = *port,
            WireguardAttribute::Peers(peers) => peers
                .iter()
                .for_each(|peer| take_peer(&mut device, &peer.0)),
            _ => {}
        }
    }
    device
}

fn take_peer(device: &mut WireguardDevice, attributes: &[WireguardPeerAttribute]) {
    let key = attributes.iter().find_map(|attribute| match attribute {
        WireguardPeerAttribute::PublicKey(key) => Some(PublicKey(*key)),
        _ => None,
    });
    let Some(key) = key else { return };
    let empty = || WireguardPeerState {
        peer: WireguardPeer {
            endpoint: None,
            allowed: BTreeSet::new(),
            preshared_key: None,
            keepalive: None,
        },
        last_handshake: None,
        received: 0,
        sent: 0,
    };
    let state = device.peers.entry(key).or_insert_with(empty);
    for attribute in attributes {
        match attribute {
            WireguardPeerAttribute::PresharedKey(key) => {
                state.peer.preshared_key = Some(SecretKey(*key)).filter(|key| key.0 != NO_KEY);
            }
            WireguardPeerAttribute::Endpoint(endpoint) => state.peer.endpoint = Some(*endpoint),
            WireguardPeerAttribute::PersistentKeepalive(seconds) => {
                state.peer.keepalive = Some(*seconds).filter(|seconds| *seconds != 0);
            }
            WireguardPeerAttribute::LastHandshake(time) => state.last_handshake = wall(time),
            WireguardPeerAttribute::RxBytes(bytes) => state.received = *bytes,
            WireguardPeerAttribute::TxBytes(bytes) => state.sent = *bytes,
            WireguardPeerAttribute::AllowedIps(prefixes) => {
                state
                    .peer
                    .allowed
                    .extend(prefixes.iter().filter_map(|prefix| prefix_of(&prefix.0)));
            }
            _ => {}
        }
    }
}

/// Zero is the kernel's "never".
fn wall(time: &WireguardTimeSpec) -> Option<SystemTime> {
    let (seconds, nanos) = (
        u64::try_from(time.seconds).ok()?,
        u64::try_from(time.nano_seconds).ok()?,
    );
    let since = Duration::from_secs(seconds) + Duration::from_nanos(nanos);
    (!since.is_zero()).then(|| SystemTime::UNIX_EPOCH + since)
}

fn prefix_of(attributes: &[WireguardAllowedIpAttr]) -> Option<IpNet> {
    let (mut address, mut length): (Option<IpAddr>, Option<u8>) = (None, None);
    for attribute in attributes {
        match attribute {
            WireguardAllowedIpAttr::IpAddr(ip) => address = Some(*ip),
            WireguardAllowedIpAttr::Cidr(bits) => length = Some(*bits),
            _ => {}
        }
    }
    IpNet::new(address?, length?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(allowed: &[&str]) -> WireguardPeer {
        WireguardPeer {
            endpoint: Some("192.0.2.9:51820".parse().expect("an endpoint")),
            allowed: allowed
                .iter()
                .map(|prefix| prefix.parse().expect("a prefix"))
                .collect(),
            preshared_key: Some(SecretKey([3; KEY_LEN])),
            keepalive: Some(25),
        }
    }

    #[test]
    fn what_is_written_is_read_back_also_in_parts() {
        let (one, other) = (PublicKey([1; KEY_LEN]), PublicKey([2; KEY_LEN]));
        let plain = WireguardPeer {
            preshared_key: None,
            keepalive: None,
            ..wanted(&[])
        };
        let parts = [
            identity(7, SecretKey([9; KEY_LEN]), 51820),
            peer(7, one, &wanted(&["10.244.9.0/24"])),
            peer(7, other, &plain),
            peer(7, one, &wanted(&["fd00:10:244:9::/64"])),
        ];
        let device = device(parts.iter());
        assert_eq!(
            (device.private_key, device.port),
            (Some(SecretKey([9; KEY_LEN])), 51820)
        );
        let peers: Vec<_> = device
            .peers
            .iter()
            .map(|(key, state)| (*key, &state.peer))
            .collect();
        assert_eq!(
            peers,
            [
                (one, &wanted(&["10.244.9.0/24", "fd00:10:244:9::/64"])),
                (other, &plain)
            ]
        );
    }

    #[test]
    fn a_handshake_that_never_was_has_no_time() {
        assert_eq!(
            wall(&WireguardTimeSpec {
                seconds: 0,
                nano_seconds: 0
            }),
            None
        );
        let later = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            wall(&WireguardTimeSpec {
                seconds: 1,
                nano_seconds: 500_000_000
            }),
            Some(later)
        );
    }
}
