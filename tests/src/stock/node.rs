//! Nodes of either family, and of backends with and without tunnels, as stock flannel writes them
//! into etcd.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{Etcd, cluster::LEASES};

/// A node that does not run flannel-agent.
#[derive(Clone, Debug, Default)]
pub struct StockNode {
    /// Its IPv4 end; `None` for a node without IPv4.
    pub v4: Option<StockEnd>,
    /// Its IPv6 end; `None` for a node without IPv6.
    pub v6: Option<StockEnd>,
}

/// One family of a node.
#[derive(Clone, Debug)]
pub struct StockEnd {
    /// The node's subnet, such as `10.244.9.0/24`.
    pub subnet: String,
    /// The node's underlay address.
    pub public_ip: String,
    /// Its VTEP's MAC address; `None` makes it a node of the backend host-gw.
    pub mac: Option<String>,
}

impl StockEnd {
    /// The end of a vxlan tunnel with the subnet of this number: `10.244.<number>.0/24`, or where
    /// the address is one of IPv6 `fd00:10:244:<number in hex>::/64`.
    pub fn vxlan(number: u8, public_ip: &str, mac: &str) -> Self {
        Self {
            mac: Some(mac.to_owned()),
            ..Self::host_gw(number, public_ip)
        }
    }

    /// A gateway with the subnet of this number.
    pub fn host_gw(number: u8, public_ip: &str) -> Self {
        let v6 = public_ip.contains(':');
        let subnet = if v6 {
            format!("fd00:10:244:{number:x}::/64")
        } else {
            format!("10.244.{number}.0/24")
        };
        Self {
            subnet,
            public_ip: public_ip.to_owned(),
            mac: None,
        }
    }

    fn data(&self, key: &str) -> String {
        let data = |mac| format!(r#","{key}":{{"VNI":1,"VtepMAC":"{mac}"}}"#);
        self.mac.as_deref().map(data).unwrap_or_default()
    }
}

impl From<StockEnd> for StockNode {
    /// A node of one family.
    fn from(end: StockEnd) -> Self {
        if end.subnet.contains(':') {
            Self {
                v4: None,
                v6: Some(end),
            }
        } else {
            Self {
                v4: Some(end),
                v6: None,
            }
        }
    }
}

impl StockNode {
    /// A node of the address's family with the subnet of this number.
    pub fn vxlan(number: u8, public_ip: &str, mac: &str) -> Self {
        StockEnd::vxlan(number, public_ip, mac).into()
    }

    /// An IPv4 node with the lease of this name, such as `10.244.9.0-24`.
    pub fn named(name: &str, public_ip: &str, mac: &str) -> Self {
        let (subnet, public_ip, mac) = (
            name.replace('-', "/"),
            public_ip.to_owned(),
            Some(mac.to_owned()),
        );
        Self {
            v4: Some(StockEnd {
                subnet,
                public_ip,
                mac,
            }),
            v6: None,
        }
    }

    /// An IPv4 node with vxlan, as etcd has it.
    pub fn read(key: &str, value: &str) -> Result<Self> {
        let name = key
            .strip_prefix(LEASES)
            .with_context(|| format!("{key} is no lease's"))?;
        let json: Value = serde_json::from_str(value).context(value.to_owned())?;
        let text = |text: &Value| {
            text.as_str()
                .map(str::to_owned)
                .with_context(|| value.to_owned())
        };
        Ok(Self::named(
            name,
            &text(&json["PublicIP"])?,
            &text(&json["BackendData"]["VtepMAC"])?,
        ))
    }

    /// The last part of its key.
    pub fn name(&self) -> String {
        let v4 = self.v4.as_ref().map_or("0.0.0.0/0", |end| &end.subnet);
        let v6 = self
            .v6
            .as_ref()
            .map(|end| format!("&{}", end.subnet))
            .unwrap_or_default();
        format!("{v4}{v6}").replace('/', "-")
    }

    /// The whole key.
    pub fn key(&self) -> String {
        format!("{LEASES}{}", self.name())
    }

    /// The value, byte for byte as stock flannel 0.28 writes it.
    pub fn value(&self) -> String {
        let ip = self.v4.as_ref().map_or("0.0.0.0", |end| &end.public_ip);
        let ipv6 = self
            .v6
            .as_ref()
            .map_or("null".to_owned(), |end| format!(r#""{}""#, end.public_ip));
        let ends = [(&self.v4, "BackendData"), (&self.v6, "BackendV6Data")];
        let data: String = ends
            .iter()
            .filter_map(|(end, key)| end.as_ref().map(|end| end.data(key)))
            .collect();
        let backend = if data.is_empty() { "host-gw" } else { "vxlan" };
        format!(r#"{{"PublicIP":"{ip}","PublicIPv6":{ipv6},"BackendType":"{backend}"{data}}}"#)
    }

    /// Writes it under an etcd lease of a day, as stock does.
    pub fn put(&self, etcd: &Etcd) -> Result<()> {
        etcd.put(&self.key(), &self.value(), Some(86_400))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_written_as_stock_writes_them() {
        let v4 = Some(StockEnd::vxlan(25, "192.168.1.9", "02:00:00:00:04:09"));
        let v6 = Some(StockEnd::vxlan(25, "fd00:1::9", "02:00:00:00:06:09"));
        let dual = StockNode { v4, v6 };
        let (v4, v6) = (
            StockNode {
                v6: None,
                ..dual.clone()
            },
            StockNode {
                v4: None,
                ..dual.clone()
            },
        );
        let ends = (
            Some(StockEnd::host_gw(25, "192.168.1.9")),
            Some(StockEnd::host_gw(25, "fd00:1::9")),
        );
        let host_gw = StockNode {
            v4: ends.0,
            v6: ends.1,
        };
        for (node, name, value) in [
            (
                v4,
                "10.244.25.0-24",
                r#"{"PublicIP":"192.168.1.9","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:09"}}"#,
            ),
            (
                v6,
                "0.0.0.0-0&fd00:10:244:19::-64",
                r#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00:1::9","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:06:09"}}"#,
            ),
            (
                dual,
                "10.244.25.0-24&fd00:10:244:19::-64",
                r#"{"PublicIP":"192.168.1.9","PublicIPv6":"fd00:1::9","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:09"},"BackendV6Data":{"VNI":1,"VtepMAC":"02:00:00:00:06:09"}}"#,
            ),
            (
                host_gw,
                "10.244.25.0-24&fd00:10:244:19::-64",
                r#"{"PublicIP":"192.168.1.9","PublicIPv6":"fd00:1::9","BackendType":"host-gw"}"#,
            ),
        ] {
            assert_eq!(
                (node.key(), node.value()),
                (format!("{LEASES}{name}"), value.to_owned())
            );
        }
    }

    #[test]
    fn a_lease_is_read_as_stock_writes_it() {
        let node = StockNode::vxlan(9, "192.168.1.9", "02:00:00:00:00:09");
        let again = StockNode::read(&node.key(), &node.value()).expect("a lease");
        assert_eq!((again.key(), again.value()), (node.key(), node.value()));
    }
}
