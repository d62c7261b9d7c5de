//! Nodes of either family, and of backends with and without tunnels, written into etcd as stock nodes write themselves.

use anyhow::Result;

use crate::{Etcd, cluster::LEASES};

/// A node that runs no agent of ours. Its subnets are `10.244.<number>.0/24` and `fd00:10:244:<number in hex>::/64`, in the
/// families it has an end in. [`crate::HandLease`] says less, and any IPv4 subnet.
#[derive(Clone, Debug, Default)]
pub struct HandNode {
    /// The number that distinguishes its subnets from those of other nodes.
    pub number: u8,
    /// Its IPv4 end; `None` for a node without IPv4.
    pub v4: Option<HandEnd>,
    /// Its IPv6 end; `None` for a node without IPv6.
    pub v6: Option<HandEnd>,
}

/// One family of a node.
#[derive(Clone, Debug)]
pub struct HandEnd {
    /// The node's underlay address.
    pub public_ip: String,
    /// Its VTEP's MAC address; `None` makes it a node of the backend host-gw.
    pub mac: Option<String>,
}

impl HandEnd {
    /// The end of a vxlan tunnel.
    pub fn vxlan(public_ip: &str, mac: &str) -> Self {
        Self { public_ip: public_ip.to_owned(), mac: Some(mac.to_owned()) }
    }

    /// A gateway.
    pub fn host_gw(public_ip: &str) -> Self {
        Self { public_ip: public_ip.to_owned(), mac: None }
    }

    fn data(&self, key: &str) -> String {
        let data = |mac| format!(r#","{key}":{{"VNI":1,"VtepMAC":"{mac}"}}"#);
        self.mac.as_deref().map(data).unwrap_or_default()
    }
}

impl HandNode {
    /// Its IPv4 subnet.
    pub fn subnet(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// Its IPv6 subnet.
    pub fn subnet_v6(&self) -> String {
        format!("fd00:10:244:{:x}::/64", self.number)
    }

    /// The whole key.
    pub fn key(&self) -> String {
        let v4 = if self.v4.is_some() { self.subnet() } else { "0.0.0.0/0".to_owned() };
        let v6 = if self.v6.is_some() { format!("&{}", self.subnet_v6()) } else { String::new() };
        format!("{LEASES}{}", format!("{v4}{v6}").replace('/', "-"))
    }

    /// The value, byte for byte as stock flannel 0.28 writes it.
    pub fn value(&self) -> String {
        let ip = self.v4.as_ref().map_or("0.0.0.0", |end| &end.public_ip);
        let ipv6 = self.v6.as_ref().map_or("null".to_owned(), |end| format!(r#""{}""#, end.public_ip));
        let ends = [(&self.v4, "BackendData"), (&self.v6, "BackendV6Data")];
        let data: String = ends.iter().filter_map(|(end, key)| end.as_ref().map(|end| end.data(key))).collect();
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
        let v4 = Some(HandEnd::vxlan("192.168.1.9", "02:00:00:00:04:09"));
        let v6 = Some(HandEnd::vxlan("fd00:1::9", "02:00:00:00:06:09"));
        let dual = HandNode { number: 25, v4, v6 };
        let (v4, v6) = (HandNode { v6: None, ..dual.clone() }, HandNode { v4: None, ..dual.clone() });
        let ends = (Some(HandEnd::host_gw("192.168.1.9")), Some(HandEnd::host_gw("fd00:1::9")));
        let host_gw = HandNode { number: 25, v4: ends.0, v6: ends.1 };
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
            assert_eq!((node.key(), node.value()), (format!("{LEASES}{name}"), value.to_owned()));
        }
    }
}
