//! The commands of the backend extension as `status` prints them. Pure.

use flannel_status::{ExtensionStatus, FailingCommand};

use super::count;

/// For how many peers commands succeeded.
pub(super) fn summary(status: &ExtensionStatus) -> String {
    let ExtensionStatus { added, waiting, failing, .. } = status;
    let part = |number: &u64, state: &str| if *number > 0 { format!(", {number} {state}") } else { String::new() };
    format!("done for {}{}{}", count(*added, "peer", "peers"), part(waiting, "waiting"), part(failing, "failing"))
}

/// A line for each command that failed, and how many there are altogether.
pub(super) fn problems(status: &ExtensionStatus) -> impl Iterator<Item = String> {
    status.failures.iter().map(|failing| {
        let FailingCommand { peer, error, attempts } = failing;
        format!("commands for peer {peer} ({}): {error}", count(*attempts, "try", "tries"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_failed_is_a_problem() {
        let failing =
            FailingCommand { peer: "node-9".to_owned(), error: "SubnetAddCommand failed".to_owned(), attempts: 2 };
        let status = ExtensionStatus { added: 1, waiting: 0, failing: 1, failures: vec![failing] };
        assert_eq!(summary(&status), "done for 1 peer, 1 failing");
        let lines: Vec<_> = problems(&status).collect();
        assert_eq!(lines, ["commands for peer node-9 (2 tries): SubnetAddCommand failed"]);
    }
}
