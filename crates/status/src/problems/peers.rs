//! Problems of peers, whatever they are about. Of each kind the first [`LISTED`] are listed.

use flannel_host::duration;

use super::{Problem, ProblemCode};
use crate::{
    EchoState, IpsecPeerState, LISTED, PeerEchoStatus, PeerState, PeerStatus, WireguardPeerStatus,
};

pub(super) fn problems(peers: &[PeerStatus], now: u64) -> impl Iterator<Item = Problem> {
    silent(peers, now)
        .into_iter()
        .chain(handshakes(peers, now))
        .chain(associations(peers))
}

/// A problem for each peer that does not answer, or one for all if none ever did.
fn silent(peers: &[PeerStatus], now: u64) -> Vec<Problem> {
    let asked = || {
        peers
            .iter()
            .filter_map(|peer| Some((peer, peer.echo.as_ref()?)))
    };
    let silent = || asked().filter(|(_, echo)| echo.state.is_problem());
    let never = silent()
        .filter(|(_, echo)| echo.state == EchoState::Never)
        .count();
    if never > 1 && never == asked().count() {
        let text =
            format!("none of {never} peers has answered an echo request: a firewall may drop ICMP");
        let problem = Problem::new(ProblemCode::SilentPeer, text);
        let remedy = "--peer-echo-interval=0 ends the requests";
        return vec![Problem {
            count: number(never),
            ..problem.with_remedy(remedy).likely()
        }];
    }
    let problem = |peer: &PeerStatus, echo: &PeerEchoStatus| {
        let since = match echo.last_reply {
            Some(at) => format!("has not answered for {}", ago(at, now)),
            None => "has not answered since the agent started".to_owned(),
        };
        let error = echo
            .error
            .as_ref()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        let text = format!(
            "{} at {} {since} (echo to {}{error})",
            name(peer),
            peer.public_ip,
            echo.address
        );
        Problem::new(ProblemCode::SilentPeer, text)
            .about(&peer.subnet)
            .since(echo.last_reply)
    };
    of_each(
        silent(),
        problem,
        ProblemCode::SilentPeer,
        "peers without an answer",
    )
}

fn handshakes(peers: &[PeerStatus], now: u64) -> Vec<Problem> {
    let known = peers
        .iter()
        .filter_map(|peer| Some((peer, peer.wireguard.as_ref()?)));
    let unanswered = known.filter(|(_, wireguard)| wireguard.state == PeerState::Unanswered);
    let problem = |peer: &PeerStatus, wireguard: &WireguardPeerStatus| {
        let at = wireguard
            .endpoint
            .as_deref()
            .unwrap_or("an unknown address");
        let since = match wireguard.last_handshake {
            Some(time) => format!("made no handshake for {}", ago(time, now)),
            None => "never made a handshake".to_owned(),
        };
        let text = format!(
            "{} {since}, although packets were sent to {at}: a firewall may drop UDP there, or its \
             key, secret (PSK) or \
             port is another",
            name(peer)
        );
        Problem::new(ProblemCode::NoHandshake, text)
            .about(&peer.subnet)
            .since(wireguard.last_handshake)
    };
    of_each(
        unanswered,
        problem,
        ProblemCode::NoHandshake,
        "peers without a handshake",
    )
}

/// The peers whose packets the kernel drops, where the reason is known.
fn associations(peers: &[PeerStatus]) -> Vec<Problem> {
    let known = peers
        .iter()
        .filter_map(|peer| Some((peer, peer.ipsec.as_ref()?)));
    let waiting = known.filter(|(_, ipsec)| ipsec.state != IpsecPeerState::Installed);
    let bare = waiting.filter_map(|(peer, ipsec)| Some((peer, ipsec.error.as_deref()?)));
    let problem = |peer: &PeerStatus, error: &str| {
        let text = format!(
            "{} has no IPsec associations, so packets to it are dropped: {error}",
            name(peer)
        );
        Problem::new(ProblemCode::NoAssociations, text).about(&peer.subnet)
    };
    of_each(
        bare,
        problem,
        ProblemCode::NoAssociations,
        "peers without IPsec associations",
    )
}

fn of_each<'a, T>(
    peers: impl Iterator<Item = (&'a PeerStatus, T)>,
    problem: impl Fn(&PeerStatus, T) -> Problem,
    code: ProblemCode,
    what: &str,
) -> Vec<Problem> {
    let all: Vec<_> = peers.collect();
    let total = all.len();
    let listed = all
        .into_iter()
        .take(LISTED)
        .map(|(peer, details)| problem(peer, details));
    listed
        .chain(Problem::more(code, number(total), total.min(LISTED), what))
        .collect()
}

/// A peer by its Node, where that is known, and its subnet.
fn name(peer: &PeerStatus) -> String {
    let node = peer
        .node
        .as_ref()
        .map(|node| format!("{node} "))
        .unwrap_or_default();
    format!("peer {node}{}", peer.subnet)
}

fn ago(unix: u64, now: u64) -> String {
    duration::format(now.saturating_sub(unix))
}

fn number(found: usize) -> u64 {
    u64::try_from(found).unwrap_or(u64::MAX)
}
