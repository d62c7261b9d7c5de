//! An API server of a test: Nodes, the agents' pods, and a command in each pod that answers with a
//! status, hangs, or is forbidden. A real server on a socket, because a real cluster has neither 62
//! nodes here nor pods that hang when asked to.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

use super::client::{ApiAccess, ClusterClient};

/// The channels of a command's output and of its end.
const STDOUT: u8 = 1;
const END: u8 = 3;
/// The largest head of a request.
const HEAD: usize = 64 << 10;
/// The end of a head, and of a command that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// The answer of a pod to a command.
#[derive(Clone, Debug)]
pub(crate) enum PodAnswer {
    /// This output.
    Output(String),
    /// None.
    Hangs,
    /// The API server refuses the command.
    Forbidden,
}

/// The objects of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    /// The Nodes, each with the answer of its pod.
    pub(crate) nodes: Vec<(Value, Option<PodAnswer>)>,
}

/// The server.
pub(crate) struct ApiDouble {
    /// The connection to it.
    pub(crate) client: ClusterClient,
    server: JoinHandle<()>,
    _files: TempDir,
}

impl ApiDouble {
    /// Starts a server with these objects.
    pub(crate) async fn start(objects: Objects) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = tokio::spawn(serve(listener, Arc::new(objects)));
        let files = tempfile::tempdir().expect("a directory");
        let kubeconfig = files.path().join("config");
        let text = json!({
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("written");
        let access = ApiAccess { kubeconfig: Some(kubeconfig), context: None };
        let client = ClusterClient::new(&access).await.expect("a client");
        Self { client, server, _files: files }
    }
}

impl Drop for ApiDouble {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, objects: Arc<Objects>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(connection(stream, objects.clone()));
    }
}

/// One request of one connection.
async fn connection(mut stream: TcpStream, objects: Arc<Objects>) {
    let Some(path) = path(&stream).await else { return };
    if let Some(pod) = path.strip_prefix("/api/v1/namespaces/kube-flannel/pods/pod-") {
        let node = pod.split('/').next().unwrap_or_default();
        return command(stream, objects.answer(node)).await;
    }
    let items = if path.starts_with("/api/v1/nodes") { objects.list_nodes() } else { objects.list_pods() };
    let body = json!({ "items": items }).to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.read(&mut vec![0; HEAD]).await;
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// The path that a client asks for. The request stays in the socket.
async fn path(stream: &TcpStream) -> Option<String> {
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

#[expect(clippy::result_large_err, reason = "the trait of the crate")]
async fn command(stream: TcpStream, answer: Option<PodAnswer>) {
    let upgrade = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let Some(PodAnswer::Output(_) | PodAnswer::Hangs) = &answer else {
            let mut refusal = ErrorResponse::new(Some("forbidden".to_owned()));
            *refusal.status_mut() = http::StatusCode::FORBIDDEN;
            return Err(refusal);
        };
        let protocols = request.headers().get("sec-websocket-protocol").expect("protocols").to_str().expect("text");
        let first = protocols.split(',').next().unwrap_or_default().trim().parse().expect("a protocol");
        response.headers_mut().insert("sec-websocket-protocol", first);
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr_async(stream, upgrade).await else { return };
    if let Some(PodAnswer::Output(text)) = answer {
        let end = json!({ "metadata": {}, "status": "Success" }).to_string();
        for (channel, text) in [(STDOUT, text), (END, end)] {
            let mut message = vec![channel];
            message.extend(text.as_bytes());
            let _ = socket.send(Message::binary(message)).await;
        }
        let _ = socket.close(None).await;
    }
    // Until the client has gone.
    let _ = timeout(PATIENCE, async { while socket.next().await.is_some_and(|message| message.is_ok()) {} }).await;
}

impl Objects {
    fn list_nodes(&self) -> Vec<Value> {
        self.nodes.iter().map(|(node, _)| node.clone()).collect()
    }

    fn list_pods(&self) -> Vec<Value> {
        let pod = |(node, answer): &(Value, Option<PodAnswer>)| {
            answer.as_ref()?;
            let name = node["metadata"]["name"].as_str()?;
            let spec = json!({ "nodeName": name, "containers": [{ "name": "kube-flannel" }] });
            Some(
                json!({ "metadata": { "name": format!("pod-{name}") }, "spec": spec, "status": { "phase": "Running" } }),
            )
        };
        self.nodes.iter().filter_map(pod).collect()
    }

    fn answer(&self, name: &str) -> Option<PodAnswer> {
        self.nodes.iter().find(|(node, _)| node["metadata"]["name"] == name)?.1.clone()
    }
}
