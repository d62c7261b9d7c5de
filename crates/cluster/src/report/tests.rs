//! Reports on nodes from answers.

use flannel_status::{LeaseStatus, ModeStatus, ProblemCode, RejectedStatus};
use serde_json::json;

use super::*;
use crate::{compare::ClusterProblemCode, error::ExecError};

fn member(with_pod: bool, network_unavailable: &str) -> ClusterNode {
    let node = json!({
        "metadata": { "name": "n1", "annotations": {
            "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
            "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        } },
        "spec": { "podCIDR": "10.244.1.0/24" },
        "status": { "conditions": [
            { "type": "NetworkUnavailable", "status": network_unavailable, "message": "no tunnel" },
        ] },
    });
    let pod = json!({ "metadata": { "name": "p" }, "status": { "phase": "Running" } });
    ClusterNode {
        node: serde_json::from_value(node).expect("a node"),
        pod: with_pod.then(|| serde_json::from_value(pod).expect("a pod")),
    }
}

fn status() -> Status {
    let mode = ModeStatus {
        effective: "kernel".to_owned(),
        wanted: "fast".to_owned(),
        reason: Some("no BPF".to_owned()),
        ..ModeStatus::default()
    };
    let lease = LeaseStatus {
        subnet: "10.244.1.0/24".to_owned(),
        public_ip: "192.0.2.1".to_owned(),
        held: true,
        assigned: true,
        ..LeaseStatus::default()
    };
    let rejected = RejectedStatus {
        key: "n2".to_owned(),
        reason: "its MAC is ours".to_owned(),
        claim: None,
    };
    let mut status = Status {
        pid: Some(1),
        ready: true,
        lease: Some(lease),
        drops: Some(7),
        rejected: vec![rejected],
        rejected_total: 2,
        ..Status::without_agent("running", mode)
    };
    status.find_problems(0);
    status
}

#[test]
fn a_lower_mode_is_a_problem_of_a_node_that_is_ready() {
    let report = judge(&member(true, "False"), "kube-flannel", Some(Ok(status())));
    assert!(
        report.ready == Some(true) && report.served_by == ServedBy::FlannelAgent,
        "{report:?}"
    );
    let expected = [
        "refused lease: its MAC is ours (one of 2)",
        "mode kernel instead of fast: no BPF",
    ];
    assert_eq!(report.problems, expected);
    assert_eq!((report.refused_leases, report.drops), (Some(2), Some(7)));
    assert_eq!(report.subnets, ["10.244.1.0/24"]);
    assert_eq!(report.public_addresses, ["192.0.2.1"]);
}

#[test]
fn a_pod_without_our_program_is_stock_flannel() {
    let lacking = || {
        let message = "exec: \"flannel-agent\": executable file not found in $PATH".to_owned();
        Some(Err(Silence::Exec(ExecError::NotStarted {
            pod: "p".to_owned(),
            message,
        })))
    };
    let report = judge(&member(true, "False"), "kube-flannel", lacking());
    assert!(
        report.ready == Some(true) && report.problems.is_empty(),
        "{report:?}"
    );
    assert_eq!(report.served_by, ServedBy::StockFlannel);
    let report = judge(&member(true, "True"), "kube-flannel", lacking());
    assert!(report.ready == Some(false), "{report:?}");
    assert_eq!(report.problems, ["NetworkUnavailable: no tunnel"]);
}

#[test]
fn a_node_that_cannot_be_asked_is_unknown_and_one_without_flannel_is_not_ready() {
    let broken = Some(Err(Silence::Exec(ExecError::Broken {
        pod: "p".to_owned(),
    })));
    let report = judge(&member(true, "False"), "kube-flannel", broken);
    assert!(
        report.ready.is_none() && report.served_by == ServedBy::Unknown,
        "{report:?}"
    );
    assert!(
        report.problems[0].starts_with("cannot be asked: "),
        "{report:?}"
    );
    // Its annotations are those of flannel: a service of the host may serve it.
    let mut member = member(false, "False");
    let report = judge(&member, "kube-flannel", None);
    assert!(
        report.ready.is_none() && report.served_by == ServedBy::Unknown,
        "{report:?}"
    );
    assert_eq!(
        report.problems,
        ["no pod of flannel in namespace kube-flannel"]
    );
    member.node.metadata.annotations.clear();
    let report = judge(&member, "kube-flannel", None);
    assert_eq!(
        (report.ready, report.served_by),
        (Some(false), ServedBy::None)
    );
}

#[test]
fn a_cluster_is_ready_if_all_of_it_is_known_to_be() {
    let node = |ready| {
        let broken = Some(Err(Silence::Exec(ExecError::Broken {
            pod: "p".to_owned(),
        })));
        NodeReport {
            ready,
            ..judge(&member(true, "False"), "kube-flannel", broken)
        }
    };
    let report = |nodes: &[Option<bool>], problems| {
        ClusterReport::new(nodes.iter().copied().map(node).collect(), problems)
    };
    let ready = |nodes: &[Option<bool>]| report(nodes, Vec::new()).ready;
    assert_eq!(ready(&[Some(true), Some(true)]), Some(true));
    assert_eq!(ready(&[Some(true), None]), None);
    assert_eq!(ready(&[None, Some(false)]), Some(false));
    assert_eq!(ready(&[]), Some(false));
    let problem = |severity| {
        let (code, text) = (ClusterProblemCode::MtuDiffers, String::new());
        vec![ClusterProblem {
            code,
            severity,
            nodes: Vec::new(),
            text,
        }]
    };
    assert_eq!(
        report(&[Some(true)], problem(Severity::Warning)).ready,
        Some(false)
    );
    assert_eq!(
        report(&[Some(true)], problem(Severity::Notice)).ready,
        Some(true)
    );
}

#[test]
fn the_codes_of_problems_are_words() {
    let codes = [
        NodeProblemCode::NoAnswer,
        NodeProblemCode::Status(ProblemCode::SilentPeer),
    ];
    assert_eq!(
        serde_json::to_value(codes).expect("JSON"),
        json!(["no_answer", "silent_peer"])
    );
}

#[test]
fn pods_that_a_daemon_set_does_not_replace_are_named_with_the_step_that_does() {
    let mut stock = member(true, "False");
    let pod = json!({
        "metadata": {
            "name": "p",
            "ownerReferences": [{ "kind": "DaemonSet", "name": "kube-flannel-ds" }],
        },
    });
    stock.pod = Some(serde_json::from_value(pod).expect("a pod"));
    let message = "exec: \"flannel-agent\": executable file not found in $PATH".to_owned();
    let lacking = ExecError::NotStarted {
        pod: "p".to_owned(),
        message,
    };
    let report = judge(&stock, "kube-flannel", Some(Err(Silence::Exec(lacking))));
    let problems = stock_pods(&[stock], &[report], "kube-flannel");
    let expected = "1 pod of DaemonSet kube-flannel-ds run stock flannel still (n1). If the \
        DaemonSet is the agent's by \
                    now: kubectl -n kube-flannel rollout restart daemonset/kube-flannel-ds";
    assert_eq!(
        problems
            .iter()
            .map(|problem| problem.text.as_str())
            .collect::<Vec<_>>(),
        [expected]
    );
    assert_eq!(
        ClusterReport::new(Vec::new(), problems).problems[0].severity,
        Severity::Notice
    );
}

#[test]
fn the_schema_is_that_of_the_types() {
    flannel_json_schema::check::<ClusterReport>(ClusterReport::NAME, ClusterReport::SCHEMA_VERSION);
}
