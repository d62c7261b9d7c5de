//! A failing check: in words, and as the command that explains it. Pure.

use std::net::SocketAddr;

use flannel_explain::{Question, Transport};

use super::plan::PairCheck;

/// A failing check in words.
pub fn failure(check: &PairCheck) -> String {
    let family = check
        .family
        .as_ref()
        .map(|family| format!(", {family}"))
        .unwrap_or_default();
    let to = check.to.as_deref().unwrap_or("outside");
    let address = check
        .address
        .as_ref()
        .map(|address| format!(" ({address})"))
        .unwrap_or_default();
    let protocol = check
        .protocol
        .as_ref()
        .map(|protocol| format!("{protocol}: "))
        .unwrap_or_default();
    let error = check.error.as_deref().unwrap_or_default();
    format!(
        "{}{family}: {} to {to}{address}: {protocol}{error}",
        check.check.title(),
        check.from
    )
}

/// The command that explains a failing check; `None` where it has no address to ask about.
pub(super) fn explain_command(check: &PairCheck) -> Option<Vec<String>> {
    let to: SocketAddr = check.address.as_ref()?.parse().ok()?;
    let question = Question {
        source: check.local.as_ref()?.parse().ok()?,
        destination: to.ip(),
        transport: check
            .protocol
            .as_deref()
            .map_or(Some(Transport::Tcp), Transport::of_name)?,
        sport: None,
        dport: Some(to.port()),
    };
    Some(question.command())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Check;

    #[test]
    fn a_failure_is_explained_with_the_addresses_of_its_packets() {
        let check = PairCheck {
            check: Check::PodToService,
            family: Some("IPv6".to_owned()),
            from: "n1".to_owned(),
            to: Some("n2".to_owned()),
            address: Some("[fd00::a]:7".to_owned()),
            ok: false,
            error: Some("no answer within 2 s".to_owned()),
            protocol: Some("udp".to_owned()),
            local: Some("fd00:1::2".to_owned()),
            size: None,
            device_mtu: None,
            pair: (0, Some(1)),
        };
        assert_eq!(
            failure(&check),
            "pod to Service, IPv6: n1 to n2 ([fd00::a]:7): udp: no answer within 2 s"
        );
        let command = explain_command(&check).expect("a command").join(" ");
        assert_eq!(
            command,
            "flannel-agent explain fd00:1::2 fd00::a --proto=udp --dport=7"
        );
        let by_name = PairCheck {
            address: Some("example.com:443".to_owned()),
            ..check
        };
        assert_eq!(explain_command(&by_name), None);
    }
}
