//! Stock flanneld with `--ip-masq`, played step by step: what it does when it starts, and when a
//! peer changes.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{rules, subnet_env, tunnel, tunnel_peer};
use crate::{Etcd, Node, StockNode, cluster::LEASES};

/// A node of stock flannel with the subnet `10.244.<number>.0/24`, which is its own as a Kubernetes
/// node's is: it keeps it when its address changes.
#[derive(Clone, Debug)]
pub struct Flanneld {
    /// The node.
    pub node: Node,
    /// The number that distinguishes its subnet from those of other nodes.
    pub number: u8,
    /// The node's underlay address.
    pub public_ip: String,
}

impl Flanneld {
    /// Starts, in stock's order: device, lease, rules, subnet.env, peers. Keeps an existing device
    /// and its MAC address if its settings are right; otherwise replaces it by one with another
    /// address. Returns the lease.
    pub fn start(&self, etcd: &Etcd) -> Result<StockNode> {
        let mac = match self.device_to_keep()? {
            Some(mac) => mac,
            None => self.make_device()?,
        };
        let own = StockNode::vxlan(self.number, &self.public_ip, &mac);
        own.put(etcd)?;
        rules::install(&self.node, &format!("10.244.{}.0/24", self.number))?;
        subnet_env(&self.node, self.number, true)?;
        for (key, value) in etcd
            .list(LEASES)?
            .iter()
            .filter(|(key, _)| *key != own.key())
        {
            self.learn(&StockNode::read(key, value)?)?;
        }
        Ok(own)
    }

    /// A peer is new or has changed.
    pub fn learn(&self, peer: &StockNode) -> Result<()> {
        tunnel_peer(&self.node, peer)
    }

    /// The MAC address of a device whose kind, VNI, lower device, local address and port are right.
    /// Stock looks at no more.
    fn device_to_keep(&self) -> Result<Option<String>> {
        let links: Vec<Value> = self.node.json(&["ip", "-j", "-details", "link"])?;
        let Some(link) = links.iter().find(|link| link["ifname"] == "flannel.1") else {
            return Ok(None);
        };
        let (kind, data) = (
            &link["linkinfo"]["info_kind"],
            &link["linkinfo"]["info_data"],
        );
        let is_right =
            kind == "vxlan" && data["id"] == 1 && data["link"] == "eth0" && data["port"] == 8472;
        if is_right && data["local"] == self.public_ip.as_str() {
            return Ok(Some(
                link["address"]
                    .as_str()
                    .context("a MAC address")?
                    .to_owned(),
            ));
        }
        self.node.sh("ip link delete flannel.1")?;
        Ok(None)
    }

    fn make_device(&self) -> Result<String> {
        let [a, b, c, d]: [u8; 4] = rand::random();
        let mac = format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        tunnel(&self.node, self.number, &self.public_ip, &mac)?;
        Ok(mac)
    }
}
