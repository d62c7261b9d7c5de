//! WireGuard devices and peers as `status` prints them. Pure but for the wall clock.

use flannel_host::{clock::unix_now as now, duration};
use flannel_status::{PeerState, WireguardPeerStatus, WireguardStatus};
use flannel_terminal::color::Paint;

/// Our end: what peers know it by, and who encrypts.
pub(crate) fn device(status: &WireguardStatus) -> String {
    let WireguardStatus {
        public_key,
        port,
        implementation,
    } = status;
    format!(
        "WireGuard {public_key}, port {port}, by {}",
        by(implementation)
    )
}

fn by(implementation: &str) -> &str {
    if implementation == "kernel" {
        "the kernel"
    } else {
        "a process"
    }
}

/// One peer's last handshake in the table.
pub(crate) fn cell(peer: &WireguardPeerStatus, paint: Paint) -> String {
    let text = peer
        .last_handshake
        .map_or_else(|| "never".to_owned(), |time| format!("{} ago", ago(time)));
    match peer.state {
        PeerState::Session => paint.good(&text),
        PeerState::Idle => text,
        PeerState::Unanswered => paint.bad(&text),
    }
}

fn ago(unix: u64) -> String {
    duration::format(now().saturating_sub(unix))
}

#[cfg(test)]
mod tests {
    use flannel_status::PeerStatus;

    use super::*;

    fn peer(state: PeerState, last_handshake: Option<u64>) -> PeerStatus {
        let wireguard = WireguardPeerStatus {
            public_key: "k".to_owned(),
            endpoint: Some("192.0.2.9:51820".to_owned()),
            last_handshake,
            received: 0,
            sent: 148,
            state,
        };
        PeerStatus {
            node: Some("n9".to_owned()),
            subnet: "10.244.9.0/24".to_owned(),
            public_ip: "192.0.2.9".to_owned(),
            vtep_mac: "-".to_owned(),
            way: "wireguard".to_owned(),
            wireguard: Some(wireguard),
            ..PeerStatus::default()
        }
    }

    #[test]
    fn a_peer_shows_its_last_handshake() {
        let peers = [
            peer(PeerState::Idle, None),
            peer(PeerState::Session, Some(now())),
            peer(PeerState::Unanswered, None),
        ];
        let cells: Vec<_> = peers
            .iter()
            .filter_map(|peer| peer.wireguard.as_ref())
            .map(|peer| cell(peer, Paint(false)))
            .collect();
        assert_eq!(cells, ["never", "0s ago", "never"]);
    }
}
