//! The end: what remains of an agent that was removed.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Cluster, page::Page};
use crate::{agent::snapshot::Snapshot, eventually};

/// Removes pods and agents the way an operator does and compares node c with what it was before.
pub(super) fn all(page: &mut Page, cluster: Cluster) -> Result<()> {
    for pod in cluster.pods {
        pod.remove()?;
    }
    for node in cluster.net.nodes() {
        node.sh("ip link delete cni0")?;
    }
    for agent in &cluster.agents {
        agent.sigterm_and_wait()?;
    }
    page.line("every agent ended on SIGTERM with status 0; flannel-agent cleanup on each node");
    for agent in &cluster.agents {
        agent.cli(&["cleanup"])?;
    }
    let left = eventually("a clean node", Duration::from_secs(3), || {
        let changes = cluster.before.changes(&Snapshot::of(&cluster.net.c)?);
        ensure!(changes.is_empty(), "changes on c:\n{changes}");
        Ok(())
    });
    match left {
        Ok(()) => page.line(
            "links, addresses, routes, neighbours, firewall, programs and pins of c are as before",
        ),
        Err(left) => page.expect(false, &format!("{left:#}")),
    }
    Ok(())
}
