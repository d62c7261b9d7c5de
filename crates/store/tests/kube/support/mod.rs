//! Clusters, nodes, and what the tests ask of them.

#[expect(
    dead_code,
    reason = "shared with the tests of the agent's process, which speak TLS"
)]
#[path = "../../../../../tests/support/api_server/mod.rs"]
mod api_server;
mod log;
#[path = "../../../../../tests/support/not_run.rs"]
mod not_run;
mod real;

use std::{fs, sync::Arc, time::Duration};

use flannel_common::packet::addr::Mac;
use flannel_store::{
    LeaseAttrs, LeaseRequest, NodeSetting, StoreEvent, SubnetManager as _, VxlanData,
    config::NetworkConfig,
    kube::{KubeManager, KubeOptions, Liveness, NodeIdentity},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use self::real::Real;
pub(crate) use self::{
    api_server::{Double, LIST, State},
    log::Log,
};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
pub(crate) const CONFIG: &str = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#;
/// Gives up on silence quickly, and on requests only when a test waits for that.
pub(crate) const BRISK: Liveness = Liveness {
    deadline: Duration::from_secs(5),
    silence: PATIENCE,
    grace: Duration::from_millis(200),
    review: Duration::from_millis(100),
};

/// One cluster: Nodes and a prefix for their annotations.
pub(crate) struct Cluster {
    server: Server,
    prefix: String,
    scratch: TempDir,
}

enum Server {
    Double(Double),
    Real(Arc<Real>),
}

impl Cluster {
    /// A cluster in a double, and one in a real server if there is any.
    pub(crate) async fn each(name: &str) -> Vec<Self> {
        let double = Self::double(name).await;
        let real = Real::shared(name)
            .await
            .map(|real| Self::new(name, Server::Real(real)));
        [Some(double), real].into_iter().flatten().collect()
    }

    /// A cluster in a double.
    pub(crate) async fn double(name: &str) -> Self {
        Self::new(name, Server::Double(Double::start().await))
    }

    fn new(name: &str, server: Server) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        // A slash and no final dash, so that normalising has something to do.
        let cluster = Self {
            server,
            prefix: format!("{name}.example.com/net"),
            scratch,
        };
        cluster.write_kubeconfig("secret");
        fs::write(cluster.scratch.path().join("net-conf.json"), CONFIG).expect("a file");
        cluster
    }

    pub(crate) fn faults(&self) -> &Double {
        match &self.server {
            Server::Double(double) => double,
            Server::Real(_) => panic!("a real server has no faults on demand"),
        }
    }

    /// Writes the kubeconfig file with this token.
    pub(crate) fn write_kubeconfig(&self, token: &str) {
        let token = if let Server::Real(_) = &self.server {
            real::TOKEN
        } else {
            token
        };
        self.write_kubeconfig_of(&json!({ "token": token }));
    }

    /// Writes the kubeconfig file with a token file of this content.
    pub(crate) fn write_token_file(&self, content: &str) {
        fs::write(self.scratch.path().join("token"), content).expect("a file");
        // Relative to the kubeconfig.
        self.write_kubeconfig_of(&json!({ "tokenFile": "token" }));
    }

    /// Writes the kubeconfig file with a credential plugin that runs this line of shell.
    pub(crate) fn write_plugin(&self, line: &str) {
        let version = "client.authentication.k8s.io/v1";
        let plugin = json!({
            "apiVersion": version,
            "command": "/bin/sh",
            "args": ["-c", line],
            "interactiveMode": "Never",
        });
        self.write_kubeconfig_of(&json!({ "exec": plugin }));
    }

    /// A file of the test, for a plugin.
    pub(crate) fn scratch(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    fn write_kubeconfig_of(&self, user: &Value) {
        let url = match &self.server {
            Server::Double(double) => double.url(),
            Server::Real(real) => real.url(),
        };
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{
                "name": "test",
                "cluster": { "server": url, "insecure-skip-tls-verify": true },
            }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        fs::write(self.scratch.path().join("kubeconfig"), file.to_string()).expect("a file");
    }

    pub(crate) fn options(&self) -> KubeOptions {
        KubeOptions {
            api_url: None,
            kubeconfig: Some(self.scratch.path().join("kubeconfig")),
            prefix: self.prefix.parse().expect("a prefix"),
            net_config: self.scratch.path().join("net-conf.json"),
            set_network_unavailable: true,
            pod_opt_out: true,
        }
    }

    pub(crate) fn manager(&self, node: &str) -> KubeManager {
        self.manager_with(node, BRISK)
    }

    pub(crate) fn manager_with(&self, node: &str, liveness: Liveness) -> KubeManager {
        KubeManager::new(
            self.options(),
            NodeIdentity::Node(self.node_name(node)),
            liveness,
        )
    }

    /// Nodes of all clusters in a server share one name space.
    pub(crate) fn node_name(&self, node: &str) -> String {
        format!(
            "{}-{node}",
            self.prefix.split('.').next().unwrap_or_default()
        )
    }

    /// The full name of an annotation.
    pub(crate) fn annotation(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.prefix)
    }

    /// A Node with this subnet, or one of each family with a comma, and these annotations.
    pub(crate) async fn add(&self, node: &str, cidr: Option<&str>, annotations: &[(&str, &str)]) {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(suffix, value)| (self.annotation(suffix), (*value).into()))
            .collect();
        let cidrs: Vec<_> = cidr.into_iter().flat_map(|cidr| cidr.split(',')).collect();
        let spec = cidrs.first().map_or(
            json!({}),
            |first| json!({ "podCIDR": first, "podCIDRs": cidrs }),
        );
        let name = self.node_name(node);
        let uid = format!("{name}-{:x}", rand::random::<u32>());
        let meta = json!({
            "name": name,
            "uid": uid,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": annotations,
        });
        let object = json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": spec });
        match &self.server {
            Server::Double(double) => double.change(|state| state.put(object)),
            Server::Real(real) => real.create(object).await,
        }
    }

    /// Peer `n` as stock flannel publishes it: 10.5.n.0/24 at 192.0.2.n.
    pub(crate) async fn add_peer(&self, n: u8) {
        let data = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{n:02x}"}}"#);
        let ip = format!("192.0.2.{n}");
        let annotations = [
            ("kube-subnet-manager", "true"),
            ("backend-type", "vxlan"),
            ("backend-data", &data),
            ("public-ip", &ip),
        ];
        self.add(
            &format!("peer{n}"),
            Some(&format!("10.5.{n}.0/24")),
            &annotations,
        )
        .await;
    }

    /// Merges a JSON merge patch into a Node, as an administrator.
    pub(crate) async fn edit(&self, node: &str, patch: Value) {
        let name = self.node_name(node);
        match &self.server {
            Server::Double(double) => double.change(|state| state.edit(&name, &patch)),
            Server::Real(real) => real.edit(&name, &patch).await,
        }
    }

    /// Sets an annotation, or removes it.
    pub(crate) async fn annotate(&self, node: &str, suffix: &str, value: Option<&str>) {
        let name = self.annotation(suffix);
        self.edit(
            node,
            json!({ "metadata": { "annotations": { name: value } } }),
        )
        .await;
    }

    pub(crate) async fn remove(&self, node: &str) {
        let name = self.node_name(node);
        match &self.server {
            Server::Double(double) => double.change(|state| state.remove(&name)),
            Server::Real(real) => real.delete(&name).await,
        }
    }

    pub(crate) async fn node(&self, node: &str) -> Value {
        let name = self.node_name(node);
        match &self.server {
            Server::Double(double) => double.change(|state| state.node(&name)),
            Server::Real(real) => real.get(&name).await,
        }
    }

    /// The value of an annotation.
    pub(crate) async fn annotated(&self, node: &str, suffix: &str) -> Option<String> {
        self.node(node).await["metadata"]["annotations"][self.annotation(suffix)]
            .as_str()
            .map(str::to_owned)
    }

    /// Waits until a Node is as wanted.
    pub(crate) async fn eventually<T>(
        &self,
        node: &str,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> T {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let asking = async {
            loop {
                ticks.tick().await;
                if let Some(found) = wanted(&self.node(node).await) {
                    return found;
                }
            }
        };
        timeout(PATIENCE, asking)
            .await
            .expect("the node is as wanted in time")
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

pub(crate) fn config() -> NetworkConfig {
    NetworkConfig::parse_assigned(CONFIG).expect("a configuration")
}

pub(crate) fn request(n: u8) -> LeaseRequest {
    LeaseRequest {
        config: config(),
        attrs: attrs(n),
        previous: None,
    }
}

/// A manager of a node that has acquired its lease and follows the store.
pub(crate) async fn follow(manager: KubeManager) -> mpsc::Receiver<StoreEvent> {
    publish(manager).await.1
}

/// The same, with the means to publish something else.
pub(crate) async fn publish(
    manager: KubeManager,
) -> (watch::Sender<LeaseAttrs>, mpsc::Receiver<StoreEvent>) {
    publish_as(manager, request(1)).await
}

/// The same, by this request.
pub(crate) async fn publish_as(
    mut manager: KubeManager,
    request: LeaseRequest,
) -> (watch::Sender<LeaseAttrs>, mpsc::Receiver<StoreEvent>) {
    manager.acquire(&request).await.expect("a lease");
    let (events, received) = mpsc::channel(64);
    let (sender, published) = watch::channel(request.attrs.clone());
    tokio::spawn(manager.run(request, published, events));
    (sender, received)
}

/// The next event, in short: `=` a snapshot, `+` and `-` changes, with names; or a word.
pub(crate) async fn next(events: &mut mpsc::Receiver<StoreEvent>) -> String {
    let short = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    match timeout(PATIENCE, events.recv())
        .await
        .expect("an event in time")
        .expect("a running manager")
    {
        StoreEvent::InSync { snapshot } => {
            let mut names: Vec<_> = snapshot.iter().map(|entry| short(&entry.name)).collect();
            names.sort();
            format!("={}", names.join(" "))
        }
        StoreEvent::Put(entry) => format!("+{}", short(&entry.name)),
        StoreEvent::Delete { name } => format!("-{}", short(&name)),
        StoreEvent::OutOfSync { .. } => "out of sync".to_owned(),
        StoreEvent::Resumed => "resumed".to_owned(),
        StoreEvent::OwnLease(own) => format!("own {}", own.key),
        StoreEvent::OwnLeaseLost { key, cause } => format!("lost {key}: {cause}"),
        StoreEvent::NotAcquired { reason, .. } => format!("none: {reason}"),
        StoreEvent::Contested { by } => format!("contested by {by}"),
        StoreEvent::Settings(settings) => {
            let refused = |setting: &NodeSetting| {
                if setting.value.is_err() {
                    " refused"
                } else {
                    ""
                }
            };
            let texts = settings
                .0
                .iter()
                .map(|setting| format!("{}{}", short(&setting.to_string()), refused(setting)));
            format!("settings {}", texts.collect::<Vec<_>>().join(" "))
        }
    }
}
