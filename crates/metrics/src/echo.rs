//! Metrics of the echo requests to peers.

use flannel_echo::EchoCounts;
use flannel_status::EchoState;
use prometheus::core::Collector as _;

use super::{
    catalogue as metric,
    counts::Counts,
    page::{Page, length, number},
};

/// Writes the metrics of echo requests, if these are enabled.
pub(super) fn write(page: &mut Page, echoes: Option<EchoCounts>, counts: &Counts) {
    let Some(EchoCounts {
        states,
        requests,
        lost,
    }) = echoes
    else {
        return;
    };
    let peers = |state| length(states.get(&state).copied().unwrap_or(0));
    page.list(
        metric::ECHO_PEERS,
        EchoState::ALL.map(|state| ([state.name()], peers(state))),
    );
    page.value(metric::ECHO_REQUESTS, number(requests));
    page.value(metric::ECHO_LOST, number(lost));
    counts
        .echo_round_trips
        .collect()
        .into_iter()
        .for_each(|family| page.add(family));
}
