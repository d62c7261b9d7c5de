//! The requests we make, and the few paths they go to. What RBAC has to grant stands here.

use http::Request;
use kube::core::{
    params::{GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
    request::{Error, Request as Resource},
};
use serde_json::Value;

/// Nodes on one page: about 1.6 MB of text at a time.
const PAGE: u32 = 100;
/// Seconds until the server ends a watch; it is taken up again at once. A restarted server gets its
/// share back.
const WATCH: std::ops::Range<u32> = 240..300;

/// A request, or why there is none.
pub(super) type Built = Result<Request<Vec<u8>>, Error>;

fn nodes() -> Resource {
    Resource::new("/api/v1/nodes")
}

/// One Node. `nodes: get`.
pub(super) fn get_node(name: &str) -> Built {
    nodes().get(name, &GetParams::default())
}

/// One page of all Nodes, or of the one of this name; from the start or where the last ended.
/// `nodes: list`.
pub(super) fn list_nodes(only: Option<&str>, next: &str) -> Built {
    let mut page = ListParams::default().limit(PAGE);
    if let Some(name) = only {
        page = page.fields(&by_name(name));
    }
    nodes().list(&if next.is_empty() { page } else { page.continue_token(next) })
}

/// Changes after a version, of all Nodes or of the one of this name. `nodes: watch`.
pub(super) fn watch_nodes(only: Option<&str>, version: &str) -> Built {
    let mut watch = WatchParams::default().timeout(rand::random_range(WATCH));
    if let Some(name) = only {
        watch = watch.fields(&by_name(name));
    }
    nodes().watch(&watch, version)
}

fn by_name(name: &str) -> String {
    format!("metadata.name={name}")
}

/// Changes annotations or conditions. `nodes/status: patch`.
pub(super) fn patch_status(name: &str, patch: &Value) -> Built {
    nodes().patch_subresource("status", name, &PatchParams::default(), &Patch::Strategic(patch))
}

/// A new Event. `events: create`.
pub(super) fn create_event(event: &Value) -> Built {
    let body = serde_json::to_vec(event).map_err(Error::SerializeBody)?;
    Resource::new("/api/v1/namespaces/default/events").create(&PostParams::default(), body)
}

/// The Pods of a node, as the server remembers them: it has them by node, where it would search all
/// Pods for the newest. `pods: list`.
pub(super) fn list_pods(node: &str) -> Built {
    pods().list(&ListParams::default().match_any().fields(&on_node(node)))
}

/// Changes of the Pods of a node after a version. `pods: watch`.
pub(super) fn watch_pods(node: &str, version: &str) -> Built {
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
pub(super) fn get_pod(namespace: &str, name: &str) -> Built {
    Resource::new(format!("/api/v1/namespaces/{namespace}/pods")).get(name, &GetParams::default())
}
