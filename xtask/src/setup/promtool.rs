//! promtool, Prometheus' own checker of metrics, alerts and expressions, from Debian's package
//! `prometheus`.
//!
//! Unpacked, because installing the package would start a service. Wanted, not needed: without it
//! the tests that call it print `NOT RUN`, and a failure ends no set-up.

use anyhow::ensure;

use super::{apt::Apt, steps::Steps};
use crate::workspace::Workspace;

/// Sees to it, unless it is there.
pub(super) fn ensure(workspace: &Workspace, apt: &Apt<'_>) -> anyhow::Result<()> {
    if workspace.find_command("promtool").is_some() {
        return Ok(());
    }
    ensure!(
        workspace.find_command("apt-get").is_some(),
        "there is no apt on this system"
    );
    let what = format!(
        "unpack promtool (prometheus) into {}",
        workspace.tools().display()
    );
    Steps::new("set-up", 1).run(&what, || apt.unpack(&["prometheus"], &workspace.tools()))
}
