//! Keys by which hosts of a connectivity test exchange what they are and what they found.
//!
//! They are not among the leases, so no node of a cluster reads them. They hang on an etcd lease,
//! so they go with a process that is killed.

use std::{collections::BTreeMap, time::Duration};

use etcd_client::{GetOptions, PutOptions};
use tokio::{task::JoinHandle, time::sleep};
use tracing::debug;

use super::{
    Liveness,
    client::EtcdClient,
    error::EtcdError,
    keys::{Keys, meeting},
    options::EtcdOptions,
};
use crate::etcd::lease::publish::{create, grant, keep_alive};

/// The lifetime of the keys without their process.
const TTL: Duration = Duration::from_secs(30);
/// Between renewals: three may fail.
const RENEWAL: Duration = Duration::from_secs(8);

/// The place where the hosts of a test meet, below the prefix of flannel's keys.
pub struct MeetingPlace {
    client: EtcdClient,
    /// Above all that is exchanged.
    root: String,
    /// Above all leases.
    leases: String,
    etcd_lease: i64,
    renewal: JoinHandle<()>,
}

impl MeetingPlace {
    /// Enters it. What is written lives until half a minute after this value is dropped.
    pub async fn enter(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let mut client = EtcdClient::new(options, Liveness::default());
        let (etcd_lease, _) = grant(&mut client, TTL).await?;
        // The renewal has a separate connection, because a request has exclusive use of its client.
        let renewal = tokio::spawn(renew(
            EtcdClient::new(options, Liveness::default()),
            etcd_lease,
        ));
        let leases = format!("{}/", Keys::new(&options.prefix).prefix());
        Ok(Self {
            client,
            root: meeting(&options.prefix),
            leases,
            etcd_lease,
            renewal,
        })
    }

    /// The number of leases in the cluster, which is that of hosts with an agent of any kind.
    pub async fn leases(&mut self) -> Result<usize, EtcdError> {
        let prefix = self.leases.clone();
        let options = GetOptions::new().with_prefix().with_count_only();
        let answer = self.get("counting the leases", &prefix, &options).await?;
        Ok(usize::try_from(answer.count()).unwrap_or(0))
    }

    /// Writes a value unless there is one. Returns true if it did.
    pub async fn create(&mut self, name: &str, value: &str) -> Result<bool, EtcdError> {
        let key = self.key(name);
        create(&mut self.client, &key, value, self.etcd_lease).await
    }

    /// Writes a value over any other.
    pub async fn put(&mut self, name: &str, value: &str) -> Result<(), EtcdError> {
        let (key, options) = (
            self.key(name),
            PutOptions::new().with_lease(self.etcd_lease),
        );
        let put = self.client.call("writing for the other hosts", |mut etcd| {
            let (key, options) = (key.clone(), options.clone());
            async move { etcd.put(key, value, Some(options)).await }
        });
        put.await.map(drop)
    }

    /// Reads a value.
    pub async fn read(&mut self, name: &str) -> Result<Option<String>, EtcdError> {
        let answer = self
            .get(
                "reading what another host wrote",
                &self.key(name),
                &GetOptions::new(),
            )
            .await?;
        Ok(answer
            .kvs()
            .first()
            .map(|kv| String::from_utf8_lossy(kv.value()).into_owned()))
    }

    /// Reads the values whose names begin with `prefix`, by the rest of the name.
    pub async fn list(&mut self, prefix: &str) -> Result<BTreeMap<String, String>, EtcdError> {
        let root = self.key(prefix);
        let answer = self
            .get(
                "listing the other hosts",
                &root,
                &GetOptions::new().with_prefix(),
            )
            .await?;
        let named = answer.kvs().iter().filter_map(|kv| {
            let name = kv.key().strip_prefix(root.as_bytes())?;
            Some((
                String::from_utf8_lossy(name).into_owned(),
                String::from_utf8_lossy(kv.value()).into_owned(),
            ))
        });
        Ok(named.collect())
    }

    /// Deletes a value; one that is gone already is success.
    pub async fn remove(&mut self, name: &str) -> Result<(), EtcdError> {
        let key = self.key(name);
        let deleted = self
            .client
            .call("taking this host's name away", |mut etcd| {
                let key = key.clone();
                async move { etcd.delete(key, None).await }
            });
        deleted.await.map(drop)
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    async fn get(
        &mut self,
        what: &'static str,
        key: &str,
        options: &GetOptions,
    ) -> Result<etcd_client::GetResponse, EtcdError> {
        let get = self.client.call(what, |mut etcd| {
            let options = options.clone();
            async move { etcd.get(key, Some(options)).await }
        });
        get.await
    }
}

impl Drop for MeetingPlace {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

async fn renew(mut client: EtcdClient, etcd_lease: i64) {
    loop {
        sleep(RENEWAL).await;
        if let Err(error) = keep_alive(&mut client, etcd_lease).await {
            debug!("the keys of the test were not renewed, which is tried again: {error}");
        }
    }
}
