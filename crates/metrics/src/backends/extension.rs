//! Metrics of the commands of the backend extension.

use flannel_status::ExtensionStatus;

use crate::{
    catalogue as metric,
    page::{Page, number},
};

/// Writes for how many peers commands succeeded; nothing with another backend.
pub(crate) fn write(page: &mut Page, status: Option<&ExtensionStatus>) {
    if let Some(&ExtensionStatus {
        added,
        waiting,
        failing,
        ..
    }) = status
    {
        let states = [("added", added), ("waiting", waiting), ("failing", failing)];
        page.list(
            metric::EXTENSION_PEERS,
            states.map(|(state, peers)| ([state], number(peers))),
        );
    }
}
