//! A node: a host that forwards, may carry pods and may run an agent.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use anyhow::Result;

use crate::{Host, Pod, agent::subnet_env::SubnetEnv};

/// A handle to a node; clones are the same node.
#[derive(Clone, Debug)]
pub struct Node {
    host: Host,
    pods: Arc<AtomicU8>,
}

impl Node {
    pub(crate) fn new(host: Host) -> Result<Self> {
        host.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        Ok(Self {
            host,
            pods: Arc::default(),
        })
    }

    /// The node's `/run/flannel/subnet.env`.
    pub fn subnet_env(&self) -> Result<SubnetEnv> {
        SubnetEnv::read(&self.outside_path("/run/flannel/subnet.env"))
    }

    /// A pod on this node, addressed from its `subnet.env`: `.2` for the first pod, `.3` for the
    /// second, and so on.
    pub fn add_pod(&self, name: &str) -> Result<Pod> {
        let number = self.pods.fetch_add(1, Ordering::Relaxed) + 1;
        Pod::add(self, name, number)
    }

    /// Lets bridged packets pass netfilter, as Kubernetes requires.
    pub fn filter_bridged(&self) -> Result<()> {
        for key in ["iptables", "ip6tables"] {
            self.sh(&format!("sysctl -qw net.bridge.bridge-nf-call-{key}=1"))?;
        }
        Ok(())
    }

    /// Makes the node `address` (with its prefix length) on `device` and sends the rest to
    /// `gateway`. Addresses are unique here, and nothing waits for duplicate detection.
    pub fn address(&self, device: &str, address: &str, gateway: Option<&str>) -> Result<()> {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        let route = gateway.map(|gateway| format!("route add default via {gateway} dev {device}"));
        self.ip(&format!(
            "address add {address} dev {device}{nodad}\n{}",
            route.unwrap_or_default()
        ))
    }
}

impl Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}
