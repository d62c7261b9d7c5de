//! Commands about the datapath on a node without pinned maps. If an agent runs there without eBPF,
//! its status gives the reason.

use anyhow::anyhow;
use flannel_datapath::DatapathError;
use flannel_observe::socket::ask_status;
use flannel_status::Status;

use super::StateOptions;

/// Returns the status of the agent that runs without eBPF, if there is one and `error` says that
/// the pins are missing; the error otherwise.
pub async fn agent_without_bpf(
    error: DatapathError,
    state: &StateOptions,
) -> Result<Status, DatapathError> {
    if !matches!(
        error,
        DatapathError::NotPinned { .. } | DatapathError::OtherSchema { .. }
    ) {
        return Err(error);
    }
    match ask_status(&state.state_dir).await {
        Ok(status) if status.runs_without_bpf() => Ok(status),
        _ => Err(error),
    }
}

/// The error of a command that needs what is not pinned.
pub async fn explain(error: DatapathError, state: &StateOptions) -> anyhow::Error {
    match agent_without_bpf(error, state).await {
        Ok(status) => anyhow!(
            "the agent on this node runs without eBPF, so nothing is pinned: {}",
            reason(&status)
        ),
        Err(error) => error.into(),
    }
}

/// Returns the reason why the agent runs without eBPF, as the agent reports it.
pub fn reason(status: &Status) -> &str {
    status
        .mode
        .reason
        .as_deref()
        .unwrap_or("mode kernel was asked for, and `flannel-agent check` says what it lacks")
}
