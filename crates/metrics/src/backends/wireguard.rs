//! Metrics of the WireGuard peers.

use std::collections::BTreeMap;

use flannel_status::PeerState;

use crate::{
    catalogue as metric,
    page::{Page, length},
};

/// Writes how many peers are in each state; nothing if there are none.
pub(crate) fn write(page: &mut Page, states: &BTreeMap<PeerState, usize>) {
    if !states.is_empty() {
        let count = |state| length(states.get(&state).copied().unwrap_or(0));
        page.list(
            metric::WIREGUARD_PEERS,
            PeerState::ALL.map(|state| ([state.name()], count(state))),
        );
    }
}
