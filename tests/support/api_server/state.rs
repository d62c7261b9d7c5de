//! The server's data (Nodes and their history) and its faults on demand.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::merge;

/// Requests that are left without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unanswered {
    #[default]
    None,
    /// Patches, after they were applied.
    Patches,
    /// All, and watches get no changes.
    All,
}

/// Nodes, history and faults.
#[derive(Default)]
pub(crate) struct State {
    pub(super) nodes: BTreeMap<String, Value>,
    /// The text of Nodes that were listed, for the next list.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) pods: BTreeMap<String, Value>,
    /// Objects that cannot be listed or watched: `pods` are forbidden, for `nodes` the server is
    /// unavailable.
    pub(super) refused: Option<&'static str>,
    pub(crate) version: u64,
    /// Changes with the version each made. A bookmark has the version it reports.
    pub(super) history: Vec<(u64, Value)>,
    /// Versions below are compacted away.
    pub(super) compacted: u64,
    pub(super) token: Option<String>,
    pub(super) unanswered: Unanswered,
    /// Says 410 inside the stream instead of before it, as servers with a watch cache do.
    pub(super) late_gone: bool,
    /// Counts broken streams; a watch ends when it changes.
    pub(super) breaks: u64,
    /// Counts ended streams, likewise.
    pub(super) ends: u64,
    /// Raw data sent on all watches in addition to the changes.
    pub(super) noise: Vec<Bytes>,
    /// Requests with this text are answered without an end.
    pub(super) endless: Option<&'static str>,
    /// Bytes of such an answer that were taken, at most.
    pub(crate) taken: usize,
    /// Says everything a few bytes at a time.
    pub(super) trickles: bool,
    /// Everything asked, and when: method, path and query.
    pub(crate) requests: Vec<(Instant, String)>,
    /// Nodes that lists had the server read from its store.
    pub(crate) read_from_store: usize,
    /// Every `User-Agent` seen; empty for a request without one.
    pub(crate) user_agents: BTreeSet<String>,
    /// Events by name.
    pub(crate) events: BTreeMap<String, Value>,
    /// Bodies of patches.
    pub(crate) patches: Vec<Value>,
}

impl State {
    /// Gives an endless answer to further requests whose URI contains this text.
    pub(crate) fn flood(&mut self, requests: Option<&'static str>) {
        self.endless = requests;
    }

    /// Writes a node, as a change.
    pub(crate) fn put(&mut self, mut node: Value) {
        self.version += 1;
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
        let name = node["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        self.texts.remove(&name);
        let known = self.nodes.insert(name, node.clone()).is_some();
        let kind = if known { "MODIFIED" } else { "ADDED" };
        self.history
            .push((self.version, json!({ "type": kind, "object": node })));
    }

    /// Removes a node, as a change.
    pub(crate) fn remove(&mut self, name: &str) {
        self.texts.remove(name);
        let Some(mut node) = self.nodes.remove(name) else {
            return;
        };
        self.version += 1;
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.history
            .push((self.version, json!({ "type": "DELETED", "object": node })));
    }

    /// Merges a JSON merge patch, in which null removes.
    pub(crate) fn edit(&mut self, name: &str, patch: &Value) {
        let mut node = self.node(name);
        merge::merge_patch(&mut node, patch);
        self.put(node);
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.nodes.get(name).cloned().unwrap_or_default()
    }

    /// The Nodes of these names as a list has them.
    pub(super) fn texts_of(&mut self, names: &[String]) -> String {
        for name in names {
            self.texts
                .entry(name.clone())
                .or_insert_with(|| self.nodes[name].to_string());
        }
        let texts: Vec<&str> = names.iter().map(|name| self.texts[name].as_str()).collect();
        texts.join(",")
    }

    /// Sends a bookmark with the current version on all watches.
    pub(crate) fn bookmark(&mut self) {
        let meta =
            json!({ "resourceVersion": self.version.to_string(), "creationTimestamp": null });
        let object = json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta });
        self.history.push((
            self.version,
            json!({ "type": "BOOKMARK", "object": object }),
        ));
    }

    /// Forgets all history.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Forgets all history, and what it took.
    pub(crate) fn forget(&mut self) {
        self.compacted = self.version;
        self.history = Vec::new();
    }

    /// Ends all watches in good order, once they have sent all pending changes.
    pub(crate) fn end_watches(&mut self) {
        self.ends += 1;
    }

    /// Forgets all history, and ends all watches in good order once they have sent all pending
    /// changes.
    pub(crate) fn compact_and_end(&mut self) {
        self.compacted = self.version;
        self.ends += 1;
    }

    /// Lets the version be an older one, as after a restored backup. Watches are broken.
    pub(crate) fn go_back(&mut self, version: u64) {
        (self.version, self.breaks) = (version, self.breaks + 1);
        self.history.clear();
    }

    /// Ends all watches, in the middle of a line.
    pub(crate) fn break_streams(&mut self) {
        self.breaks += 1;
    }

    /// Says something on all watches, whatever it is.
    pub(crate) fn say(&mut self, noise: &[u8]) {
        self.noise.push(Bytes::copy_from_slice(noise));
    }

    pub(crate) fn trickle(&mut self) {
        self.trickles = true;
    }

    pub(crate) fn require(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    pub(crate) fn hang(&mut self, hangs: bool) {
        self.unanswered = if hangs {
            Unanswered::All
        } else {
            Unanswered::None
        };
    }

    pub(crate) fn say_gone_late(&mut self) {
        self.late_gone = true;
    }

    /// Breaks all watches, and has no answer for lists and watches of Nodes while it is
    /// unavailable. Patches are served.
    pub(crate) fn lose_nodes(&mut self) {
        self.refused = Some("nodes");
        self.break_streams();
    }

    pub(crate) fn serve_nodes(&mut self) {
        self.refused = None;
    }

    /// Applies patches and leaves them without an answer.
    pub(crate) fn swallow_answers(&mut self, swallows: bool) {
        self.unanswered = if swallows {
            Unanswered::Patches
        } else {
            Unanswered::None
        };
    }

    /// The values of the `NetworkUnavailable` condition that were written, in order.
    pub(crate) fn written_conditions(&self) -> Vec<String> {
        let conditions = self
            .patches
            .iter()
            .filter_map(|patch| patch["status"]["conditions"].as_array());
        let ours = conditions
            .flatten()
            .filter(|condition| condition["type"] == "NetworkUnavailable");
        ours.filter_map(|condition| condition["status"].as_str())
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn refuse_events(&mut self, refuse: bool) {
        self.refused = refuse.then_some("events");
    }

    pub(crate) fn refuse_pods(&mut self, refuses: bool) {
        self.refused = refuses.then_some("pods");
    }

    /// Writes a Pod of the namespace `default`, as a change.
    pub(crate) fn put_local_pod(
        &mut self,
        name: &str,
        node: &str,
        annotations: &Value,
        addresses: &[&str],
    ) {
        self.version += 1;
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({ "ip": address }))
            .collect();
        let meta = json!({
            "namespace": "default",
            "name": name,
            "resourceVersion": self.version.to_string(),
            "annotations": annotations,
        });
        let status = json!({ "phase": "Running", "podIPs": addresses });
        let pod = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": { "nodeName": node },
            "status": status,
        });
        let known = self
            .pods
            .insert(format!("default/{name}"), pod.clone())
            .is_some();
        let kind = if known { "MODIFIED" } else { "ADDED" };
        self.history
            .push((self.version, json!({ "type": kind, "object": pod })));
    }

    /// Removes one, as a change.
    pub(crate) fn remove_local_pod(&mut self, name: &str) {
        let Some(mut pod) = self.pods.remove(&format!("default/{name}")) else {
            return;
        };
        self.version += 1;
        pod["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.history
            .push((self.version, json!({ "type": "DELETED", "object": pod })));
    }

    pub(crate) fn put_pod(&mut self, path: &str, node: &str) {
        self.pods.insert(
            path.to_owned(),
            json!({ "kind": "Pod", "metadata": {}, "spec": { "nodeName": node } }),
        );
    }
}
