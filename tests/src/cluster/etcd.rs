//! A real etcd on a host of the lab.
//!
//! Its data is in `/run/etcd` of that host: memory that goes with the host's mount namespace,
//! whatever happens.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use etcd_client::{Client, GetOptions, PutOptions};
use nix::sys::signal::Signal;
use tokio::runtime;

use crate::{ChildGuard, Host, Lab, Node, eventually};

const PORT: u16 = 2379;
const START_LIMIT: Duration = Duration::from_secs(20);

/// The key of the network configuration.
pub const CONFIG_KEY: &str = "/coreos.com/network/config";

/// A handle to one etcd server; clones are the same server.
#[derive(Clone, Debug)]
pub struct Etcd {
    host: Host,
    server: Arc<Mutex<Option<ChildGuard>>>,
}

impl Lab {
    /// Starts etcd on `node`, listening on all its addresses, port 2379, and waits until it is
    /// healthy.
    pub fn etcd(&self, node: &Node) -> Result<Etcd> {
        let etcd = Etcd {
            host: Host::clone(node),
            server: Arc::default(),
        };
        etcd.start()?;
        Ok(etcd)
    }
}

impl Etcd {
    /// Starts it, also after [`Etcd::stop`]: the data is still there.
    pub fn start(&self) -> Result<()> {
        let clients = format!("http://0.0.0.0:{PORT}");
        let child = self.host.spawn(
            "etcd",
            [
                "etcd",
                "--name=lab",
                "--data-dir=/run/etcd",
                "--log-level=warn",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--initial-advertise-peer-urls=http://127.0.0.1:2380",
                "--initial-cluster=lab=http://127.0.0.1:2380",
                &format!("--listen-client-urls={clients}"),
                &format!("--advertise-client-urls={clients}"),
            ],
        )?;
        *self.server() = Some(child.clone());
        eventually("health of etcd", START_LIMIT, || self.health())
            .with_context(|| format!("end of its log:\n{}", child.log_tail(15)))
    }

    /// Kills it, as a machine that loses power would.
    pub fn stop(&self) -> Result<()> {
        let child = self.server().take().context("etcd was not started")?;
        child.kill9()
    }

    /// Stops the server by SIGSTOP: connections stay open, and it answers no request.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// The endpoint as a client at `address` of its host sees it.
    pub fn endpoint(&self, address: &str) -> String {
        format!("http://{address}:{PORT}")
    }

    /// Writes a key; with `ttl` in seconds under a new etcd lease.
    pub fn put(&self, key: &str, value: &str, ttl: Option<i64>) -> Result<()> {
        self.client(async |client| {
            let options = match ttl {
                Some(ttl) => {
                    Some(PutOptions::new().with_lease(client.lease_grant(ttl, None).await?.id()))
                }
                None => None,
            };
            client.put(key, value, options).await.map(drop)
        })
    }

    /// Reads a key.
    pub fn get(&self, key: &str) -> Result<Option<String>> {
        let found = self.client(async |client| client.get(key, None).await)?;
        found
            .kvs()
            .first()
            .map(|pair| Ok(pair.value_str()?.to_owned()))
            .transpose()
    }

    /// All keys that start with `prefix`, in order, with their values.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let options = GetOptions::new().with_prefix();
        let found = self.client(async |client| client.get(prefix, Some(options)).await)?;
        found
            .kvs()
            .iter()
            .map(|pair| Ok((pair.key_str()?.to_owned(), pair.value_str()?.to_owned())))
            .collect()
    }

    /// Deletes a key; whether it was there.
    pub fn delete(&self, key: &str) -> Result<bool> {
        Ok(self
            .client(async |client| client.delete(key, None).await)?
            .deleted()
            > 0)
    }

    /// Runs any conversation with the store, inside its host.
    pub fn client<T: Send>(
        &self,
        talk: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error> + Send,
    ) -> Result<T> {
        self.host.enter(|| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let mut client = Client::connect([self.endpoint("127.0.0.1")], None).await?;
                talk(&mut client).await.context("etcd")
            })
        })?
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        self.server()
            .as_ref()
            .context("etcd was not started")?
            .signal(signal)
    }

    fn health(&self) -> Result<()> {
        let answer = self.host.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })??;
        anyhow::ensure!(answer.contains(r#""health":"true""#), "{answer}");
        Ok(())
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Option<ChildGuard>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
