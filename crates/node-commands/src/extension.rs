//! The commands of the backend extension as `status` prints them. Pure.

use flannel_host::words::count;
use flannel_status::ExtensionStatus;

/// For how many peers commands succeeded.
pub(crate) fn summary(status: &ExtensionStatus) -> String {
    let ExtensionStatus {
        added,
        waiting,
        failing,
        ..
    } = status;
    let part = |number: &u64, state: &str| {
        if *number > 0 {
            format!(", {number} {state}")
        } else {
            String::new()
        }
    };
    format!(
        "done for {}{}{}",
        count(*added, "peer", "peers"),
        part(waiting, "waiting"),
        part(failing, "failing")
    )
}

#[cfg(test)]
mod tests {
    use flannel_status::FailingCommand;

    use super::*;

    #[test]
    fn the_summary_counts_peers() {
        let failing = FailingCommand {
            peer: "node-9".to_owned(),
            error: "SubnetAddCommand failed".to_owned(),
            attempts: 2,
        };
        let status = ExtensionStatus {
            added: 1,
            failing: 1,
            failures: vec![failing],
            ..ExtensionStatus::default()
        };
        assert_eq!(summary(&status), "done for 1 peer, 1 failing");
    }
}
