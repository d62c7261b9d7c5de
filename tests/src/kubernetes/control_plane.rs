//! The control plane, on the first node: etcd, the API server, the controller manager and the
//! scheduler.

use std::{
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{credentials::Credentials, kubectl::Kubectl, parts::Parts};
use crate::{ChildGuard, Etcd, Lab, Node, eventually};

/// The addresses of pods, of each family. Pods get those of the families that flannel is configured
/// for.
pub const PODS: &str = "10.244.0.0/16";
/// See [`PODS`].
pub const PODS_V6: &str = "fd00:10:244::/48";
/// The addresses of Services, of each family. A Service gets IPv4 unless it asks for both.
pub const SERVICES: &str = "10.96.0.0/16";
const SERVICES_V6: &str = "fd00:10:96::/112";
/// Both families, which are an option of this version.
pub(super) const DUAL_STACK: &str = "IPv6DualStack";
/// The address of the API server as a Service.
pub(super) const API_SERVICE: &str = "10.96.0.1";
/// An API server of a cold machine.
const START_LIMIT: Duration = Duration::from_mins(2);

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    node: Node,
    program: String,
    arguments: Vec<String>,
    server: Mutex<Option<ChildGuard>>,
    kubectl: Kubectl,
    others: Vec<ChildGuard>,
    _etcd: Etcd,
}

impl ControlPlane {
    /// Starts it on `node`, whose address is `address`.
    pub(super) fn start(
        lab: &Lab,
        node: &Node,
        address: Ipv4Addr,
        parts: &Parts,
        credentials: &Credentials,
    ) -> Result<Self> {
        let etcd = lab.etcd(node)?;
        let mut plane = Self {
            node: node.clone(),
            program: parts.program("kube-apiserver"),
            arguments: api_server(address, credentials),
            server: Mutex::default(),
            kubectl: Kubectl::new(node, parts, credentials),
            others: Vec::new(),
            _etcd: etcd,
        };
        plane.start_api_server()?;
        // They end when no API server answers for some seconds.
        plane.others = vec![
            node.spawn("controller-manager", controller_manager(parts, credentials))?,
            node.spawn("scheduler", scheduler(parts, credentials))?,
        ];
        Ok(plane)
    }

    /// Starts the API server, also after [`ControlPlane::kill_api_server`], and waits until it
    /// answers.
    pub fn start_api_server(&self) -> Result<()> {
        let command = [&self.program].into_iter().chain(&self.arguments).cloned();
        let server = self.node.spawn("kube-apiserver", command)?;
        *self.server() = Some(server.clone());
        eventually("an answer of the API server", START_LIMIT, || {
            self.kubectl.run(["get", "--raw", "/readyz"])
        })
        .with_context(|| format!("end of its log:\n{}", server.log_tail(15)))?;
        Ok(())
    }

    /// Ends the API server at once; connections break.
    pub fn kill_api_server(&self) -> Result<()> {
        self.server()
            .take()
            .context("the API server does not run")?
            .kill9()
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Option<ChildGuard>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn api_server(address: Ipv4Addr, credentials: &Credentials) -> Vec<String> {
    let file = |name: &str| credentials.file(name);
    vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--advertise-address={address}"),
        "--secure-port=6443".to_owned(),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            file("kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--service-account-key-file={}", file("tokens.pub")),
        format!("--service-account-signing-key-file={}", file("tokens.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-cluster-ip-range={SERVICES},{SERVICES_V6}"),
        format!("--feature-gates={DUAL_STACK}=true"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", file("proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("proxy-client.key")),
    ]
}

fn controller_manager(parts: &Parts, credentials: &Credentials) -> Vec<String> {
    let kubeconfig = credentials.kubeconfig("kube-controller-manager");
    vec![
        parts.program("kube-controller-manager"),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--allocate-node-cidrs=true".to_owned(),
        format!("--cluster-cidr={PODS},{PODS_V6}"),
        format!("--service-cluster-ip-range={SERVICES},{SERVICES_V6}"),
        format!("--feature-gates={DUAL_STACK}=true"),
        format!("--root-ca-file={}", credentials.file("ca.crt")),
        format!(
            "--service-account-private-key-file={}",
            credentials.file("tokens.key")
        ),
        format!("--cluster-signing-cert-file={}", credentials.file("ca.crt")),
        format!("--cluster-signing-key-file={}", credentials.file("ca.key")),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins".to_owned(),
    ]
}

fn scheduler(parts: &Parts, credentials: &Credentials) -> Vec<String> {
    let kubeconfig = credentials.kubeconfig("kube-scheduler");
    vec![
        parts.program("kube-scheduler"),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".to_owned(),
    ]
}
