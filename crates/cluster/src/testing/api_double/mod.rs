//! An API server of a test: Nodes, the agents' pods and other pods, and commands in the agents'
//! pods. A real server on a socket, because a real cluster has neither 62 nodes here nor pods that
//! hang when asked to.

mod command;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

pub use self::command::PodAnswer;
use super::nodes::node_json;
use crate::client::{ApiAccess, ClusterClient};

/// The largest head of a request.
const HEAD: usize = 64 << 10;
/// The end of a head, and of a command that hangs.
const PATIENCE: Duration = Duration::from_mins(1);
const NAMESPACES: &str = "/api/v1/namespaces/";

/// The objects of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The Nodes, each with the answer of its agent's pod.
    pub nodes: Vec<(Value, Option<PodAnswer>)>,
    /// Other pods, each with its namespace.
    pub pods: Vec<(&'static str, Value)>,
    /// The commands that were run: the node, and the words.
    pub commands: Vec<(String, Vec<String>)>,
    /// The number of commands whose connections are open.
    pub open: usize,
}

/// The server.
pub struct ApiDouble {
    /// The connection to it.
    pub client: ClusterClient,
    objects: Shared,
    server: JoinHandle<()>,
    _files: TempDir,
}

type Shared = Arc<Mutex<Objects>>;

impl ApiDouble {
    /// Starts a server with these objects.
    pub async fn start(objects: Objects) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let objects = Arc::new(Mutex::new(objects));
        let server = tokio::spawn(serve(listener, objects.clone()));
        let files = tempfile::tempdir().expect("a directory");
        let kubeconfig = files.path().join("config");
        let text = json!({
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("written");
        let access = ApiAccess {
            kubeconfig: Some(kubeconfig),
            context: None,
        };
        let client = ClusterClient::new(&access).await.expect("a client");
        Self {
            client,
            objects,
            server,
            _files: files,
        }
    }

    /// Starts a server with nodes whose agents give these answers, where they have a pod.
    pub async fn with_answers(answers: Vec<Option<PodAnswer>>) -> Self {
        Self::start(Objects {
            nodes: (1..).map(node_json).zip(answers).collect(),
            ..Objects::default()
        })
        .await
    }

    /// The objects, which may be changed.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }
}

impl Drop for ApiDouble {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(objects: &Shared) -> MutexGuard<'_, Objects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, objects: Shared) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(connection(stream, objects.clone()));
    }
}

/// One request of one connection.
async fn connection(mut stream: TcpStream, objects: Shared) {
    let Some(target) = target(&stream).await else {
        return;
    };
    if let Some(command) = target.strip_prefix("/api/v1/namespaces/kube-flannel/pods/pod-") {
        let (node, words) = command::words(command);
        let answer = lock(&objects).run(node, words);
        command::run(stream, answer).await;
        lock(&objects).open -= 1;
        return;
    }
    let (code, body) = lock(&objects).get(&target);
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.read(&mut vec![0; HEAD]).await;
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// The path and the query that a client asks for. The request stays in the socket.
async fn target(stream: &TcpStream) -> Option<String> {
    let mut head = vec![0; HEAD];
    let whole = async {
        loop {
            let length = stream.peek(&mut head).await.ok()?;
            let text = String::from_utf8_lossy(&head[..length]).into_owned();
            if length == 0 || text.contains("\r\n\r\n") {
                return text.split(' ').nth(1).map(str::to_owned);
            }
        }
    };
    timeout(PATIENCE, whole).await.ok()?
}

impl Objects {
    /// The status and the body of an answer.
    fn get(&self, target: &str) -> (u16, Value) {
        let path = target.split('?').next().unwrap_or_default();
        if path.starts_with("/api/v1/nodes") {
            return (
                200,
                json!({
                    "items": self.nodes.iter().map(|(node, _)| node.clone()).collect::<Vec<_>>(),
                }),
            );
        }
        let named = path
            .strip_prefix(NAMESPACES)
            .and_then(|path| path.split_once("/pods/"));
        let Some((namespace, name)) = named else {
            return (200, json!({ "items": self.list_pods() }));
        };
        let is_it =
            |(of, pod): &&(&str, Value)| *of == namespace && pod["metadata"]["name"] == name;
        self.pods
            .iter()
            .find(is_it)
            .map_or_else(|| (404, not_found(name)), |(_, pod)| (200, pod.clone()))
    }

    fn list_pods(&self) -> Vec<Value> {
        let pod = |(node, answer): &(Value, Option<PodAnswer>)| {
            answer.as_ref()?;
            let name = node["metadata"]["name"].as_str()?;
            let spec = json!({ "nodeName": name, "containers": [{ "name": "kube-flannel" }] });
            Some(json!({
                "metadata": { "name": format!("pod-{name}") },
                "spec": spec,
                "status": { "phase": "Running" },
            }))
        };
        self.nodes.iter().filter_map(pod).collect()
    }

    /// The answer of a node's pod to a command, which is recorded.
    fn run(&mut self, node: &str, words: Vec<String>) -> Option<PodAnswer> {
        self.commands.push((node.to_owned(), words));
        self.open += 1;
        self.nodes
            .iter()
            .find(|(object, _)| object["metadata"]["name"] == node)?
            .1
            .clone()
    }
}

fn not_found(name: &str) -> Value {
    let message = format!("pods \"{name}\" not found");
    json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "NotFound",
        "message": message,
        "code": 404,
    })
}
