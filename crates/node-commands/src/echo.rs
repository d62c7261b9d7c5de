//! Peers' answers to echo requests as `status` prints them. Pure but for the wall clock.

use flannel_host::{clock::unix_now as now, duration};
use flannel_status::{EchoState, EchoStatus, PeerEchoStatus, PeerStatus};
use flannel_terminal::color::Paint;

/// The number of peers that answer, of those that are asked.
pub(crate) fn summary(status: &EchoStatus, peers: &[PeerStatus]) -> String {
    let reason = status
        .reason
        .as_ref()
        .map(|reason| format!("; {reason}"))
        .unwrap_or_default();
    if status.interval == 0 {
        return format!("no requests{reason}");
    }
    let known = || {
        peers
            .iter()
            .filter_map(|peer| peer.echo.as_ref())
            .filter(|echo| echo.state != EchoState::Unknown)
    };
    let answering = known()
        .filter(|echo| echo.state == EchoState::Answering)
        .count();
    let interval = duration::format(status.interval);
    format!(
        "{answering} of {} answered, a request every {interval}{reason}",
        known().count()
    )
}

/// One peer's answers in the table.
pub(crate) fn cell(echo: Option<&PeerEchoStatus>, paint: Paint) -> String {
    let Some(echo) = echo else {
        return "-".to_owned();
    };
    let text = match (echo.state, echo.last_reply) {
        (EchoState::Answering, _) => answering(echo),
        (EchoState::Silent, Some(at)) => format!("silent {}", ago(at)),
        (state, _) => state.name().to_owned(),
    };
    match echo.state {
        EchoState::Answering if echo.lost == 0 => paint.good(&text),
        EchoState::Answering | EchoState::Unknown => paint.warn(&text),
        EchoState::Silent | EchoState::Never => paint.bad(&text),
    }
}

fn answering(echo: &PeerEchoStatus) -> String {
    let time = echo.round_trip_us.map(milliseconds).unwrap_or_default();
    if echo.lost == 0 {
        time
    } else {
        format!("{time}, {} of {} lost", echo.lost, echo.of)
    }
}

/// `0.31ms`, `12.4ms`: three digits at most.
fn milliseconds(microseconds: u64) -> String {
    let hundredths = microseconds.saturating_add(5) / 10;
    match hundredths {
        0..1_000 => format!("{}.{:02}ms", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}ms", hundredths / 100, hundredths / 10 % 10),
        _ => format!("{}ms", hundredths / 100),
    }
}

fn ago(unix: u64) -> String {
    duration::format(now().saturating_sub(unix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(state: EchoState, lost: u32) -> PeerEchoStatus {
        let replied = matches!(state, EchoState::Answering | EchoState::Silent);
        PeerEchoStatus {
            address: "10.5.9.0".to_owned(),
            state,
            round_trip_us: replied.then_some(312),
            lost,
            of: 32,
            // In the future, because time goes on while we test.
            last_reply: replied.then(|| now() + 100),
            error: None,
        }
    }

    fn peers(states: &[EchoState]) -> Vec<PeerStatus> {
        let peer = |state: &EchoState| PeerStatus {
            subnet: "10.5.9.0/24".to_owned(),
            public_ip: "192.0.2.9".to_owned(),
            vtep_mac: "-".to_owned(),
            way: "tunnel".to_owned(),
            echo: Some(echo(*state, 0)),
            ..PeerStatus::default()
        };
        states.iter().map(peer).collect()
    }

    #[test]
    fn a_dead_peer_does_not_look_like_a_living_one() {
        let shown = |state, lost| cell(Some(&echo(state, lost)), Paint(false));
        assert_eq!(shown(EchoState::Answering, 0), "0.31ms");
        assert_eq!(shown(EchoState::Answering, 2), "0.31ms, 2 of 32 lost");
        assert_eq!(shown(EchoState::Silent, 3), "silent 0s");
        assert_eq!(shown(EchoState::Never, 3), "never");
        assert_eq!(shown(EchoState::Unknown, 0), "unknown");
        assert_eq!(cell(None, Paint(false)), "-");
    }

    #[test]
    fn the_summary_counts_peers_of_which_something_is_known() {
        use EchoState::{Answering, Silent, Unknown};
        let status = |interval, reason: Option<&str>| EchoStatus {
            interval,
            reason: reason.map(str::to_owned),
        };
        let peers = peers(&[Answering, Silent, Unknown]);
        assert_eq!(
            summary(&status(10, None), &peers),
            "1 of 2 answered, a request every 10s"
        );
        assert_eq!(
            summary(&status(0, Some("stopped")), &peers),
            "no requests; stopped"
        );
    }

    #[test]
    fn times_have_three_digits_at_most() {
        for (microseconds, text) in [
            (0, "0.00ms"),
            (4, "0.00ms"),
            (312, "0.31ms"),
            (9_994, "9.99ms"),
            (12_440, "12.4ms"),
            (100_000, "100ms"),
        ] {
            assert_eq!(milliseconds(microseconds), text);
        }
    }
}
