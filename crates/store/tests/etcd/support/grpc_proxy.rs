//! `etcd grpc-proxy`: a watch through it stays open while the server behind it is down, and
//! requests nothing again.

use std::process::{Child, Command, Stdio};

use etcd_client::{Client, ConnectOptions};
use tempfile::TempDir;
use tokio::time::{Duration, interval, timeout};

use super::{
    PATIENCE,
    server::{Etcd, free_ports},
};

/// The process. Ends when dropped.
pub(crate) struct GrpcProxy {
    port: u16,
    child: Child,
    _scratch: TempDir,
}

impl GrpcProxy {
    /// A proxy before a server, once it answers.
    pub(crate) async fn to(server: &Etcd) -> Self {
        let (scratch, [port, _]) = (tempfile::tempdir().expect("a directory"), free_ports());
        let child = Command::new("etcd")
            .args(["grpc-proxy", "start", "--endpoints", &server.endpoint()])
            .args([
                format!("--listen-addr=127.0.0.1:{port}"),
                format!("--advertise-client-url=127.0.0.1:{port}"),
            ])
            .arg(format!(
                "--data-dir={}",
                scratch.path().join("proxy").display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server's own binary");
        let proxy = Self {
            port,
            child,
            _scratch: scratch,
        };
        timeout(PATIENCE, proxy.answering())
            .await
            .expect("the proxy answers in time");
        proxy
    }

    async fn answering(&self) {
        let mut ticks = interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let options = ConnectOptions::new().with_timeout(Duration::from_secs(1));
            let mut client = Client::connect([self.endpoint()], Some(options))
                .await
                .expect("a client");
            if client.get("health", None).await.is_ok() {
                return;
            }
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}
