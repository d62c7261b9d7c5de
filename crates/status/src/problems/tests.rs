use super::*;
use crate::{
    CloudStatus, EchoState, ExtensionStatus, FailingCommand, IpsecPeerState, IpsecPeerStatus,
    IpsecStatus, LISTED, LeaseStatus, ListenerStatus, ModeStatus, PeerEchoStatus, PeerState,
    PeerStatus, RejectedStatus, StoreStatus, UdpStatus, UnroutedPeer, WireguardPeerStatus,
};

/// The time of the tests.
const NOW: u64 = 1_000;

fn bare() -> Status {
    let text = "kernel".to_owned();
    let mode = ModeStatus {
        effective: text.clone(),
        wanted: text,
        ..ModeStatus::default()
    };
    Status {
        pid: Some(1),
        ..Status::without_agent("waiting for the store", mode)
    }
}

fn lease() -> LeaseStatus {
    LeaseStatus {
        subnet: "10.244.1.0/24".to_owned(),
        public_ip: "192.0.2.1".to_owned(),
        held: true,
        ..LeaseStatus::default()
    }
}

fn peer() -> PeerStatus {
    PeerStatus {
        node: Some("n9".to_owned()),
        subnet: "10.244.9.0/24".to_owned(),
        public_ip: "192.0.2.9".to_owned(),
        vtep_mac: "-".to_owned(),
        way: "tunnel".to_owned(),
        ..PeerStatus::default()
    }
}

fn with_echo(state: EchoState) -> PeerStatus {
    let last_reply = matches!(state, EchoState::Answering | EchoState::Silent).then_some(NOW - 66);
    let address = "10.244.9.0".to_owned();
    let echo = PeerEchoStatus {
        address,
        state,
        round_trip_us: None,
        lost: 0,
        of: 32,
        last_reply,
        error: None,
    };
    PeerStatus {
        echo: Some(echo),
        ..peer()
    }
}

fn with_handshake(state: PeerState) -> PeerStatus {
    let wireguard = WireguardPeerStatus {
        public_key: "k".to_owned(),
        endpoint: Some("192.0.2.9:51820".to_owned()),
        last_handshake: None,
        received: 0,
        sent: 148,
        state,
    };
    PeerStatus {
        wireguard: Some(wireguard),
        ..peer()
    }
}

fn with_associations(state: IpsecPeerState, error: Option<&str>) -> PeerStatus {
    let error = error.map(str::to_owned);
    PeerStatus {
        ipsec: Some(IpsecPeerStatus {
            state,
            since: None,
            received: 0,
            sent: 0,
            error,
        }),
        ..peer()
    }
}

/// The problems of a document: code and line.
fn found(mut status: Status) -> Vec<(ProblemCode, String)> {
    status.find_problems(NOW);
    status
        .problems
        .iter()
        .map(|problem| (problem.code, problem.line()))
        .collect()
}

fn of_peers(peers: Vec<PeerStatus>) -> Vec<(ProblemCode, String)> {
    found(Status { peers, ..bare() })
}

#[test]
fn a_node_without_problems_has_none() {
    let status = Status {
        lease: Some(lease()),
        peers: vec![with_echo(EchoState::Answering)],
        ..bare()
    };
    assert_eq!(found(status.clone()), []);
    assert_eq!(status.problem_counts(), None);
}

#[test]
fn a_start_that_waits_is_not_a_failed_reconciliation() {
    let error = Some("connection refused".to_owned());
    let text = "waiting for the store: connection refused".to_owned();
    assert_eq!(
        found(Status {
            error: error.clone(),
            ..bare()
        }),
        [(ProblemCode::StartWaits, text)]
    );
    let text = "cannot reconcile: connection refused".to_owned();
    assert_eq!(
        found(Status {
            error,
            lease: Some(lease()),
            ..bare()
        }),
        [(ProblemCode::Reconcile, text)]
    );
}

#[test]
fn a_lower_mode_is_a_problem_of_a_node_that_runs() {
    let mode = ModeStatus {
        wanted: "fast".to_owned(),
        reason: Some("no CAP_BPF".to_owned()),
        ..bare().mode
    };
    assert_eq!(
        found(Status {
            mode: mode.clone(),
            ..bare()
        }),
        [],
        "the programs are not loaded yet"
    );
    let text = "mode kernel instead of fast: no CAP_BPF".to_owned();
    assert_eq!(
        found(Status {
            mode,
            lease: Some(lease()),
            ..bare()
        }),
        [(ProblemCode::LoweredMode, text)]
    );
}

#[test]
fn a_listener_without_its_port_names_the_remedy() {
    let listener = |error: Option<&str>| ListenerStatus {
        purpose: "metrics".to_owned(),
        address: "0.0.0.0:8082".to_owned(),
        flags: "metrics".to_owned(),
        error: error.map(str::to_owned),
    };
    let status = Status {
        listeners: vec![listener(None), listener(Some("python3 has the port"))],
        ..bare()
    };
    let text = "cannot listen on 0.0.0.0:8082 for metrics, tried again: python3 has the port; end \
        the other process, \
                or choose another --metrics-ip or --metrics-port";
    assert_eq!(found(status), [(ProblemCode::Listener, text.to_owned())]);
}

#[test]
fn the_processes_of_backends_are_problems_where_they_are_gone() {
    let udp = UdpStatus {
        error: Some("killed".to_owned()),
        ..UdpStatus::default()
    };
    let ipsec = IpsecStatus {
        error: Some("no".to_owned()),
        kernel: Some("none".to_owned()),
        ..IpsecStatus::default()
    };
    let expected = [
        (
            ProblemCode::UdpProcess,
            "no tunnel process carries packets: killed".to_owned(),
        ),
        (
            ProblemCode::IpsecKeys,
            "no keys are agreed on with peers: no".to_owned(),
        ),
        (
            ProblemCode::IpsecKernel,
            "the kernel makes no IPsec associations: none".to_owned(),
        ),
    ];
    assert_eq!(
        found(Status {
            udp: Some(udp),
            ipsec: Some(ipsec),
            ..bare()
        }),
        expected
    );
}

#[test]
fn a_command_and_a_route_of_the_cloud_are_problems() {
    let failing = FailingCommand {
        peer: "node-9".to_owned(),
        error: "SubnetAddCommand failed".to_owned(),
        attempts: 2,
    };
    let extension = ExtensionStatus {
        added: 1,
        failing: 1,
        failures: vec![failing],
        ..ExtensionStatus::default()
    };
    let cloud = CloudStatus {
        error: Some("full".to_owned()),
        attempts: 1,
        source_check: Some("not allowed".to_owned()),
        ..CloudStatus::default()
    };
    let check = "the check of source and destination may drop packets of pods: not allowed";
    let expected = [
        (
            ProblemCode::Command,
            "commands for peer node-9 (2 tries): SubnetAddCommand failed".to_owned(),
        ),
        (
            ProblemCode::CloudRoute,
            "routes of the cloud cannot be kept (1 try): full".to_owned(),
        ),
        (ProblemCode::SourceCheck, check.to_owned()),
    ];
    assert_eq!(
        found(Status {
            extension: Some(extension),
            cloud: Some(cloud),
            ..bare()
        }),
        expected
    );
    let missing = found(Status {
        cloud: Some(CloudStatus::default()),
        ..bare()
    });
    assert_eq!(missing.len(), 1, "{missing:?}");
    let present = CloudStatus {
        present: true,
        ..CloudStatus::default()
    };
    assert_eq!(
        found(Status {
            cloud: Some(present),
            ..bare()
        }),
        []
    );
}

#[test]
fn a_peer_past_the_routes_of_commands_is_likely_to_be_a_problem() {
    let peer = |route: Option<&str>| UnroutedPeer {
        subnet: "10.244.9.0/24".to_owned(),
        default_route: route.map(str::to_owned),
    };
    let unrouted_peers = vec![peer(Some("by eth0 via 192.0.2.254")), peer(None)];
    let extension = ExtensionStatus {
        added: 9,
        unrouted: 9,
        unrouted_peers,
        ..ExtensionStatus::default()
    };
    let mut status = Status {
        extension: Some(extension),
        ..bare()
    };
    status.find_problems(NOW);
    let [by_default, without, more] = &status.problems[..] else {
        panic!("{:?}", status.problems)
    };
    let text = "packets to pods in 10.244.9.0/24 follow the default route by eth0 via 192.0.2.254, \
        and no answer shows \
                that they arrive: what SubnetAddCommand made may be gone";
    assert_eq!(
        (by_default.code, by_default.text.as_str()),
        (ProblemCode::UnroutedPeer, text)
    );
    assert_eq!(
        (by_default.certainty, by_default.severity),
        (Certainty::Likely, Severity::Warning)
    );
    assert!(
        without
            .text
            .starts_with("the kernel has no route for packets to pods in 10.244.9.0/24, "),
        "{without:?}"
    );
    assert_eq!(
        more.text,
        "7 more peers without a route of commands, 9 in all"
    );
}

#[test]
fn a_peer_without_an_answer_is_a_problem() {
    use EchoState::{Answering, Never, Silent, Unknown};
    let peers = |states: &[EchoState]| of_peers(states.iter().copied().map(with_echo).collect());
    assert_eq!(peers(&[Answering, Unknown]), []);
    let lines = |lines: &[&str]| -> Vec<_> {
        lines
            .iter()
            .map(|line| (ProblemCode::SilentPeer, (*line).to_owned()))
            .collect()
    };
    assert_eq!(
        peers(&[Answering, Silent, Never]),
        lines(&[
            "peer n9 10.244.9.0/24 at 192.0.2.9 has not answered for 1m6s (echo to 10.244.9.0)",
            "peer n9 10.244.9.0/24 at 192.0.2.9 has not answered since the agent started (echo to \
             10.244.9.0)",
        ])
    );
    assert_eq!(
        peers(&[Never, Never]),
        lines(&[
            "none of 2 peers has answered an echo request: a firewall may drop ICMP; \
             --peer-echo-interval=0 ends \
                 the requests"
        ])
    );
    assert_eq!(
        peers(&[Silent, Silent]).len(),
        2,
        "they did answer: ICMP passes"
    );
}

#[test]
fn a_peer_without_a_handshake_is_a_problem_only_if_packets_were_sent() {
    let problems = of_peers(
        [PeerState::Idle, PeerState::Session, PeerState::Unanswered]
            .map(with_handshake)
            .to_vec(),
    );
    let expected = "peer n9 10.244.9.0/24 never made a handshake, although packets were sent to \
        192.0.2.9:51820: ";
    assert!(
        matches!(&problems[..], [(ProblemCode::NoHandshake, text)] if text.starts_with(expected)),
        "{problems:?}"
    );
}

#[test]
fn a_peer_without_associations_is_a_problem_where_the_reason_is_known() {
    let problems = of_peers(vec![
        with_associations(IpsecPeerState::Installed, None),
        with_associations(IpsecPeerState::Established, Some("no ESP")),
        with_associations(IpsecPeerState::Connecting, None),
    ]);
    let text =
        "peer n9 10.244.9.0/24 has no IPsec associations, so packets to it are dropped: no ESP";
    assert_eq!(problems, [(ProblemCode::NoAssociations, text.to_owned())]);
}

#[test]
fn a_list_that_is_cut_says_how_much_is_missing_and_counts_it() {
    let rejected = RejectedStatus {
        key: "10.244.9.0-24".to_owned(),
        reason: "its MAC is ours".to_owned(),
        claim: None,
    };
    let mut status = Status {
        rejected: vec![rejected],
        rejected_total: 100_000,
        ..bare()
    };
    status.peers = vec![with_echo(EchoState::Silent); LISTED + 7];
    status.find_problems(NOW);
    let lines: Vec<_> = status.problems.iter().map(Problem::line).collect();
    assert_eq!(
        lines[..2],
        [
            "refused lease: its MAC is ours",
            "99999 more refused leases, 100000 in all"
        ]
    );
    assert_eq!(
        lines.last().map(String::as_str),
        Some("7 more peers without an answer, 107 in all")
    );
    assert_eq!(
        status.problem_counts().as_deref(),
        Some("100000 refused leases, 107 peers without an answer")
    );
}

#[test]
fn a_problem_keeps_its_beginning_until_it_ends() {
    let since = |status: &Status| {
        status
            .problems
            .iter()
            .map(|problem| problem.since)
            .collect::<Vec<_>>()
    };
    let mut status = Status {
        lease_problem: Some("no subnet is left".to_owned()),
        ..bare()
    };
    status.update_problems(10);
    assert_eq!(since(&status), [Some(10)]);
    status.lease_problem = Some("the store is read only".to_owned());
    status.update_problems(20);
    assert_eq!(since(&status), [Some(10)], "the same kind goes on");
    status.peers = vec![
        with_echo(EchoState::Silent),
        with_handshake(PeerState::Unanswered),
    ];
    status.find_problems(30);
    assert_eq!(
        since(&status),
        [Some(10), Some(NOW - 66), None],
        "a peer's own time, if there is one"
    );
    status.lease_problem = None;
    status.update_problems(40);
    status.lease_problem = Some("again".to_owned());
    status.update_problems(50);
    assert_eq!(since(&status)[0], Some(50));
}

#[test]
fn the_store_has_its_own_beginning_and_everything_critical_comes_first() {
    let store = StoreStatus {
        endpoints: Vec::new(),
        in_sync: false,
        reason: Some("no route".to_owned()),
        since: Some(7),
        last_change: None,
    };
    let mut status = Status {
        store: Some(store),
        dirty_total: 3,
        ..bare()
    };
    status.update_problems(NOW);
    assert_eq!(
        (status.problems[0].code, status.problems[0].since),
        (ProblemCode::Store, Some(7))
    );
    let severities: Vec<_> = status
        .problems
        .iter()
        .map(|problem| problem.severity)
        .collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning]);
    assert_eq!(
        status.problem_counts().as_deref(),
        Some("the store is out of reach, 3 entries refused by the kernel")
    );
}

#[test]
fn names_are_those_of_the_document_and_each_code_is_listed_once() {
    let in_document = |value: serde_json::Value| value.as_str().map(str::to_owned).expect("a word");
    for code in ProblemCode::ALL {
        assert_eq!(
            in_document(serde_json::to_value(code).expect("JSON")),
            code.name()
        );
        let severity = code.severity();
        assert_eq!(
            in_document(serde_json::to_value(severity).expect("JSON")),
            severity.name()
        );
    }
    // The last variant has the highest number: none is missing.
    let codes: std::collections::BTreeSet<_> = ProblemCode::ALL.into_iter().collect();
    assert_eq!(
        (codes.len(), codes.last()),
        (
            ProblemCode::LoweredMode as usize + 1,
            Some(&ProblemCode::LoweredMode)
        )
    );
}

#[test]
fn every_code_is_explained_on_the_page() {
    let page = include_str!("../../../../docs/reference/problems.md");
    for code in ProblemCode::ALL {
        let (name, severity) = (code.name(), code.severity().name());
        let row = format!("\n| <a id=\"{name}\"></a>`{name}` | {severity} | ");
        assert!(
            page.contains(&row),
            "docs/reference/problems.md lacks {row}"
        );
        let event = code
            .event()
            .map(|reason| format!("\n| `{name}` | `{reason}` |\n"));
        assert!(
            event.is_none_or(|event| page.contains(&event)),
            "docs/reference/problems.md lacks its Event"
        );
    }
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| <a id=") && line.contains("` | "));
    let codes = rows.filter(|line| {
        Severity::ALL
            .iter()
            .any(|severity| line.contains(&format!("` | {} | ", severity.name())))
    });
    assert_eq!(
        codes.count(),
        ProblemCode::ALL.len(),
        "a row of a code that is gone"
    );
}

#[test]
fn a_kind_of_a_later_version_is_read_and_keeps_its_severity() {
    let later = r#"{"code":"of_later","severity":"critical","subject":null,"text":"a","remedy":null,"since":null,"count":1}"#;
    let problem: Problem = serde_json::from_str(later).expect("a problem");
    assert_eq!(
        (problem.code, problem.severity),
        (ProblemCode::Unknown, Severity::Critical)
    );
}
