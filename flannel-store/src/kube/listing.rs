//! The Nodes at one version, page by page. A page is turned into entries before the next one is
//! asked for.

use std::sync::Arc;

use super::{
    KubeManager,
    entry::{Families, entry_of},
    error::KubeError,
    position::Position,
    record::NodePage,
    requests::list_nodes,
    source::KubeSource,
};
use crate::watcher::Listing;

/// Listings that may be overtaken by compaction before we report it.
const TRIES: u32 = 3;

/// The Nodes that concern us.
pub(super) struct Scope {
    /// The name of our Node.
    pub(super) own: String,
    /// True if the Nodes of others are included. A backend that sends to no peers needs its own
    /// Node alone.
    pub(super) peers: bool,
    /// The families read of them.
    pub(super) families: Families,
}

impl Scope {
    /// The one Node to ask for; `None` for all.
    pub(super) fn only(&self) -> Option<&str> {
        (!self.peers).then_some(&self.own)
    }
}

/// Lists the Nodes that concern us.
pub(super) async fn list(manager: &mut KubeManager, scope: &Scope) -> Result<Listing<KubeSource>, KubeError> {
    for _ in 1..TRIES {
        match list_once(manager, scope).await {
            Err(error) if error.is_outdated() => {}
            result => return result,
        }
    }
    list_once(manager, scope).await
}

async fn list_once(manager: &mut KubeManager, scope: &Scope) -> Result<Listing<KubeSource>, KubeError> {
    let prefix = manager.client.options().prefix.clone();
    let (mut entries, mut own, mut next, mut text) = (Vec::new(), None, String::new(), Vec::new());
    loop {
        let request = list_nodes(scope.only(), &next);
        let page: NodePage = manager.client.call_with("listing the nodes", request, &mut text).await?;
        for node in page.items {
            if node.name == scope.own {
                own = Some(node);
            } else {
                entries.extend(entry_of(&node, &prefix, scope.families).map(Arc::new));
            }
        }
        next = page.metadata.next;
        if next.is_empty() {
            let position = Position::new(page.metadata.resource_version);
            return Ok(Listing { entries, own, position });
        }
    }
}
