//! A real kube-apiserver with its own etcd, on loopback.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Once, Weak},
    time::Duration,
};

use http::Request;
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use super::not_run::not_run;

/// The time limit of the start: a fresh machine has to make its first key, bind and settle.
const START: Duration = Duration::from_mins(2);
pub(super) const TOKEN: &str = "test-token";

/// The processes. They end, and take their data along, when dropped.
pub(crate) struct Real {
    port: u16,
    children: Vec<Child>,
    _scratch: TempDir,
}

/// The server the tests share. It lives as long as a test that uses it.
static SHARED: tokio::sync::Mutex<Weak<Real>> = tokio::sync::Mutex::const_new(Weak::new());
static TOLD: Once = Once::new();

impl Real {
    /// The server; `None`, and a word about it, without the binaries.
    pub(super) async fn shared(test: &str) -> Option<Arc<Self>> {
        let (Some(apiserver), Some(etcd)) = (env::var_os("KUBE_APISERVER"), env::var_os("ETCD"))
        else {
            let why = "KUBE_APISERVER and ETCD do not name the binaries";
            TOLD.call_once(|| {
                not_run(
                    &format!("{test} and others against a real kube-apiserver"),
                    why,
                );
            });
            return None;
        };
        let mut shared = SHARED.lock().await;
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let server = Arc::new(Self::start(&apiserver, &etcd).await);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    async fn start(apiserver: &OsString, etcd: &OsString) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let [client, peer, port] = free_ports();
        let mut children = vec![start_etcd(etcd, scratch.path(), client, peer)];
        children.push(start_apiserver(apiserver, scratch.path(), client, port));
        let server = Self {
            port,
            children,
            _scratch: scratch,
        };
        timeout(START, server.ready())
            .await
            .expect("kube-apiserver answers in time");
        server
    }

    /// A new one each time: a client ends with the runtime of the test that made it.
    fn client(&self) -> Client {
        let mut config = Config::new(self.url().parse().expect("a URL"));
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        Client::try_from(config).expect("a client")
    }

    async fn ready(&self) {
        let client = self.client();
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            let request = Request::get("/readyz").body(Vec::new()).expect("a request");
            if client.request_text(request).await.is_ok() {
                return;
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(super) async fn create(&self, mut node: Value) {
        // The server gives these.
        for key in ["uid", "creationTimestamp"] {
            node["metadata"]
                .as_object_mut()
                .expect("an object")
                .remove(key);
        }
        self.send(
            Request::post("/api/v1/nodes").header("content-type", "application/json"),
            &node,
        )
        .await;
    }

    pub(super) async fn edit(&self, name: &str, patch: &Value) {
        for part in ["", "/status"] {
            let request = Request::patch(format!("/api/v1/nodes/{name}{part}"));
            self.send(
                request.header("content-type", "application/merge-patch+json"),
                patch,
            )
            .await;
        }
    }

    pub(super) async fn delete(&self, name: &str) {
        self.send(
            Request::delete(format!("/api/v1/nodes/{name}")),
            &Value::Null,
        )
        .await;
    }

    pub(super) async fn get(&self, name: &str) -> Value {
        self.send(Request::get(format!("/api/v1/nodes/{name}")), &Value::Null)
            .await
    }

    async fn send(&self, request: http::request::Builder, body: &Value) -> Value {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.client()
            .request(request.body(body).expect("a request"))
            .await
            .expect("the server does as told")
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }
}

fn start_etcd(binary: &OsString, scratch: &Path, client: u16, peer: u16) -> Child {
    let [client, peer] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
    let log = File::create(scratch.join("etcd.log")).expect("a log");
    Command::new(binary)
        .arg("--data-dir")
        .arg(scratch.join("etcd"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("ETCD names an etcd")
}

fn start_apiserver(binary: &OsString, scratch: &Path, etcd: u16, port: u16) -> Child {
    let (key, tokens) = (
        scratch.join("service-account.key"),
        scratch.join("tokens.csv"),
    );
    let for_tokens = KeyPair::generate().expect("a key for service accounts");
    let public = scratch.join("service-account.pub");
    fs::write(&key, for_tokens.serialize_pem()).expect("a file");
    fs::write(&public, for_tokens.public_key_pem()).expect("a file");
    fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n")).expect("a file");
    let log = File::create(scratch.join("apiserver.log")).expect("a log");
    let option = |name: &str, value: &Path| format!("--{name}={}", value.display());
    Command::new(binary)
        .args([
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
        ])
        .args([
            "--bind-address=127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
        ])
        .args([
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.default.svc",
        ])
        .args([
            option("cert-dir", &scratch.join("certs")),
            option("token-auth-file", &tokens),
        ])
        .args([
            option("service-account-key-file", &public),
            option("service-account-signing-key-file", &key),
        ])
        .args(dual_stack(binary))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("KUBE_APISERVER names a kube-apiserver")
}

/// The flag without which Kubernetes 1.20 lets a node have one subnet; later versions have both
/// families, and in the end no flag.
fn dual_stack(binary: &OsString) -> Option<&'static str> {
    let version = Command::new(binary)
        .arg("--version")
        .output()
        .expect("KUBE_APISERVER names a kube-apiserver");
    String::from_utf8_lossy(&version.stdout)
        .contains(" v1.20.")
        .then_some("--feature-gates=IPv6DualStack=true")
}

/// Returns three different TCP ports on loopback that are unused at the time of the call.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}
