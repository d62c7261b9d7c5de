//! NameTable of the addresses in flows: pods, nodes, Services and hosts outside.
//!
//! A [`NameResolver`] answers from a bounded cache with expiry. Missing names are looked up by a
//! separate thread, which starts with the first question: pods of one node at a time through the
//! Kubernetes API ([`flannel_store::kube::PodLister`]) or from the results that CNI keeps
//! (`cni_results`), Services from the rules of kube-proxy, hosts from a file of the operator
//! (`hosts`), nodes from the leases (`node_index`). A caller chooses how long it waits; a name that
//! is not known by then is missing.
//!
//! Invariants: the first question is the first read, and a minute after the last one the connection
//! to the API server is closed; the main loop never waits.

mod cache;
mod cni_results;
mod hosts;
mod lookup;
mod node_index;
mod resolver;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use resolver::{NameResolver, NameSources};

/// The names of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressNames {
    /// The kind of the address.
    pub kind: AddressKind,
    /// The pod that has it, as `namespace/name`.
    pub pod: Option<String>,
    /// The node that has it, or whose pod has it.
    pub node: Option<String>,
    /// The Service that has it, as `namespace/name`.
    pub service: Option<String>,
    /// The host outside that has it, by the operator's file.
    pub host: Option<String>,
}

/// The kind of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// In a pod network.
    Pod,
    /// Of this node.
    Host,
    /// Of another node.
    Node,
    /// Of a Service.
    Service,
    /// None of these.
    #[default]
    Outside,
}

impl AddressKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Pod,
        Self::Host,
        Self::Node,
        Self::Service,
        Self::Outside,
    ];

    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Host => "host",
            Self::Node => "node",
            Self::Service => "service",
            Self::Outside => "outside",
        }
    }
}

impl AddressNames {
    /// The name to show: that of the pod, the Service, the node or the host; `None` if only the
    /// address is known.
    pub fn shown(&self) -> Option<&str> {
        let node = self
            .node
            .as_ref()
            .filter(|_| matches!(self.kind, AddressKind::Host | AddressKind::Node));
        self.pod
            .as_deref()
            .or(self.service.as_deref())
            .or(node.map(String::as_str))
            .or(self.host.as_deref())
    }
}

/// NameTable by address.
pub type ResolvedNames = std::collections::BTreeMap<IpAddr, AddressNames>;

#[cfg(test)]
mod tests;
