//! The rules kube-proxy leaves on a node, by either of its backends: what pods reach a Service by.
//!
//! A Service has its own address, perhaps a port of every node, and backends among which a
//! connection's first packet chooses at random. Packets that do not come from a pod, packets to a
//! node's port, and a backend's connections through its own Service are masqueraded. FORWARD drops
//! packets that conntrack calls invalid. All names are kube-proxy's.
//!
//! [`ServiceRules::set`] changes rules as kube-proxy does: in one transaction, and without changes
//! to conntrack. A test that needs it deletes the connections itself.

mod iptables;
mod nftables;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use ipnet::IpNet;

use crate::{Node, load::rr::Protocol};

/// The tool that installs the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nft.
    Nftables,
    /// Legacy iptables.
    Iptables,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its own address and port.
    pub at: SocketAddr,
    /// The port by which every node leads to it.
    pub node_port: Option<u16>,
    /// Its transport protocol.
    pub protocol: Protocol,
    /// The pods behind it; without one it refuses.
    pub backends: Vec<SocketAddr>,
}

impl Service {
    /// Returns a Service with an address only, without a port of the nodes.
    pub fn new(
        at: SocketAddr,
        protocol: Protocol,
        backends: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        Self {
            at,
            node_port: None,
            protocol,
            backends: backends.into_iter().collect(),
        }
    }

    /// Also at a port of every node.
    #[must_use]
    pub fn at_node_port(self, port: u16) -> Self {
        Self {
            node_port: Some(port),
            ..self
        }
    }
}

/// The rules of one node for one address family.
#[derive(Debug)]
pub struct ServiceRules {
    node: Node,
    backend: Backend,
    pods: IpNet,
}

impl ServiceRules {
    /// Rules without Services. `pods` is the network of the cluster's pods; its family is the
    /// rules'.
    pub fn install(node: &Node, backend: Backend, pods: IpNet) -> Result<Self> {
        let rules = Self {
            node: node.clone(),
            backend,
            pods,
        };
        if backend == Backend::Iptables {
            rules.restore(&iptables::base())?;
        }
        rules.set(&[])?;
        Ok(rules)
    }

    /// Makes these the node's Services, instead of those before.
    pub fn set(&self, services: &[Service]) -> Result<()> {
        let is_ours = |address: IpAddr| address.is_ipv4() == self.pods.addr().is_ipv4();
        for service in services {
            let mut addresses = service
                .backends
                .iter()
                .chain([&service.at])
                .map(SocketAddr::ip);
            ensure!(
                addresses.all(is_ours),
                "{service:?} has addresses of another family than {}",
                self.pods
            );
        }
        match self.backend {
            Backend::Nftables => self.node.nft(&nftables::table(self.pods, services)),
            Backend::Iptables => self.restore(&iptables::services(self.pods, services)),
        }
    }

    fn restore(&self, text: &str) -> Result<()> {
        let tool = if self.pods.addr().is_ipv4() {
            "iptables-legacy-restore"
        } else {
            "ip6tables-legacy-restore"
        };
        self.node
            .command([tool, "-w", "5", "--noflush"])
            .input(text)
            .run()
            .map(drop)
    }
}
