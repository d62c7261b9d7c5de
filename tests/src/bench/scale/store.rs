//! The store that nodes follow, and the changes of one peer in it.

use std::{fmt, fs, time::SystemTime};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use ipnet::IpNet;
use serde::Serialize;
use tokio::runtime::{self, Runtime};

use super::{
    api_server::{Double, State},
    nodes::{LargeNode, new_node},
    peers::{self, NumberedPeer},
};
use crate::{
    AgentOptions, Etcd, Lab, Node,
    cluster::{LEASES, etcd::CONFIG_KEY},
};

const NET_CONFIG: &str = "/run/net-conf.json";
const PORT: u16 = 6443;
/// The Node of the agent under test.
const OWN: &str = "own";

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// etcd, a lease for each peer
    Etcd,
    /// An API server of this bench by HTTP, a Node of 16 KiB for each peer. It keeps all of them as
    /// a tree: 5,000 take 500 MB
    Kubernetes,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::Kubernetes => "Kubernetes",
        })
    }
}

/// A store with the leases of all peers.
pub(super) enum Store {
    Etcd(Etcd),
    Kubernetes(ApiServer),
}

/// The API server, and the thread that serves.
pub(super) struct ApiServer {
    double: Double,
    _runtime: Runtime,
}

impl Store {
    /// Starts one on this node, which has `address`, and fills it.
    pub(super) fn start(
        kind: Kind,
        lab: &Lab,
        node: &Node,
        address: &str,
        peers: u32,
    ) -> Result<Self> {
        Ok(match kind {
            Kind::Etcd => {
                let etcd = lab.etcd(node)?;
                etcd.put(CONFIG_KEY, peers::NETWORK, None)?;
                let leases: Vec<_> = NumberedPeer::first(peers)
                    .map(NumberedPeer::lease)
                    .collect();
                etcd.put_leases(&leases)?;
                Self::Etcd(etcd)
            }
            Kind::Kubernetes => Self::Kubernetes(ApiServer::start(node, address, peers)?),
        })
    }

    /// The agent on `node`, with its lease in this store.
    pub(super) fn agent(&self, node: &Node, address: &str) -> Result<AgentOptions> {
        match self {
            Self::Etcd(etcd) => AgentOptions::etcd(&etcd.endpoint(address)),
            Self::Kubernetes(_) => {
                fs::write(node.outside_path(NET_CONFIG), peers::NETWORK)?;
                AgentOptions::kubernetes(&format!("http://{address}:{PORT}"), OWN, NET_CONFIG)
            }
        }
    }

    /// Writes a peer's lease; the time just before.
    pub(super) fn put(&self, peer: NumberedPeer) -> Result<SystemTime> {
        match self {
            Self::Etcd(etcd) => {
                let lease = peer.lease();
                etcd.client(async |client| {
                    let start = SystemTime::now();
                    client.put(lease.key(), lease.value(), None).await?;
                    Ok(start)
                })
            }
            Self::Kubernetes(server) => {
                let node = large_node(peer).json();
                Ok(server.change(|state| state.put(node)))
            }
        }
    }

    /// Deletes the lease of a node that was measured. A Node of Kubernetes keeps its subnet.
    pub(super) fn release(&self, subnet: IpNet) -> Result<()> {
        let Self::Etcd(etcd) = self else {
            return Ok(());
        };
        let key = format!("{LEASES}{}-{}", subnet.network(), subnet.prefix_len());
        ensure!(etcd.delete(&key)?, "{key}: no such lease");
        Ok(())
    }

    /// Deletes a peer's lease; the time just before.
    pub(super) fn delete(&self, peer: NumberedPeer) -> Result<SystemTime> {
        match self {
            Self::Etcd(etcd) => etcd.client(async |client| {
                let start = SystemTime::now();
                client.delete(peer.lease().key(), None).await?;
                Ok(start)
            }),
            Self::Kubernetes(server) => {
                Ok(server.change(|state| state.remove(&large_node(peer).name)))
            }
        }
    }
}

impl ApiServer {
    fn start(node: &Node, address: &str, peers: u32) -> Result<Self> {
        // Its thread stays in the namespaces of the one that makes it.
        let server = node.enter(|| -> Result<Self> {
            let runtime = runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let double = runtime.block_on(Double::start_at(&format!("{address}:{PORT}"), None));
            Ok(Self {
                double,
                _runtime: runtime,
            })
        })??;
        server.change(|state| {
            NumberedPeer::first(peers).for_each(|peer| state.put(large_node(peer).json()));
            state.put(new_node(OWN, "10.255.255.0/24"));
            state.forget();
        });
        Ok(server)
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> SystemTime {
        let start = SystemTime::now();
        self.double.change(change);
        start
    }
}

fn large_node(peer: NumberedPeer) -> LargeNode {
    LargeNode {
        name: format!("node-{:05}", peer.0),
        subnet: format!("{}/24", peer.base()),
        public_ip: peer.public_ip().to_string(),
        mac: peer.mac(),
        heartbeat: 0,
    }
}
