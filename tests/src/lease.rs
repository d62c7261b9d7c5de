//! Leases written into etcd by hand, as a stock node writes them.

use anyhow::{Context as _, Result};
use etcd_client::{Txn, TxnOp};
use serde_json::Value;

use crate::{Etcd, cluster::LEASES};

/// Leases in one transaction; etcd takes 128 operations.
const BATCH: usize = 100;

/// The lease of a node that runs no agent of ours.
#[derive(Clone, Debug)]
pub struct HandLease {
    /// The last part of its key, such as `10.244.9.0-24`.
    pub name: String,
    /// The node's underlay address.
    pub public_ip: String,
    /// Its VTEP's MAC address.
    pub mac: String,
}

impl HandLease {
    /// A lease of `10.244.<number>.0/24`.
    pub fn new(number: u8, public_ip: &str, mac: &str) -> Self {
        Self { name: format!("10.244.{number}.0-24"), public_ip: public_ip.to_owned(), mac: mac.to_owned() }
    }

    /// The lease of a node with vxlan, as etcd has it.
    pub fn read(key: &str, value: &str) -> Result<Self> {
        let name = key.strip_prefix(LEASES).with_context(|| format!("{key} is no lease's"))?;
        let json: Value = serde_json::from_str(value).context(value.to_owned())?;
        let text = |text: &Value| text.as_str().map(str::to_owned).with_context(|| value.to_owned());
        let (public_ip, mac) = (text(&json["PublicIP"])?, text(&json["BackendData"]["VtepMAC"])?);
        Ok(Self { name: name.to_owned(), public_ip, mac })
    }

    /// The whole key.
    pub fn key(&self) -> String {
        format!("{LEASES}{}", self.name)
    }

    /// The value, byte for byte as stock flannel 0.28 writes it.
    pub fn value(&self) -> String {
        let Self { public_ip, mac, .. } = self;
        format!(
            r#"{{"PublicIP":"{public_ip}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"{mac}"}}}}"#
        )
    }

    /// Writes it under an etcd lease of a day, as stock does.
    pub fn put(&self, etcd: &Etcd) -> Result<()> {
        etcd.put(&self.key(), &self.value(), Some(86_400))
    }
}

impl Etcd {
    /// Writes many leases over one connection, without a lifetime.
    pub fn put_leases(&self, leases: &[HandLease]) -> Result<()> {
        self.in_batches(leases, |lease| TxnOp::put(lease.key(), lease.value(), None))
    }

    /// Deletes many leases over one connection.
    pub fn delete_leases(&self, leases: &[HandLease]) -> Result<()> {
        self.in_batches(leases, |lease| TxnOp::delete(lease.key(), None))
    }

    fn in_batches(&self, leases: &[HandLease], operation: impl Fn(&HandLease) -> TxnOp + Sync) -> Result<()> {
        self.client(async |client| {
            for batch in leases.chunks(BATCH) {
                client.txn(Txn::new().and_then(batch.iter().map(&operation).collect::<Vec<_>>())).await?;
            }
            Ok(())
        })
    }

    /// Returns the number of writes to a key since it was created.
    pub fn version(&self, key: &str) -> Result<i64> {
        let found = self.client(async |client| client.get(key, None).await)?;
        found.kvs().first().map(etcd_client::KeyValue::version).with_context(|| format!("{key} is gone"))
    }

    /// Revokes the etcd lease a key hangs on, as its end or `etcdctl lease revoke` does.
    pub fn revoke(&self, key: &str) -> Result<()> {
        let lease = self.client(async |client| {
            let found = client.get(key, None).await?;
            Ok(found.kvs().first().map_or(0, etcd_client::KeyValue::lease))
        })?;
        anyhow::ensure!(lease != 0, "{key} is absent, or hangs on no etcd lease");
        self.client(async |client| client.lease_revoke(lease).await.map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_written_as_stock_writes_it() {
        let lease = HandLease::new(9, "192.168.1.9", "02:00:00:00:00:09");
        assert_eq!(lease.key(), "/coreos.com/network/subnets/10.244.9.0-24");
        assert_eq!(
            lease.value(),
            r#"{"PublicIP":"192.168.1.9","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:09"}}"#
        );
    }
}
