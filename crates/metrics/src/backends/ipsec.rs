//! Metrics of the tunnels of the backend ipsec.

use std::collections::BTreeMap;

use flannel_status::{IpsecPeerState, IpsecStatus};

use crate::{
    catalogue as metric,
    page::{Page, length, number},
};

/// Writes the process and how many peers are in each state; nothing with another backend.
pub(crate) fn write(
    page: &mut Page,
    status: Option<&IpsecStatus>,
    states: &BTreeMap<IpsecPeerState, usize>,
) {
    let Some(IpsecStatus { pid, starts, .. }) = status else {
        return;
    };
    page.boolean(metric::IPSEC_PROCESS, pid.is_some());
    page.value(metric::IPSEC_STARTS, number(*starts));
    let count = |state| length(states.get(&state).copied().unwrap_or(0));
    page.list(
        metric::IPSEC_PEERS,
        IpsecPeerState::ALL.map(|state| ([state.name()], count(state))),
    );
}
