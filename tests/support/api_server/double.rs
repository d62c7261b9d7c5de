//! An API server's part that flannel talks to, over real HTTP on loopback, with faults on demand.
//!
//! Serves what flannel's role allows and refuses the rest with 403, as RBAC would: pods get, list,
//! watch; nodes get, list, watch; nodes/status patch; events create. Lists have pages with tokens
//! that expire; watches have bookmarks and versions that expire.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use http_body_util::BodyExt as _;
use hyper::{
    Request, Response, body::Incoming, http::request::Parts, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::{Body, failure, ok, whole},
    merge,
    state::{State, Unanswered},
    stream::{self, Asked},
};

/// The server. Ends when dropped.
pub(crate) struct Double {
    port: u16,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

/// The state that all connections share.
pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    /// Counts changes of the state; watches wait for it.
    pub(super) changed: watch::Sender<u64>,
    up: watch::Sender<bool>,
}

impl Double {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0", None).await
    }

    /// By TLS.
    pub(crate) async fn start_tls(acceptor: TlsAcceptor) -> Self {
        Self::start_at("127.0.0.1:0", Some(acceptor)).await
    }

    /// At an address with its port, with or without TLS.
    pub(crate) async fn start_at(address: &str, acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = State {
            version: 1,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            up: watch::Sender::new(true),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&shared)));
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Changes the state and notifies the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.shared.lock());
        self.shared.changed.send_modify(|count| *count += 1);
        result
    }

    /// Breaks all connections, and new ones at once, until [`Self::rise`].
    pub(crate) fn fall(&self) {
        self.shared.up.send_replace(false);
    }

    pub(crate) fn rise(&self) {
        self.shared.up.send_replace(true);
    }

    /// Waits until something was asked, or asked again: `count` requests that contain `text`.
    pub(crate) async fn asked(&self, text: &str, count: usize) {
        let mut changed = self.shared.changed.subscribe();
        let done = changed.wait_for(|_| self.count(text) >= count);
        tokio::time::timeout(super::PATIENCE, done)
            .await
            .expect("asked in time")
            .expect("a running server");
    }

    /// Waits until these values of the `NetworkUnavailable` condition were written, and no others.
    pub(crate) async fn wrote_conditions(&self, wanted: &[&str]) {
        let mut changed = self.shared.changed.subscribe();
        let written = || self.shared.lock().written_conditions();
        let done = changed.wait_for(|_| written().len() >= wanted.len());
        let done = tokio::time::timeout(super::PATIENCE, done).await;
        assert_eq!(written(), wanted);
        done.expect("written in time").expect("a running server");
    }

    /// Waits for at least `wanted` Events. Returns all Events.
    pub(crate) async fn wrote_events(&self, wanted: usize) -> Vec<Value> {
        let mut changed = self.shared.changed.subscribe();
        let done = changed.wait_for(|_| self.shared.lock().events.len() >= wanted);
        tokio::time::timeout(super::PATIENCE, done)
            .await
            .expect("written in time")
            .expect("a running server");
        self.shared.lock().events.values().cloned().collect()
    }

    /// Returns the number of requests that contain `text`.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.shared
            .lock()
            .requests
            .iter()
            .filter(|(_, request)| request.contains(text))
            .count()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.accepting.abort();
        self.fall();
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, shared).await,
                // A client that refuses the certificate is not a failure of the double.
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let mut up = shared.up.subscribe();
    if !*up.borrow() {
        return;
    }
    let service = service_fn(|request| answer(Arc::clone(&shared), request));
    tokio::select! {
        // A client that goes away is not a failure of the double.
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
        _ = up.wait_for(|up| !up) => {}
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let (unanswered, authorised) = record(&shared, &parts);
    shared.changed.send_modify(|count| *count += 1);
    if unanswered == Unanswered::All {
        std::future::pending::<()>().await;
    }
    if !authorised {
        return Ok(failure(401, "Unauthorized", "Unauthorized"));
    }
    if shared
        .lock()
        .endless
        .is_some_and(|text| parts.uri.to_string().contains(text))
    {
        return Ok(stream::endless(&shared));
    }
    let path: Vec<_> = parts
        .uri
        .path()
        .trim_start_matches("/api/v1/")
        .split('/')
        .collect();
    let query = Query(parts.uri.query().unwrap_or_default());
    Ok(match (parts.method.as_str(), path.as_slice()) {
        ("GET", path) => read(&shared, &parts, path, &query),
        ("POST", ["namespaces", "default", "events"])
            if shared.lock().refused != Some("events") =>
        {
            create_event(
                &shared,
                &serde_json::from_slice(&body).expect("an event is JSON"),
            )
        }
        ("PATCH", ["nodes", name, "status"]) => {
            assert_eq!(
                header(&parts, "content-type"),
                Some("application/strategic-merge-patch+json")
            );
            let answer = patch(
                &shared,
                name,
                &serde_json::from_slice(&body).expect("a patch is JSON"),
            );
            if unanswered == Unanswered::Patches {
                std::future::pending::<()>().await;
            }
            answer
        }
        _ => forbidden(&parts),
    })
}

fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
}

/// Notes the request. Returns the requests that are not answered, and true if this one has the
/// token that is asked for.
fn record(shared: &Shared, parts: &Parts) -> (Unanswered, bool) {
    let mut asked = format!("{} {}", parts.method, parts.uri);
    let is_watch = parts
        .uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    if parts.uri.path() == "/api/v1/nodes" && !is_watch {
        asked.push_str(super::LIST);
    }
    let agent = header(parts, "user-agent").unwrap_or_default();
    let mut state = shared.lock();
    state.requests.push((Instant::now(), asked));
    state.user_agents.insert(agent.to_owned());
    let sent = header(parts, "authorization");
    let wanted = state.token.as_ref().map(|token| format!("Bearer {token}"));
    let authorised = wanted.is_none() || wanted.as_deref() == sent;
    (state.unanswered, authorised)
}

fn read(shared: &Arc<Shared>, parts: &Parts, path: &[&str], query: &Query<'_>) -> Response<Body> {
    match path {
        ["nodes"] if shared.lock().refused == Some("nodes") => {
            failure(503, "ServiceUnavailable", "no node can be read now")
        }
        ["namespaces", namespace, "pods", name] => {
            let pod = shared
                .lock()
                .pods
                .get(&format!("{namespace}/{name}"))
                .cloned();
            pod.map_or_else(
                || failure(404, "NotFound", &format!("pods {name:?} not found")),
                |pod| ok(&pod),
            )
        }
        ["nodes", name] => {
            let node = shared.lock().nodes.get(*name).cloned();
            node.map_or_else(
                || failure(404, "NotFound", &format!("nodes {name:?} not found")),
                |node| ok(&node),
            )
        }
        ["nodes"] if query.get("watch") == Some("true") => {
            stream::open(shared, query, Asked::Nodes(query.single_node()))
        }
        ["pods"] if shared.lock().refused == Some("pods") => {
            failure(403, "Forbidden", "pods is forbidden")
        }
        ["pods"] if query.get("watch") == Some("true") => {
            stream::open(shared, query, Asked::Pods(query.node()))
        }
        ["pods"] => list_pods(shared, query),
        ["nodes"] => list(shared, query),
        _ => forbidden(parts),
    }
}

fn forbidden(parts: &Parts) -> Response<Body> {
    let (method, path) = (&parts.method, parts.uri.path());
    failure(
        403,
        "Forbidden",
        &format!("flannel may not {method} {path}"),
    )
}

/// A query string with values that need no decoding.
pub(super) struct Query<'a>(&'a str);

impl Query<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// The Node whose Pods are asked for.
    fn node(&self) -> String {
        let selector = self
            .get("fieldSelector")
            .expect("never the Pods of all nodes");
        selector
            .strip_prefix("spec.nodeName%3D")
            .expect("a node is selected")
            .to_owned()
    }

    /// The one Node asked for.
    pub(super) fn single_node(&self) -> Option<String> {
        let selector = self.get("fieldSelector")?;
        Some(
            selector
                .strip_prefix("metadata.name%3D")
                .expect("a name is selected")
                .to_owned(),
        )
    }
}

/// A list as a server with a watch cache gives it: whole and without a look at the store where it
/// may be of any version, or of one not older than the cache; else page by page, from the store.
/// The token of a page holds the list's version and where the page before ended; later changes
/// show, which real servers keep out, and which a watch from that version repeats.
fn list(shared: &Shared, query: &Query<'_>) -> Response<Body> {
    let mut state = shared.lock();
    let from_cache = match is_from_cache(query, state.version) {
        Ok(from_cache) => from_cache,
        Err(wanted) => {
            return failure(
                504,
                "Timeout",
                &format!(
                    "Too large resource version: {wanted}, current: {}",
                    state.version
                ),
            );
        }
    };
    let limit = query
        .get("limit")
        .and_then(|limit| limit.parse().ok())
        .filter(|_| !from_cache);
    let limit: usize = limit.unwrap_or(usize::MAX);
    assert!(
        from_cache || limit <= 500,
        "lists from the store come in pages"
    );
    let (version, after) = match query
        .get("continue")
        .and_then(|token| token.split_once('.'))
    {
        Some((version, after)) => (version.parse().expect("our token"), after.to_owned()),
        None => (state.version, String::new()),
    };
    if version < state.compacted {
        return failure(410, "Expired", "The provided continue parameter is too old");
    }
    let single_node = query.single_node();
    let is_asked_for = |name: &String| {
        *name > after
            && single_node
                .as_ref()
                .is_none_or(|single_node| single_node == name)
    };
    let mut rest = state
        .nodes
        .keys()
        .filter(|name| is_asked_for(name))
        .cloned();
    let names: Vec<_> = rest.by_ref().take(limit).collect();
    let last = names.last().filter(|_| rest.next().is_some());
    let next = last
        .map(|name| format!("{version}.{name}"))
        .unwrap_or_default();
    if !from_cache {
        state.read_from_store += names.len();
    }
    let meta = json!({ "resourceVersion": version.to_string(), "continue": next });
    let items = state.texts_of(&names);
    let text =
        format!(r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{meta},"items":[{items}]}}"#);
    Response::new(whole(text))
}

/// Returns true if the cache serves the list; the wanted version if the cache is not as new.
fn is_from_cache(query: &Query<'_>, version: u64) -> Result<bool, u64> {
    let wanted = query
        .get("resourceVersion")
        .and_then(|version| version.parse::<u64>().ok());
    match (wanted, query.get("resourceVersionMatch")) {
        (Some(wanted), Some("NotOlderThan")) if wanted > version => Err(wanted),
        (Some(0), None) | (Some(_), Some("NotOlderThan")) => Ok(true),
        (None, None) => Ok(false),
        other => panic!("a list of {other:?}"),
    }
}

/// From memory, whole: by the version 0, for which a real server does not search what it has
/// stored.
fn list_pods(shared: &Shared, query: &Query<'_>) -> Response<Body> {
    assert_eq!(
        (query.get("resourceVersion"), query.get("limit")),
        (Some("0"), None)
    );
    let (state, node) = (shared.lock(), query.node());
    let items: Vec<_> = state
        .pods
        .values()
        .filter(|pod| pod["spec"]["nodeName"] == *node)
        .collect();
    let meta = json!({ "resourceVersion": state.version.to_string() });
    ok(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items }))
}

fn create_event(shared: &Shared, event: &Value) -> Response<Body> {
    // What the server asks of Events about objects without a namespace.
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(event["involvedObject"]["namespace"], Value::Null);
    let name = event["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    if shared.lock().events.contains_key(&name) {
        return failure(
            409,
            "AlreadyExists",
            &format!("events {name:?} already exists"),
        );
    }
    shared.lock().events.insert(name, event.clone());
    shared.changed.send_modify(|count| *count += 1);
    ok(event)
}

fn patch(shared: &Shared, name: &str, patch: &Value) -> Response<Body> {
    let answer = {
        let mut state = shared.lock();
        state.patches.push(patch.clone());
        let Some(mut node) = state.nodes.get(name).cloned() else {
            return failure(404, "NotFound", &format!("nodes {name:?} not found"));
        };
        merge::annotations(&mut node, patch);
        merge::conditions(&mut node, patch);
        state.put(node.clone());
        ok(state.nodes.get(name).unwrap_or(&node))
    };
    shared.changed.send_modify(|count| *count += 1);
    answer
}
