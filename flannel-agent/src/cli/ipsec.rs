//! The tunnels of the backend ipsec as `status` prints them. Pure but for the wall clock.

use flannel_host::duration;
use flannel_status::{IpsecPeerState, IpsecPeerStatus, IpsecStatus, PeerStatus};

use super::{color::Paint, now, peer_problems};

/// The process that agrees on keys.
pub(super) fn summary(status: &IpsecStatus) -> String {
    let process = status.pid.map_or_else(|| "charon does not run".to_owned(), |pid| format!("charon, process {pid}"));
    format!("{process}{}", if status.udp_encap { ", ESP in UDP port 4500" } else { ", ESP" })
}

/// The problems of the process and of the kernel.
pub(super) fn node_problems(status: &IpsecStatus) -> impl Iterator<Item = String> {
    let process = status.error.iter().map(|error| format!("no keys are agreed on with peers: {error}"));
    let kernel = status.kernel.iter().map(|reason| format!("the kernel makes no IPsec associations: {reason}"));
    process.chain(kernel)
}

/// Returns the peers without associations, each with the reason, if the reason is known.
pub(super) fn without_associations(peers: &[PeerStatus]) -> impl Iterator<Item = (&PeerStatus, &str)> {
    let known = peers.iter().filter_map(|peer| Some((peer, peer.ipsec.as_ref()?)));
    let waiting = known.filter(|(_, ipsec)| ipsec.state != IpsecPeerState::Installed);
    waiting.filter_map(|(peer, ipsec)| Some((peer, ipsec.error.as_deref()?)))
}

/// Returns a line for each peer without associations.
pub(super) fn problems(peers: &[PeerStatus]) -> Vec<String> {
    let line = |peer: &PeerStatus, error| {
        format!("{} has no IPsec associations, so packets to it are dropped: {error}", peer_problems::name(peer))
    };
    peer_problems::lines(without_associations(peers), line, "without IPsec associations")
}

/// One peer's tunnel in the table.
pub(super) fn cell(peer: &IpsecPeerStatus, paint: Paint) -> String {
    let since = peer.since.map(|unix| format!(" {}", duration::format(now().saturating_sub(unix))));
    let text = format!("{}{}", peer.state.name(), since.unwrap_or_default());
    match peer.state {
        IpsecPeerState::Installed => paint.good(&text),
        IpsecPeerState::Connecting => text,
        IpsecPeerState::Established | IpsecPeerState::Missing => paint.bad(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(state: IpsecPeerState, since: Option<u64>, error: Option<&str>) -> PeerStatus {
        let error = error.map(str::to_owned);
        PeerStatus {
            node: Some("n9".to_owned()),
            subnet: "10.244.9.0/24".to_owned(),
            public_ip: "192.0.2.9".to_owned(),
            vtep_mac: "-".to_owned(),
            way: "ipsec".to_owned(),
            reason: None,
            echo: None,
            wireguard: None,
            ipsec: Some(IpsecPeerStatus { state, since, received: 0, sent: 0, error }),
        }
    }

    #[test]
    fn a_peer_without_associations_is_a_problem_with_its_reason() {
        let peers = [
            peer(IpsecPeerState::Installed, Some(now()), None),
            peer(IpsecPeerState::Established, Some(now()), Some("no ESP")),
            peer(IpsecPeerState::Connecting, None, None),
        ];
        let expected =
            ["peer n9 10.244.9.0/24 has no IPsec associations, so packets to it are dropped: no ESP".to_owned()];
        assert_eq!(problems(&peers), expected);
        let cells: Vec<_> =
            peers.iter().filter_map(|peer| peer.ipsec.as_ref()).map(|peer| cell(peer, Paint(false))).collect();
        assert_eq!(cells, ["installed 0s", "established 0s", "connecting"]);
    }

    #[test]
    fn the_process_and_its_problem_are_named() {
        let status = IpsecStatus { pid: Some(7), ..IpsecStatus::default() };
        assert_eq!((summary(&status).as_str(), node_problems(&status).count()), ("charon, process 7, ESP", 0));
        let (error, kernel) = (Some("no".to_owned()), Some("none".to_owned()));
        let status = IpsecStatus { udp_encap: true, error, kernel, ..IpsecStatus::default() };
        assert_eq!(summary(&status), "charon does not run, ESP in UDP port 4500");
        let lines: Vec<_> = node_problems(&status).collect();
        let expected = ["no keys are agreed on with peers: no", "the kernel makes no IPsec associations: none"];
        assert_eq!(lines, expected);
    }
}
