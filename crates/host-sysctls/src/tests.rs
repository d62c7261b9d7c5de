use std::fs;

use super::{need::Rule, *};

/// A need that this process cannot have met: the name is of a sysctl that cannot be set.
fn need(scope: Scope) -> Need {
    let (name, effect) = (
        "kernel.ngroups_max".to_owned(),
        "pods are cut off".to_owned(),
    );
    Need {
        name,
        value: 1,
        rule: Rule::Exact,
        effect,
        is_vital: true,
        scope,
    }
}

fn sysctls(record: Result<SharedRecord, String>, may_forward: bool) -> HostSysctls {
    HostSysctls::new(record, may_forward)
}

fn look(sysctls: &mut HostSysctls, need: &Need) -> Vec<SysctlProblem> {
    let mut problems = Vec::new();
    assert!(!sysctls.look_at(need, &mut problems), "it cannot be set");
    problems
}

#[test]
fn what_is_not_set_is_a_problem_with_name_effect_reason_and_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let (record, _) = SharedRecord::load_or_repair(dir.path()).expect("none yet");
    let host = Scope::Host(Family::V4);
    let cases = [
        (
            sysctls(Ok(record.clone()), true),
            host,
            "The agent cannot set kernel.ngroups_max to 1",
        ),
        (
            sysctls(Ok(record.clone()), false),
            host,
            "--set-forwarding=false",
        ),
        (
            sysctls(Ok(record.clone()), true),
            Scope::OtherDevice,
            "changes no setting of that device",
        ),
        (
            sysctls(Err("a line of another format".to_owned()), true),
            Scope::OwnDevice,
            "a line of another format",
        ),
    ];
    for (mut sysctls, scope, reason) in cases {
        let problems = look(&mut sysctls, &need(scope));
        let text = &problems.first().expect("a problem").text;
        for part in [
            "kernel.ngroups_max is ",
            ": pods are cut off. ",
            reason,
            "; sysctl -w kernel.ngroups_max=1",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert_eq!(
        fs::read_dir(dir.path()).expect("the directory").count(),
        0,
        "a record of nothing"
    );
}

#[test]
fn what_pods_do_without_is_not_a_problem() {
    let dir = tempfile::tempdir().expect("a directory");
    let (record, _) = SharedRecord::load_or_repair(dir.path()).expect("none yet");
    let optional = Need {
        is_vital: false,
        ..need(Scope::OwnDevice)
    };
    assert_eq!(look(&mut sysctls(Ok(record), true), &optional), []);
}

#[test]
fn a_sysctl_of_a_device_that_is_gone_is_not_a_problem() {
    let gone = || "no-such-device".to_owned();
    let gone = Devices {
        family: Family::V4,
        tunnel: Some(gone()),
        external: gone(),
        other_way: Some(gone()),
        is_encrypted: true,
        bridges: vec![gone()],
    };
    let mut sysctls = sysctls(Err("not to be written".to_owned()), false);
    sysctls.look(&[gone]);
    assert!(
        sysctls
            .problems()
            .iter()
            .all(|problem| !problem.sysctl.contains("no-such-device"))
    );
}
