//! The tunnels of the backend ipsec as `status` prints them. Pure but for the wall clock.

use flannel_host::{clock::unix_now as now, duration};
use flannel_status::{IpsecPeerState, IpsecPeerStatus, IpsecStatus};
use flannel_terminal::color::Paint;

/// The process that agrees on keys.
pub(crate) fn summary(status: &IpsecStatus) -> String {
    let process = status.pid.map_or_else(
        || "charon does not run".to_owned(),
        |pid| format!("charon, process {pid}"),
    );
    format!(
        "{process}{}",
        if status.udp_encap {
            ", ESP in UDP port 4500"
        } else {
            ", ESP"
        }
    )
}

/// One peer's tunnel in the table.
pub(crate) fn cell(peer: &IpsecPeerStatus, paint: Paint) -> String {
    let since = peer
        .since
        .map(|unix| format!(" {}", duration::format(now().saturating_sub(unix))));
    let text = format!("{}{}", peer.state.name(), since.unwrap_or_default());
    match peer.state {
        IpsecPeerState::Installed => paint.good(&text),
        IpsecPeerState::Connecting => text,
        IpsecPeerState::Established | IpsecPeerState::Missing => paint.bad(&text),
    }
}

#[cfg(test)]
mod tests {
    use flannel_status::PeerStatus;

    use super::*;

    fn peer(state: IpsecPeerState, since: Option<u64>, error: Option<&str>) -> PeerStatus {
        let error = error.map(str::to_owned);
        PeerStatus {
            node: Some("n9".to_owned()),
            subnet: "10.244.9.0/24".to_owned(),
            public_ip: "192.0.2.9".to_owned(),
            vtep_mac: "-".to_owned(),
            way: "ipsec".to_owned(),
            ipsec: Some(IpsecPeerStatus {
                state,
                since,
                received: 0,
                sent: 0,
                error,
            }),
            ..PeerStatus::default()
        }
    }

    #[test]
    fn a_peer_shows_its_state() {
        let peers = [
            peer(IpsecPeerState::Installed, Some(now()), None),
            peer(IpsecPeerState::Established, Some(now()), Some("no ESP")),
            peer(IpsecPeerState::Connecting, None, None),
        ];
        let cells: Vec<_> = peers
            .iter()
            .filter_map(|peer| peer.ipsec.as_ref())
            .map(|peer| cell(peer, Paint(false)))
            .collect();
        assert_eq!(cells, ["installed 0s", "established 0s", "connecting"]);
    }

    #[test]
    fn the_process_is_named() {
        let status = IpsecStatus {
            pid: Some(7),
            ..IpsecStatus::default()
        };
        assert_eq!(summary(&status), "charon, process 7, ESP");
        let status = IpsecStatus {
            udp_encap: true,
            ..IpsecStatus::default()
        };
        assert_eq!(
            summary(&status),
            "charon does not run, ESP in UDP port 4500"
        );
    }
}
