//! The requests we make, and the few paths they go to. What RBAC has to grant stands here.

use http::Request;
use kube::core::{
    params::{GetParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchParams},
    request::{Error, Request as Resource},
};
use serde_json::Value;

/// Nodes on one page, where the server reads them from etcd.
const PAGE: u32 = 100;
/// Seconds until the server ends a watch; it is taken up again at once. A restarted server gets its
/// share back.
const WATCH: std::ops::Range<u32> = 240..300;

/// A request, or why there is none.
pub(in crate::kube) type Built = Result<Request<Vec<u8>>, Error>;

fn nodes() -> Resource {
    Resource::new("/api/v1/nodes")
}

/// One Node. `nodes: get`.
pub(in crate::kube) fn get_node(name: &str) -> Built {
    nodes().get(name, &GetParams::default())
}

/// The state of the Nodes that a list is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kube) enum ListFrom {
    /// Any, so that the server answers from its watch cache. Up to Kubernetes 1.30 it reads all
    /// Nodes from etcd for any other list without a version.
    #[default]
    Cache,
    /// This version, or a later one; from the cache as well.
    NotOlderThan(String),
    /// The latest, from etcd, page by page.
    Store,
}

/// Nodes, all or the one of this name; from the start or where the last page ended. The server
/// ignores a limit where it answers from its cache. `nodes: list`.
///
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>
pub(in crate::kube) fn list_nodes(single_node: Option<&str>, from: &ListFrom, next: &str) -> Built {
    let mut list = match from {
        ListFrom::Cache => ListParams::default().match_any(),
        ListFrom::NotOlderThan(version) => ListParams::default()
            .at(version)
            .matching(VersionMatch::NotOlderThan),
        ListFrom::Store => ListParams::default().limit(PAGE),
    };
    if let Some(name) = single_node {
        list = list.fields(&by_name(name));
    }
    // A token of a next page has the version in it.
    nodes().list(&if next.is_empty() {
        list
    } else {
        ListParams {
            resource_version: None,
            version_match: None,
            ..list.continue_token(next)
        }
    })
}

/// Changes after a version, of all Nodes or of the one of this name. `nodes: watch`.
pub(in crate::kube) fn watch_nodes(single_node: Option<&str>, version: &str) -> Built {
    let mut watch = WatchParams::default().timeout(rand::random_range(WATCH));
    if let Some(name) = single_node {
        watch = watch.fields(&by_name(name));
    }
    nodes().watch(&watch, version)
}

fn by_name(name: &str) -> String {
    format!("metadata.name={name}")
}

/// Changes annotations or conditions, by a [strategic merge patch][patch]. `nodes/status: patch`.
///
/// [patch]:
/// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
pub(in crate::kube) fn patch_status(name: &str, patch: &Value) -> Built {
    nodes().patch_subresource(
        "status",
        name,
        &PatchParams::default(),
        &Patch::Strategic(patch),
    )
}

/// A new Event. `events: create`.
pub(in crate::kube) fn create_event(event: &Value) -> Built {
    let body = serde_json::to_vec(event).map_err(Error::SerializeBody)?;
    Resource::new("/api/v1/namespaces/default/events").create(&PostParams::default(), body)
}

/// The Pods of a node, as the server remembers them: it has them by node, where it would search all
/// Pods for the newest. `pods: list`.
pub(in crate::kube) fn list_pods(node: &str) -> Built {
    pods().list(&ListParams::default().match_any().fields(&on_node(node)))
}

/// Changes of the Pods of a node after a version. `pods: watch`.
pub(in crate::kube) fn watch_pods(node: &str, version: &str) -> Built {
    let watch = WatchParams::default().timeout(rand::random_range(WATCH));
    pods().watch(&watch.fields(&on_node(node)), version)
}

fn pods() -> Resource {
    Resource::new("/api/v1/pods")
}

fn on_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// One Pod. `pods: get`.
pub(in crate::kube) fn get_pod(namespace: &str, name: &str) -> Built {
    Resource::new(format!("/api/v1/namespaces/{namespace}/pods")).get(name, &GetParams::default())
}
