//! An etcd process.

use std::{
    fs,
    io::ErrorKind,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use etcd_client::{Client, ConnectOptions};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use super::{PATIENCE, not_run::not_run};

pub(crate) type Server = Arc<Etcd>;

/// A server on free loopback ports. Ends, and takes its data along, when dropped.
pub(crate) struct Etcd {
    scratch: TempDir,
    ports: [u16; 2],
    child: Mutex<Child>,
}

/// The server most tests share. It lives as long as a test that uses it.
static SHARED: tokio::sync::Mutex<Weak<Etcd>> = tokio::sync::Mutex::const_new(Weak::new());

impl Etcd {
    pub(crate) async fn shared(test: &str) -> Option<Server> {
        let mut shared = SHARED.lock().await;
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let server = Self::start(test).await?;
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    pub(crate) async fn start(test: &str) -> Option<Server> {
        Self::start_on(test, free_ports()).await
    }

    pub(crate) async fn start_on(test: &str, ports: [u16; 2]) -> Option<Server> {
        let scratch = tempfile::tempdir().expect("a directory");
        Self::start_in(test, scratch, ports, &[]).await
    }

    /// A server whose data may have this many bytes.
    pub(crate) async fn start_small(test: &str, quota: u32) -> Option<Server> {
        let scratch = tempfile::tempdir().expect("a directory");
        Self::start_in(
            test,
            scratch,
            free_ports(),
            &[&format!("--quota-backend-bytes={quota}")],
        )
        .await
    }

    /// A server with this argument.
    pub(crate) async fn start_with(test: &str, argument: &str) -> Option<Server> {
        let scratch = tempfile::tempdir().expect("a directory");
        Self::start_in(test, scratch, free_ports(), &[argument]).await
    }

    /// A server that also listens for TLS, with these arguments. It comes with that endpoint.
    pub(crate) async fn start_tls(
        test: &str,
        scratch: TempDir,
        arguments: &[&str],
    ) -> Option<(Server, String)> {
        let (ports, [tls, _]) = (free_ports(), free_ports());
        let endpoint = format!("https://127.0.0.1:{tls}");
        let clients = format!("http://127.0.0.1:{},{endpoint}", ports[0]);
        let more = [
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ];
        let server = Self::start_in(test, scratch, ports, &[&more, arguments].concat()).await?;
        Some((server, endpoint))
    }

    async fn start_in(
        test: &str,
        scratch: TempDir,
        ports: [u16; 2],
        arguments: &[&str],
    ) -> Option<Server> {
        let child = match spawn(scratch.path().join("data"), ports, arguments) {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                not_run(test, "there is no etcd binary");
                return None;
            }
            Err(error) => panic!("cannot start etcd: {error}"),
        };
        let server = Self {
            scratch,
            ports,
            child: Mutex::new(child),
        };
        server.client().await;
        Some(Arc::new(server))
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// A client with patience, once the server answers.
    pub(crate) async fn client(&self) -> Client {
        let answering = async {
            let mut ticks = interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                let mut client = self.client_within(Duration::from_secs(1)).await;
                if client.get("health", None).await.is_ok() {
                    return;
                }
            }
        };
        timeout(PATIENCE, answering)
            .await
            .expect("etcd answers in time");
        self.client_within(PATIENCE).await
    }

    async fn client_within(&self, timeout: Duration) -> Client {
        let options = ConnectOptions::new().with_timeout(timeout);
        Client::connect([self.endpoint()], Some(options))
            .await
            .expect("a client")
    }

    /// Freezes (SIGSTOP) or thaws (SIGCONT) the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child().id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("kill");
    }

    /// Kills the process.
    pub(crate) fn stop(&self) {
        let mut child = self.child();
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Keeps a copy of a stopped server's data.
    pub(crate) fn back_up(&self) {
        copy_dir(
            &self.scratch.path().join("data"),
            &self.scratch.path().join("backup"),
        );
    }

    /// Starts a stopped server again.
    pub(crate) async fn restart(&self, with: Data) {
        let data = self.scratch.path().join("data");
        if with != Data::Kept {
            fs::remove_dir_all(&data).expect("the data directory goes");
        }
        if with == Data::BackedUp {
            copy_dir(&self.scratch.path().join("backup"), &data);
        }
        *self.child() = spawn(data, self.ports, &[]).expect("etcd starts");
        self.client().await;
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data a restarted server starts with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    Kept,
    Wiped,
    BackedUp,
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `arguments` come last: those given twice count as given last.
fn spawn(data: PathBuf, [client, peer]: [u16; 2], arguments: &[&str]) -> std::io::Result<Child> {
    let (client, peer) = (
        format!("http://127.0.0.1:{client}"),
        format!("http://127.0.0.1:{peer}"),
    );
    Command::new("etcd")
        .arg("--data-dir")
        .arg(data)
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
        .args([
            "--initial-cluster",
            &format!("default={peer}"),
            "--grpc-keepalive-min-time",
            "500ms",
        ])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Returns two TCP ports on loopback that are unused at the time of the call.
pub(crate) fn free_ports() -> [u16; 2] {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}
