//! Leases in etcd: many at a time, and what etcd knows of one.

use anyhow::{Context as _, Result};
use etcd_client::{Txn, TxnOp};

use crate::{Etcd, StockNode};

/// Leases in one transaction; etcd takes 128 operations.
const BATCH: usize = 100;

impl Etcd {
    /// Writes many leases over one connection, without a lifetime.
    pub fn put_leases(&self, leases: &[StockNode]) -> Result<()> {
        self.in_batches(leases, |lease| TxnOp::put(lease.key(), lease.value(), None))
    }

    /// Deletes many leases over one connection.
    pub fn delete_leases(&self, leases: &[StockNode]) -> Result<()> {
        self.in_batches(leases, |lease| TxnOp::delete(lease.key(), None))
    }

    fn in_batches(
        &self,
        leases: &[StockNode],
        operation: impl Fn(&StockNode) -> TxnOp + Sync,
    ) -> Result<()> {
        self.client(async |client| {
            for batch in leases.chunks(BATCH) {
                client
                    .txn(Txn::new().and_then(batch.iter().map(&operation).collect::<Vec<_>>()))
                    .await?;
            }
            Ok(())
        })
    }

    /// Returns the number of writes to a key since it was created.
    pub fn version(&self, key: &str) -> Result<i64> {
        let found = self.client(async |client| client.get(key, None).await)?;
        found
            .kvs()
            .first()
            .map(etcd_client::KeyValue::version)
            .with_context(|| format!("{key} is gone"))
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
