//! Pods of the cluster, as hosts of the lab.

use std::{fmt, net::Ipv4Addr, ops::Deref};

use anyhow::{Context as _, Result};

use super::{Kubernetes, items};
use crate::Host;

/// A pod that runs. It is the host of its network namespace, with the files and tools of its node.
#[derive(Clone)]
pub struct PodOnNode {
    host: Host,
    node: String,
    address: Ipv4Addr,
}

impl fmt::Debug for PodOnNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} ({})", self.name(), self.node, self.address)
    }
}

impl Deref for PodOnNode {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl PodOnNode {
    /// The name of its node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Kubernetes {
    /// The pods of the namespace `default` with this label that run and are not being deleted, by
    /// their nodes.
    pub fn pods(&self, label: &str) -> Result<Vec<PodOnNode>> {
        let found = self.kubectl().get([
            "pods",
            "--selector",
            label,
            "--field-selector=status.phase=Running",
        ])?;
        let mut pods = items(&found)
            .map(|pod| {
                let text = |pointer: &str| {
                    pod.pointer(pointer)
                        .and_then(|value| value.as_str())
                        .context(pointer.to_owned())
                };
                let (name, node) = (text("/metadata/name")?, text("/spec/nodeName")?);
                let address = text("/status/podIP")?.parse()?;
                let host = self.node(node)?.pod(name, address)?;
                Ok(PodOnNode {
                    host,
                    node: node.to_owned(),
                    address,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        pods.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(pods)
    }
}
