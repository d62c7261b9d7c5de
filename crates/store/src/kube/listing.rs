//! The Nodes at one version. Each is turned into an entry while the rest of the list arrives.
//!
//! The server answers from its watch cache, which costs etcd nothing: the first list takes what the
//! cache has, later ones what is not older than what we know.

use std::sync::Arc;

use super::{
    entry::{Families, entry_of},
    error::KubeError,
    manager::KubeManager,
    position::Position,
    record::{NodePage, NodeRecord},
};
use crate::{
    Entry,
    kube::connection::requests::{ListFrom, list_nodes},
};

/// Listings that may be overtaken by compaction before we report it.
const TRIES: u32 = 3;

/// The Nodes that concern us.
pub(super) struct Scope {
    /// The name of our Node.
    pub(super) own: String,
    /// True if the Nodes of others are included. A backend that sends to no peers needs only its
    /// own Node.
    pub(super) peers: bool,
    /// The families read of them.
    pub(super) families: Families,
}

impl Scope {
    /// The one Node to ask for; `None` for all.
    pub(super) fn single_node(&self) -> Option<&str> {
        (!self.peers).then_some(&self.own)
    }
}

/// The result of a listing.
pub(super) struct NodeListing {
    /// The entries of other Nodes.
    pub(super) entries: Vec<Arc<Entry>>,
    /// Our Node; `None` if there is none of its name.
    pub(super) own: Option<NodeRecord>,
    /// The position from which changes to this listing continue.
    pub(super) position: Position,
}

/// Lists the Nodes that concern us.
pub(super) async fn list(
    manager: &mut KubeManager,
    scope: &Scope,
    from: &ListFrom,
) -> Result<NodeListing, KubeError> {
    for _ in 1..TRIES {
        match list_once(manager, scope, from).await {
            Err(error) if error.is_outdated() => {
                tracing::debug!("a list of the nodes was overtaken by compaction; listing again");
            }
            result => return result,
        }
    }
    list_once(manager, scope, from).await
}

async fn list_once(
    manager: &mut KubeManager,
    scope: &Scope,
    from: &ListFrom,
) -> Result<NodeListing, KubeError> {
    let prefix = manager.client.options().prefix.clone();
    let (mut entries, mut own, mut next) = (Vec::new(), None, String::new());
    loop {
        let take = |node: NodeRecord| {
            if node.name == scope.own {
                own = Some(node);
            } else {
                entries.extend(entry_of(&node, &prefix, scope.families).map(Arc::new));
            }
        };
        let request = list_nodes(scope.single_node(), from, &next);
        let page: NodePage = manager
            .client
            .list("listing the nodes", request, take)
            .await?;
        next = page.metadata.next;
        if next.is_empty() {
            let position = Position::new(page.metadata.resource_version);
            return Ok(NodeListing {
                entries,
                own,
                position,
            });
        }
    }
}
