//! Nodes, and what the tests ask of them.

#[path = "../../../../../tests/support/certs.rs"]
mod certs;
mod grpc_proxy;
#[path = "../../../../../tests/support/not_run.rs"]
mod not_run;
mod proxy;
mod server;

use std::time::Duration;

use etcd_client::{Client, CompactionOptions, GetOptions, KeyValue, PutOptions};
use flannel_common::packet::addr::Mac;
use flannel_store::{
    LeaseAttrs, LeaseKey, LeaseRequest, LostCause, OwnLease, StoreEvent, VxlanData,
    config::NetworkConfig,
    etcd::{EtcdManager, EtcdOptions, Liveness, TlsFiles},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

pub(crate) use self::{
    certs::{Authority, Pair},
    grpc_proxy::GrpcProxy,
    proxy::Proxy,
    server::{Data, Etcd, Server, free_ports},
};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Gives up on silence quickly. The test servers allow pings this often.
pub(crate) const BRISK: Liveness = Liveness {
    deadline: Duration::from_secs(5),
    ping: Duration::from_secs(1),
    pong: Duration::from_secs(1),
    verify: PATIENCE,
};

pub(crate) const CONFIG: &str = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#;

/// One cluster's keys in a server.
pub(crate) struct Cluster {
    pub(crate) etcd: Server,
    pub(crate) client: Client,
    pub(crate) prefix: String,
}

impl Cluster {
    /// Returns a cluster in the shared server. Without an etcd binary, prints that and returns
    /// `None`.
    pub(crate) async fn shared(name: &str) -> Option<Self> {
        let etcd = Etcd::shared(name).await?;
        Some(Self::within(etcd, name).await)
    }

    /// Returns a cluster in a separate server.
    pub(crate) async fn alone(name: &str) -> Option<Self> {
        let etcd = Etcd::start(name).await?;
        Some(Self::within(etcd, name).await)
    }

    /// Returns a cluster in a separate server whose data may have this many bytes.
    pub(crate) async fn small(name: &str, quota: u32) -> Option<Self> {
        let etcd = Etcd::start_small(name, quota).await?;
        Some(Self::within(etcd, name).await)
    }

    /// Returns a cluster in a separate server that accepts requests of this many bytes.
    pub(crate) async fn with_requests_of(name: &str, bytes: usize) -> Option<Self> {
        let etcd = Etcd::start_with(name, &format!("--max-request-bytes={bytes}")).await?;
        Some(Self::within(etcd, name).await)
    }

    async fn within(etcd: Server, name: &str) -> Self {
        let client = etcd.client().await;
        Self {
            etcd,
            client,
            prefix: format!("/test/{name}"),
        }
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        self.options_at(&self.etcd.endpoint())
    }

    pub(crate) fn options_at(&self, endpoint: &str) -> EtcdOptions {
        EtcdOptions {
            endpoints: vec![endpoint.to_owned()],
            prefix: self.prefix.clone(),
            tls: TlsFiles::default(),
            credentials: None,
            lease_ttl: DAY,
            renew_margin: DAY / 24,
        }
    }

    pub(crate) fn manager(&self) -> EtcdManager {
        EtcdManager::new(&self.options(), BRISK)
    }

    pub(crate) fn key(&self, name: impl std::fmt::Display) -> String {
        format!("{}/subnets/{name}", self.prefix)
    }

    pub(crate) async fn put(&self, name: &str, value: &str) {
        self.client
            .clone()
            .put(self.key(name), value, None)
            .await
            .expect("put");
    }

    pub(crate) async fn delete(&self, name: impl std::fmt::Display) {
        self.client
            .clone()
            .delete(self.key(name), None)
            .await
            .expect("delete");
    }

    pub(crate) async fn get(&self, name: impl std::fmt::Display) -> Option<KeyValue> {
        self.client
            .clone()
            .get(self.key(name), None)
            .await
            .expect("get")
            .kvs()
            .first()
            .cloned()
    }

    /// Writes a lease as a node does: on an etcd lease.
    pub(crate) async fn put_on_a_lease(&self, key: LeaseKey, value: &str) {
        let mut client = self.client.clone();
        let etcd_lease = client
            .lease_grant(3600, None)
            .await
            .expect("an etcd lease")
            .id();
        let options = PutOptions::new().with_lease(etcd_lease);
        client
            .put(self.key(key), value, Some(options))
            .await
            .expect("put");
    }

    /// The names of all leases.
    pub(crate) async fn leases(&self) -> Vec<String> {
        let prefix = self.key("");
        let answer = self
            .client
            .clone()
            .get(prefix.as_str(), Some(GetOptions::new().with_prefix()))
            .await;
        answer
            .expect("get")
            .kvs()
            .iter()
            .map(|kv| kv.key_str().expect("text").replace(&prefix, ""))
            .collect()
    }

    /// Waits until a key has this value.
    pub(crate) async fn until_value(&self, key: LeaseKey, value: &str) {
        self.until_key(key, |kv| kv.value_str().expect("text") == value)
            .await;
    }

    /// Waits until a key was written this often.
    pub(crate) async fn until_version(&self, key: LeaseKey, version: i64) -> KeyValue {
        self.until_key(key, |kv| kv.version() == version).await
    }

    async fn until_key(&self, key: LeaseKey, is_right: impl Fn(&KeyValue) -> bool) -> KeyValue {
        let look = async {
            loop {
                match self.get(key).await {
                    Some(kv) if is_right(&kv) => return kv,
                    _ => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        timeout(PATIENCE, look).await.expect("in time")
    }

    /// Forgets all history.
    pub(crate) async fn compact(&self) {
        let mut client = self.client.clone();
        let revision = client
            .get("any", None)
            .await
            .expect("get")
            .header()
            .expect("a header")
            .revision();
        // Otherwise the old revisions may still be there after the answer.
        let options = CompactionOptions::new().with_physical();
        client
            .compact(revision, Some(options))
            .await
            .expect("compact");
    }
}

/// The attributes of node `n`: 192.0.2.n, MAC 02:00:00:00:00:n.
pub(crate) fn attrs(n: u8) -> LeaseAttrs {
    let data = VxlanData {
        vni: Some(1),
        vtep_mac: Mac([2, 0, 0, 0, 0, n]),
        zero_checksum_v6: false,
        other_source: false,
    };
    LeaseAttrs {
        public_ip: Some([192, 0, 2, n].into()),
        backend_type: "vxlan".into(),
        backend_data: Some(data.to_json()),
        ..LeaseAttrs::default()
    }
}

pub(crate) fn config(text: &str) -> NetworkConfig {
    NetworkConfig::parse(text).expect("a configuration")
}

pub(crate) fn request(n: u8) -> LeaseRequest {
    LeaseRequest {
        config: config(CONFIG),
        attrs: attrs(n),
        previous: None,
    }
}

pub(crate) fn key(text: &str) -> LeaseKey {
    text.parse().expect("a key")
}

/// The next event, of any kind.
pub(crate) async fn next(events: &mut mpsc::Receiver<StoreEvent>) -> StoreEvent {
    timeout(PATIENCE, events.recv())
        .await
        .expect("an event in time")
        .expect("a running manager")
}

/// The next event `wanted` turns into something; others are passed over.
pub(crate) async fn until<T>(
    events: &mut mpsc::Receiver<StoreEvent>,
    mut wanted: impl FnMut(StoreEvent) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = wanted(next(events).await) {
            return found;
        }
    }
}

/// Names of the entries of the next snapshot.
pub(crate) async fn until_in_sync(events: &mut mpsc::Receiver<StoreEvent>) -> Vec<String> {
    until(events, |event| match event {
        StoreEvent::InSync { snapshot } => Some(
            snapshot
                .into_iter()
                .map(|entry| entry.name.to_string())
                .collect(),
        ),
        _ => None,
    })
    .await
}

/// Returns the next report on our lease. Panics if the lease is lost.
pub(crate) async fn until_own(events: &mut mpsc::Receiver<StoreEvent>) -> OwnLease {
    until(events, |event| match event {
        StoreEvent::OwnLease(own) => Some(own),
        StoreEvent::OwnLeaseLost { key, cause } => panic!("{key} is lost: {cause:?}"),
        _ => None,
    })
    .await
}

pub(crate) async fn until_lost(events: &mut mpsc::Receiver<StoreEvent>) -> LostCause {
    until(events, |event| match event {
        StoreEvent::OwnLeaseLost { cause, .. } => Some(cause),
        _ => None,
    })
    .await
}

/// A manager that has acquired a lease and follows the store.
pub(crate) async fn follow(
    manager: EtcdManager,
    request: LeaseRequest,
) -> (LeaseKey, mpsc::Receiver<StoreEvent>) {
    let (own, events, _never_changed) = publish(manager, request).await;
    (own, events)
}

/// As [`follow`], and what it publishes can be changed.
pub(crate) async fn publish(
    mut manager: EtcdManager,
    request: LeaseRequest,
) -> (
    LeaseKey,
    mpsc::Receiver<StoreEvent>,
    watch::Sender<LeaseAttrs>,
) {
    use flannel_store::SubnetManager as _;
    let own = Box::pin(manager.acquire(&request)).await.expect("a lease");
    let (sender, receiver) = mpsc::channel(64);
    let (attrs, published) = watch::channel(request.attrs.clone());
    tokio::spawn(manager.run(request, published, sender));
    (own.key, receiver, attrs)
}
