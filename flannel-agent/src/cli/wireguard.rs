//! WireGuard devices and peers as `status` prints them. Pure but for the wall clock.

use flannel_host::duration;
use flannel_status::{PeerState, PeerStatus, WireguardPeerStatus, WireguardStatus};

use super::{color::Paint, now, peer_problems};

/// Our end: what peers know it by, and who encrypts.
pub(super) fn device(status: &WireguardStatus) -> String {
    let WireguardStatus { public_key, port, implementation } = status;
    format!("WireGuard {public_key}, port {port}, by {}", by(implementation))
}

fn by(implementation: &str) -> &str {
    if implementation == "kernel" { "the kernel" } else { "a process" }
}

/// The peers that were sent packets and made no handshake.
pub(super) fn unanswered(peers: &[PeerStatus]) -> impl Iterator<Item = (&PeerStatus, &WireguardPeerStatus)> {
    let known = peers.iter().filter_map(|peer| Some((peer, peer.wireguard.as_ref()?)));
    known.filter(|(_, wireguard)| wireguard.state == PeerState::Unanswered)
}

/// A line for each of them.
pub(super) fn problems(peers: &[PeerStatus]) -> Vec<String> {
    peer_problems::lines(unanswered(peers), problem, "without a handshake")
}

fn problem(peer: &PeerStatus, wireguard: &WireguardPeerStatus) -> String {
    let at = wireguard.endpoint.as_deref().unwrap_or("an unknown address");
    let since = match wireguard.last_handshake {
        Some(time) => format!("made no handshake for {}", ago(time)),
        None => "never made a handshake".to_owned(),
    };
    format!(
        "{} {since}, although packets were sent to {at}: a firewall may drop UDP there, or its key, secret \
         (PSK) or port is another",
        peer_problems::name(peer)
    )
}

/// One peer's last handshake in the table.
pub(super) fn cell(peer: &WireguardPeerStatus, paint: Paint) -> String {
    let text = peer.last_handshake.map_or_else(|| "never".to_owned(), |time| format!("{} ago", ago(time)));
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
            reason: None,
            echo: None,
            wireguard: Some(wireguard),
            ipsec: None,
        }
    }

    #[test]
    fn a_peer_without_a_handshake_is_a_problem_only_if_packets_were_sent() {
        let peers =
            [peer(PeerState::Idle, None), peer(PeerState::Session, Some(now())), peer(PeerState::Unanswered, None)];
        let problems = problems(&peers);
        assert_eq!(problems.len(), 1);
        let expected = "peer n9 10.244.9.0/24 never made a handshake, although packets were sent to 192.0.2.9:51820: ";
        assert!(problems[0].starts_with(expected), "{problems:?}");
        let cells: Vec<_> =
            peers.iter().filter_map(|peer| peer.wireguard.as_ref()).map(|peer| cell(peer, Paint(false))).collect();
        assert_eq!(cells, ["never", "0s ago", "never"]);
    }
}
