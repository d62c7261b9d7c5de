//! The problems that a running agent reports.

use std::io;

use flannel_status::{Problem, ProblemCode, Severity, Status};

use super::{
    code::{FindingCode, HostCode},
    finding::{Finding, Level},
};

const TOPIC: &str = "agent";

/// Returns the agent's problems, from its answer.
pub(super) fn look(answer: &io::Result<Status>) -> Vec<Finding> {
    match answer {
        Ok(status) => problems(status),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            vec![Finding::ok(
                TOPIC,
                "no agent runs with this state directory",
            )]
        }
        Err(error) => vec![Finding::warn(
            HostCode::AgentSilent,
            format!("the agent does not answer: {error}"),
            "the findings of this check hold nevertheless; for the agent's own problems run it as \
             root, and restart an \
             agent that hangs",
        )],
    }
}

fn problems(status: &Status) -> Vec<Finding> {
    let findings: Vec<_> = status
        .problems
        .iter()
        .filter(|problem| !is_looked_at(problem.code))
        .map(finding)
        .collect();
    match (findings.is_empty(), status.ready) {
        (true, true) => vec![Finding::ok(TOPIC, "the running agent reports no problem")],
        (true, false) => vec![Finding::ok(
            TOPIC,
            format!("the running agent is {}", status.stage),
        )],
        (false, _) => findings,
    }
}

/// This check finds these by itself, also without an agent.
const fn is_looked_at(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::HostSysctl | ProblemCode::AddressInPods | ProblemCode::ForwardDropped
    )
}

fn finding(problem: &Problem) -> Finding {
    let level = match problem.severity {
        Severity::Critical => Level::Fail,
        Severity::Warning | Severity::Notice => Level::Warn,
    };
    let code = Some(FindingCode::Problem(problem.code));
    Finding {
        topic: TOPIC,
        code,
        level,
        text: problem.text.clone(),
        remedy: problem.remedy.clone(),
    }
}

#[cfg(test)]
mod tests {
    use flannel_status::ModeStatus;

    use super::*;

    fn status(error: Option<&str>) -> Status {
        let mode = ModeStatus {
            effective: "encap".to_owned(),
            wanted: "encap".to_owned(),
            ..ModeStatus::default()
        };
        let error = error.map(str::to_owned);
        let mut status = Status {
            pid: Some(1),
            ready: true,
            error,
            ..Status::without_agent("running", mode)
        };
        status.find_problems(0);
        status
    }

    #[test]
    fn the_agents_problems_are_findings_with_their_codes() {
        let found = look(&Ok(status(Some("the link is gone"))));
        let [
            Finding {
                topic: "agent",
                code: Some(code),
                level: Level::Fail,
                ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}");
        };
        assert_eq!(serde_json::to_value(code).expect("JSON"), "start_waits");
        assert_eq!(look(&Ok(status(None)))[0].level, Level::Ok);
    }

    #[test]
    fn an_agent_that_hangs_is_a_warning_and_one_that_is_not_there_is_none() {
        let level = |kind: io::ErrorKind| look(&Err(kind.into()))[0].level;
        assert_eq!(level(io::ErrorKind::TimedOut), Level::Warn);
        assert_eq!(level(io::ErrorKind::PermissionDenied), Level::Warn);
        assert_eq!(
            [
                level(io::ErrorKind::NotFound),
                level(io::ErrorKind::ConnectionRefused)
            ],
            [Level::Ok; 2]
        );
    }
}
